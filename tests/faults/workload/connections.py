"""Connections of our own to all brokers of a cluster, for workers that see what libraries hide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from tests.faults.workload.settings import CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Settings

from ottla.client.net.blocking_connection import BlockingConnection


class Connections:
    """One connection to each address, made when it is first asked for; used by one thread."""

    def __init__(self, settings: Settings, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._made: dict[tuple[str, int], BlockingConnection] = {}
        self._bootstraps: Iterator[str] = cycle(settings.bootstrap.split(","))

    def to(self, address: tuple[str, int]) -> BlockingConnection:
        """Return the connection to a broker, which connects with the next request."""
        if address not in self._made:
            self._made[address] = BlockingConnection(
                *address,
                client_id=self._client_id,
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                **self._settings.access.connection,
            )
        return self._made[address]

    def to_next_bootstrap(self) -> BlockingConnection:
        """Return the connection to one of the addresses that are known from the start, by turns."""
        host, _, port = next(self._bootstraps).rpartition(":")
        return self.to((host, int(port)))

    def close(self) -> None:
        """Close all connections."""
        for connection in self._made.values():
            connection.close()
