"""A network coroutine: reads the sockets of its share of the connections.

Each listener has `num.network.threads` of them, all on one loop; the acceptor distributes new connections in turn. A
coroutine has its own selector, which the loop watches as one descriptor. When the selector has events, the coroutine
reads once from each socket with data, so a busy connection gets only its turn. (uvloop would lose sockets that are
added one by one: when a client resets its connection, uvloop stops watching the socket and reports nothing.)
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator

import structlog

from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionCounts, NetworkLimits
from ottla.broker.security.rarely import Rarely
from ottla.protocol.errors import FrameError
from ottla.protocol.frame import describe_first_bytes

log = structlog.get_logger(__name__)


class NetworkProcessor:
    """One network coroutine and its connections. Everything but `call` and `lend` belongs to the loop's thread."""

    def __init__(self, name: str, limits: NetworkLimits, counts: ConnectionCounts) -> None:
        self.name = name
        self._limits = limits
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, Connection] = {}
        # Limits the log lines about clients that fail before they are authenticated.
        self._strangers = Rarely()
        self._selector = selectors.DefaultSelector()
        # Set while the coroutine has nothing to do.
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(self._selector, self._note)

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._connections.values()))

    def adopt(self, connection: Connection) -> None:
        """Add a new connection."""
        self._selector.register(connection.fd, selectors.EVENT_READ, connection)
        self._connections[connection.fd] = connection

    async def run(self) -> None:
        """Read and write whatever is possible, until cancelled."""
        while True:
            self._waiter = self._loop.create_future()
            await self._waiter
            for key, events in self._selector.select(0):
                if events & selectors.EVENT_WRITE and key.data.is_writing:
                    self._write(key.data)
                if events & selectors.EVENT_READ:
                    self.read(key.data)

    def close_overdue(self) -> None:
        """Close the connections that have passed a deadline."""
        now = time.monotonic()
        for connection in self:
            reason = self._limits.overdue(connection, now)
            if reason is not None:
                self.discard(connection, reason)

    def close_all(self) -> None:
        """Close every connection when the broker stops."""
        for connection in self:
            self.discard(connection, "the broker is stopping")
        self._loop.remove_reader(self._selector)
        self._selector.close()

    # For connections

    def call(self, function: Callable[[], object]) -> None:
        """Run a function on the loop soon; from any thread. Does nothing once the loop has stopped."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run a function on the loop after some time; from any thread."""
        self.call(lambda: self._loop.call_later(seconds, function))

    def set_reading(self, connection: Connection, wanted: bool) -> None:
        """Watch the socket for data to read, or stop watching; a muted one is not watched."""
        wanted = wanted and not (connection.is_ended or connection.is_muted)
        if not connection.is_closed and connection.is_reading != wanted:
            connection.is_reading = wanted
            self._watch(connection)
            if wanted and connection.has_received:
                self._loop.call_soon(self.read, connection)

    def set_writing(self, connection: Connection, wanted: bool) -> None:
        """Watch the socket for room to write, or stop watching."""
        if not connection.is_closed and connection.is_writing != wanted:
            connection.is_writing = wanted
            self._watch(connection)

    def lend(self, connection: Connection, lent: bool) -> None:
        """Let a worker wait for data on the socket, or watch the socket again; from any thread."""
        connection.is_lent = lent
        self._watch(connection)
        if not lent and connection.has_received:
            self.call(lambda: self.read(connection))

    def _watch(self, connection: Connection) -> None:
        with connection.watching:
            if connection.is_closed:
                return
            is_read = connection.is_reading and not connection.is_lent
            wanted = selectors.EVENT_READ * is_read | selectors.EVENT_WRITE * connection.is_writing
            is_watched = connection.fd in self._selector.get_map()
            if wanted and is_watched:
                self._selector.modify(connection.fd, wanted, connection)
            elif wanted:
                self._selector.register(connection.fd, wanted, connection)
            elif is_watched:
                self._selector.unregister(connection.fd)

    def discard(self, connection: Connection, reason: str) -> None:
        """Close the connection; calling it again does nothing."""
        if connection.is_closed:
            return
        with connection.watching:
            if connection.fd in self._selector.get_map():
                self._selector.unregister(connection.fd)
            self._connections.pop(connection.fd, None)
            connection.close()
        self._counts.closed(connection)
        log.debug("connection_closed", peer=connection.peer, listener=connection.listener, reason=reason)

    def resume(self) -> None:
        """Read again from the connections that stopped because the request queue was full, or memory was short."""
        for connection in self:
            if not connection.is_reading:
                self.set_reading(connection, True)

    # For the loop

    def _note(self) -> None:
        if self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    def read(self, connection: Connection) -> None:
        """Read from a connection."""
        try:
            if connection.is_closed or connection.receive():
                return
            self._end(connection, "the client closed it")
        except BlockingIOError:
            return
        except FrameError as error:
            self.refuse(connection, error)
        except OSError as error:
            self._end(connection, f"cannot read: {error}")

    def _end(self, connection: Connection, reason: str) -> None:
        """Close a connection whose client is gone, after its requests are handled: a client with acks=0 does not wait
        for us.
        """
        if connection.end():
            self.discard(connection, reason)
        else:
            self.set_reading(connection, False)

    def refuse(self, connection: Connection, error: FrameError) -> None:
        """Log a frame that cannot be read, and close the connection."""
        if connection.is_closed:
            return
        self._counts.frames_refused += 1
        if not connection.session.is_stranger or self._strangers.allows(f"{connection.peer} {connection.listener}"):
            log.warning(
                "frame_refused",
                peer=connection.peer,
                listener=connection.listener,
                error=str(error),
                hint=describe_first_bytes(connection.reader.first_bytes),
            )
        self.discard(connection, str(error))

    def _write(self, connection: Connection) -> None:
        try:
            if not connection.is_closed:
                connection.drain()
        except OSError as error:
            self.discard(connection, f"cannot send: {error}")
