"""Accepts the connections of one listener and distributes them over its network coroutines."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Callable
from itertools import cycle

import structlog

from ottla.broker.network.connection_rates import ConnectionRates
from ottla.broker.network.limits import ConnectionCounts
from ottla.broker.network.processor import NetworkProcessor
from ottla.broker.security.rarely import Rarely
from ottla.broker.security.session import plain_address

log = structlog.get_logger(__name__)

# Connections accepted each time the loop reports some.
_ACCEPTED_MAX = 64
# Without free descriptors, accepting fails again and again: wait until some are free.
_PAUSE_SECONDS = 0.5
# The most connections that may wait to be refused.
_HELD_MAX = 256
# Descriptors kept from clients: a log that cannot open its files fails, and takes its whole directory offline.
_RESERVED_SHARE = 0.2
_RESERVED_MIN = 32
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Adopt = Callable[[socket.socket, NetworkProcessor], None]


class Acceptor:
    """The listening socket of one listener. Belongs to the loop's thread."""

    def __init__(
        self,
        name: str,
        listening: socket.socket,
        processors: list[NetworkProcessor],
        counts: ConnectionCounts,
        rates: ConnectionRates,
        adopt: Adopt,
        make_room: Callable[[], None],
    ) -> None:
        self.name = name
        self.socket = listening
        self._processors = cycle(processors)
        self._counts = counts
        self._rates = rates
        # Connections of addresses that open too many; each is closed after its pause.
        self._held: set[socket.socket] = set()
        self._adopt = adopt
        # Closes other connections if there are too many with a new one.
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._is_open = False
        self._is_paused = False
        # Limits the log lines about a listener that is full.
        self._lines = Rarely()

    def start(self) -> None:
        """Start to accept connections."""
        self._is_open = True
        self._loop.add_reader(self.socket.fileno(), self._accept)

    def stop(self) -> None:
        """Stop accepting, and free the port."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self.socket.fileno())
        for client in self._held:
            client.close()
        self.socket.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_MAX):
            if (reason := self._counts.fullness(self.name)) is not None:
                self._wait_for_room(reason)
                return
            try:
                _check_descriptors(self.socket.fileno(), self._counts.config.is_for_brokers_only(self.name))
                client, address = self.socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause(error)
                    return
                raise
            self._is_paused = False
            if self._take(client, plain_address(address[0])) and (pause := self._rates.pause_seconds(self.name)):
                self._stop_for(pause)
                return

    def _take(self, client: socket.socket, address: str) -> bool:
        refusal = self._counts.refusal(address)
        if refusal is not None:
            self._counts.rejected += 1
            log.warning("connection_refused", listener=self.name, peer=address, reason=refusal)
            client.close()
            return False
        if refused_after := self._rates.refusal_seconds(address):
            self._counts.rejected += 1
            log.debug("connection_throttled", listener=self.name, peer=address, closed_after_s=refused_after)
            self._hold(client, refused_after)
            return False
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            self._adopt(client, next(self._processors))
        except OSError:
            client.close()  # the client left before it was accepted
            return False
        self._counts.opened(self.name, address)
        self._make_room()
        return True

    def _hold(self, client: socket.socket, seconds: float) -> None:
        """Close a connection after some seconds; at once if many are waiting already."""
        if len(self._held) >= _HELD_MAX:
            client.close()
            return
        self._held.add(client)

        def close() -> None:
            self._held.discard(client)
            client.close()

        self._loop.call_later(seconds, close)

    def _wait_for_room(self, reason: str) -> None:
        if self._lines.allows(reason):
            log.warning("listener_full", listener=self.name, reason=reason, hint="new connections wait")
        self._loop.remove_reader(self.socket.fileno())
        self._counts.call_at_change(self._resume)

    def _stop_for(self, seconds: float) -> None:
        self._loop.remove_reader(self.socket.fileno())
        self._loop.call_later(seconds, self._resume)

    def _pause(self, error: OSError) -> None:
        if not self._is_paused:
            self._is_paused = True
            log.error(
                "accepting_paused",
                listener=self.name,
                error=str(error),
                hint="raise the limit of open files (ulimit -n), or lower max.connections",
            )
        self._stop_for(_PAUSE_SECONDS)

    def _resume(self) -> None:
        if self._is_open:
            self._loop.add_reader(self.socket.fileno(), self._accept)


def _check_descriptors(fd: int, for_brokers: bool) -> None:
    """Raise OSError if a new descriptor would be one of those that are kept for files. Brokers may use half of them.

    The system returns the lowest free number, so the next descriptor shows how many are in use.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    following = os.dup(fd)
    os.close(following)
    reserved = max(_RESERVED_MIN, int(limit * _RESERVED_SHARE)) // (2 if for_brokers else 1)
    if limit != resource.RLIM_INFINITY and following >= limit - reserved:
        raise OSError(errno.EMFILE, f"{following} of at most {limit} files are open, and the rest are kept for logs")
