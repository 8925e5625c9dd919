"""A running `Network` on a loop in a thread, with a dispatch of the test's own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvloop
from msgspec.structs import replace

from ottla.broker.config import BrokerConfig
from ottla.broker.network.connection import Connection
from ottla.broker.network.network import Network
from ottla.broker.security.listener_security import ListenerSecurity

DEADLINE_SECONDS = 60


class Served:
    """A network that serves on free loopback ports."""

    def __init__(self, loop: asyncio.AbstractEventLoop, network: Network, ports: dict[str, int]) -> None:
        self.loop = loop
        self.network = network
        # By the names of listeners; `port` is that of the first one.
        self.ports = ports
        self.port = next(iter(ports.values()))

    def connect(self, listener: str | None = None) -> socket.socket:
        """Open a client socket, to the first listener unless one is named."""
        port = self.port if listener is None else self.ports[listener]
        client = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def on_loop(self, function: Callable[[], Any]) -> Any:
        """Run a function on the loop and return what it returns."""

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(DEADLINE_SECONDS)


@contextmanager
def serving(dispatch: Any, **options: str) -> Iterator[Served]:
    """Serve until the block ends, in the clear."""
    config = BrokerConfig.of({key.replace("_", "."): value for key, value in options.items()})
    with serving_securely(dispatch, config, {}) as served:
        yield served


@contextmanager
def serving_securely(dispatch: Any, config: BrokerConfig, security: Mapping[str, ListenerSecurity]) -> Iterator[Served]:
    """Serve the listeners of a config until the block ends, on free ports."""
    listeners = [replace(listener, host="127.0.0.1", port=0) for listener in config.bound_listeners]
    started = threading.Event()
    made: list[Any] = []

    async def main() -> None:
        network = Network(config, dispatch, security)
        ports = network.bind(listeners)
        network.start()
        stop = asyncio.Event()
        by_name = {listener.name: port for listener, port in zip(listeners, ports, strict=True)}
        made.extend((asyncio.get_running_loop(), network, by_name, stop))
        started.set()
        await stop.wait()
        await network.stop(DEADLINE_SECONDS)

    thread = threading.Thread(target=lambda: uvloop.run(main()), daemon=True)
    thread.start()
    assert started.wait(DEADLINE_SECONDS)
    loop, network, ports, stop = made
    try:
        yield Served(loop, network, ports)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


def send_frame(client: socket.socket, body: bytes) -> None:
    """Send one frame."""
    client.sendall(len(body).to_bytes(4) + body)


def receive_exactly(client: socket.socket, size: int) -> bytes:
    """Receive so many bytes; fewer at the end of the stream."""
    data = bytearray()
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def receive_frame(client: socket.socket) -> bytes | None:
    """Receive one frame; None at the end of the stream."""
    head = receive_exactly(client, 4)
    return receive_exactly(client, int.from_bytes(head)) if len(head) == 4 else None


def echo(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
    """Answer with what was sent."""
    connection.respond(slot, [bytes(frame.body)])
    connection.release(frame)
