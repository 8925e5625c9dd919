"""A process between brokers and ZooKeeper that notes how long each broker is silent.

ZooKeeper ends a session when it has heard nothing for the session timeout, whatever the reason. So the longest silence
on a connection is how close a session came to its end. The tap runs with a higher priority than what it measures, where
the system allows that, because a late tap would look like a silent broker.
"""

from __future__ import annotations

import multiprocessing
import os
import selectors
import socket
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_RECEIVE_BYTES: Final = 64 * 1024
_PRIORITY: Final = -10
_STOP_SECONDS: Final = 10.0
_RESET, _REPORT, _STOP = "reset", "report", "stop"


class ZooKeeperTap:
    """The tap in front of a server on this machine; brokers connect to `port`."""

    def __init__(self, server_port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_run, args=(server_port, other), daemon=True)
        self._process.start()
        self.port: int = self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pipe.send(_STOP)
        self._process.join(_STOP_SECONDS)

    def reset(self) -> None:
        """Forget what was noted so far."""
        self._pipe.send(_RESET)

    def silences(self) -> list[float]:
        """Return the longest silence of each open connection since the last reset, in seconds."""
        self._pipe.send(_REPORT)
        found: list[float] = self._pipe.recv()
        return found


class _Link:
    """One client and its connection to the server."""

    def __init__(self, client: socket.socket, server_port: int) -> None:
        self.client = client
        self.server = socket.create_connection((_HOST, server_port))
        self.heard = time.monotonic()
        self.longest = 0.0

    def note(self, now: float) -> None:
        """Note that the client has sent something, or that the time of the measurement is over."""
        self.longest = max(self.longest, now - self.heard)
        self.heard = now


def _run(server_port: int, pipe: Connection) -> None:
    with suppress(PermissionError):
        os.nice(_PRIORITY)
    listener = socket.create_server((_HOST, 0))
    pipe.send(listener.getsockname()[1])
    links: set[_Link] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is pipe:
                    if not _obeyed(pipe, links):
                        return
                elif key.fileobj is listener:
                    link = _Link(listener.accept()[0], server_port)
                    links.add(link)
                    selector.register(link.client, selectors.EVENT_READ, (link, link.server))
                    selector.register(link.server, selectors.EVENT_READ, (link, link.client))
                else:
                    link, target = key.data
                    if link in links and not _passed_on(link, key.fileobj, target):
                        links.discard(link)
                        for each in (link.client, link.server):
                            selector.unregister(each)
                            each.close()


def _obeyed(pipe: Connection, links: set[_Link]) -> bool:
    """Do what the bench asks for; return whether the tap goes on."""
    command = pipe.recv()
    now = time.monotonic()
    if command == _RESET:
        for link in links:
            link.heard, link.longest = now, 0.0
    elif command == _REPORT:
        pipe.send([max(link.longest, now - link.heard) for link in links])
    return bool(command != _STOP)


def _passed_on(link: _Link, source: object, target: socket.socket) -> bool:
    assert isinstance(source, socket.socket)
    try:
        data = source.recv(_RECEIVE_BYTES)
        if source is link.client and data:
            link.note(time.monotonic())
        target.sendall(data)
    except OSError:
        return False
    return bool(data)
