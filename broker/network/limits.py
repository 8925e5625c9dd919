"""How many connections there may be, and the deadlines of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from ottla.broker.config.names import listener_prefix
from ottla.broker.config.rows.broker import BrokerOptions

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig
    from ottla.broker.network.connection import Connection

# For the TLS handshake, and again for the authentication.
SETUP_SECONDS = 10.0
_FOREVER_SECONDS = 10 * 365 * 24 * 3600.0


class NetworkLimits(Struct, frozen=True):
    """The deadlines of connections."""

    idle_seconds: float
    # From the first byte of a request to its last.
    frame_seconds: float = 30.0
    # While the client takes no byte of its responses.
    write_seconds: float = 30.0

    @classmethod
    def of(cls, config: BrokerConfig) -> NetworkLimits:
        """Return the deadlines of a broker."""
        idle_ms = config.connections_max_idle_ms
        return cls(
            idle_seconds=idle_ms / 1000 if idle_ms >= 0 else _FOREVER_SECONDS,
            frame_seconds=config.ottla_connection_frame_timeout_ms / 1000,
            write_seconds=config.ottla_connection_write_timeout_ms / 1000,
        )

    def overdue(self, connection: Connection, now: float) -> str | None:
        """Return the deadline that a connection has passed, in words; None if there is none."""
        if connection.is_handshaking:
            return "the TLS handshake took too long" if now - connection.opened > SETUP_SECONDS else None
        authentication = connection.session.authentication
        if authentication is not None and not authentication.is_done:
            is_late = now - connection.established > SETUP_SECONDS
            return "the client did not authenticate in time" if is_late else None
        blocked_since = connection.blocked_since
        if blocked_since is not None:
            return "the client does not read its responses" if now - blocked_since > self.write_seconds else None
        if connection.is_busy:
            return None
        if (
            connection.reader.is_within_frame
            and connection.is_reading
            and now - connection.frame_begun > self.frame_seconds
        ):
            return "a request did not arrive completely"
        if now - connection.last_read > self.idle_seconds:
            return "idle"
        return None


class ConnectionCounts:
    """The number of open connections: in all, per listener and per address. Belongs to the loop's thread.

    Limits are Kafka's (KIP-402). A listener that is full accepts nobody until a connection closes. The limit of the
    broker does not count for the listener of the brokers, if clients have another one.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.by_listener: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        # Listeners that are full.
        self._waiting: list[Callable[[], None]] = []
        self.rejected = 0
        self.frames_refused = 0
        # Of closed connections.
        self.bytes_sendfile = self.bytes_copied = 0

    @property
    def total(self) -> int:
        """All open connections."""
        return sum(self.by_listener.values())

    @property
    def excess(self) -> int:
        """How many connections there are beyond the limit of the broker."""
        return max(0, self.total - self.config.max_connections)

    def fullness(self, listener: str) -> str | None:
        """Return why a listener must accept no connection now; None if it may."""
        config = self.config
        limit = config.set_for_listener(listener, BrokerOptions.max_connections)
        if limit is not None and self.by_listener[listener] >= limit:
            return f"{listener_prefix(listener)}max.connections = {limit} are open"
        if self.total >= config.max_connections and not config.is_for_brokers_only(listener):
            return f"max.connections = {config.max_connections} are open"
        return None

    def call_at_change(self, function: Callable[[], None]) -> None:
        """Call a function once, when a connection has closed or the limits have changed."""
        self._waiting.append(function)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take other limits."""
        self.config = config
        self._changed()

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for function in waiting:
            function()

    def refusal(self, address: str) -> str | None:
        """Return why another connection from an address is refused; None if it is accepted."""
        config = self.config
        limit = config.max_connections_per_ip_overrides.get(address, config.max_connections_per_ip)
        if self._by_address[address] >= limit:
            return f"max.connections.per.ip = {limit} are open from {address}"
        return None

    def opened(self, listener: str, address: str) -> None:
        """Count a connection."""
        self.accepted[listener] += 1
        self.by_listener[listener] += 1
        self._by_address[address] += 1

    def closed(self, connection: Connection) -> None:
        """Count a closed connection."""
        self.bytes_sendfile += connection.bytes_sendfile
        self.bytes_copied += connection.bytes_copied
        self.by_listener[connection.listener] -= 1
        self._by_address[connection.peer] -= 1
        if not self._by_address[connection.peer]:
            del self._by_address[connection.peer]
        self._changed()
