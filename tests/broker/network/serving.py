"""A running `Network` on a loop in a thread, with a dispatch of the test's own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvloop

from ottla.broker.config import BrokerConfig
from ottla.broker.network.connection import Connection
from ottla.broker.network.network import Network
from ottla.broker.security.listener_security import ListenerSecurity

DEADLINE_SECONDS = 60


class Served:
    """A network that serves on a free loopback port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, network: Network, port: int) -> None:
        self.loop = loop
        self.network = network
        self.port = port

    def connect(self) -> socket.socket:
        """Open a client socket."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_SECONDS)
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
    """Serve the first listener of a config until the block ends, on a free port."""
    listener = replace(config.bound_listeners[0], host="127.0.0.1", port=0)
    started = threading.Event()
    made: list[Any] = []

    async def main() -> None:
        network = Network(config, dispatch, security)
        (port,) = network.bind([listener])
        network.start()
        stop = asyncio.Event()
        made.extend((asyncio.get_running_loop(), network, port, stop))
        started.set()
        await stop.wait()
        await network.stop(DEADLINE_SECONDS)

    thread = threading.Thread(target=lambda: uvloop.run(main()), daemon=True)
    thread.start()
    assert started.wait(DEADLINE_SECONDS)
    loop, network, port, stop = made
    try:
        yield Served(loop, network, port)
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
