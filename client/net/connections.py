"""The connections of a client: at most one per broker and lane, opened on demand.

A broker answers the requests of a connection in order. So a request that it holds back, such as a JoinGroup or a Fetch
that waits for records, delays all requests behind it. Requests that must not wait for such requests use another lane,
which is a second connection to the same broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ottla.client.errors import IllegalStateError, KafkaError
from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.backoff import Backoff
from ottla.client.net.client_metrics import ConnectionMetrics
from ottla.client.net.settings import ClientSettings, HostPort

log = logging.getLogger(__name__)

# The name of a lane ("" for the common one), and the address.
_Key = tuple[str, HostPort]


class _Slot:
    """The state of the connection to one address: open, connecting, or failed recently."""

    def __init__(self, settings: ClientSettings) -> None:
        self.connection: AsyncioConnection | None = None
        self.opening: asyncio.Task[AsyncioConnection] | None = None
        self.backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        # The result of the last attempt.
        self.has_failed = False
        # No attempt before this time of the loop.
        self.not_before = 0.0


class Connections:
    """Connections by address and lane."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.metrics = ConnectionMetrics()
        self._slots: dict[_Key, _Slot] = {}
        # Connections whose SASL session has ended, with responses still to come.
        self._expiring: set[AsyncioConnection] = set()
        self._closed = False

    def ready(self, address: HostPort, lane: str = "") -> AsyncioConnection | None:
        """Return the open connection to an address, if there is one."""
        slot = self._slots.get((lane, address))
        if slot is None or slot.connection is None or slot.connection.is_closed:
            return None
        if slot.connection.is_expiring:
            self._expiring = {kept for kept in self._expiring if not kept.is_closed} | {slot.connection}
            slot.connection = None
            return None
        return slot.connection

    async def get(self, address: HostPort, lane: str = "") -> AsyncioConnection:
        """Return the connection to an address, and connect if needed; KafkaError if that fails.

        After a failure the next attempt waits, longer each time.
        """
        connection = self.ready(address, lane)
        if connection is not None:
            return connection
        if self._closed:
            raise IllegalStateError("the client is closed")
        slot = self._slots.get((lane, address))
        if slot is None:
            slot = self._slots[lane, address] = _Slot(self._settings)
        if slot.opening is None:
            slot.opening = asyncio.create_task(self._open(address, slot))
            slot.opening.add_done_callback(_take_exception)
        # Several callers may wait for one attempt. One of them giving up must not cancel it.
        return await asyncio.shield(slot.opening)

    async def _open(self, address: HostPort, slot: _Slot) -> AsyncioConnection:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(0.0, slot.not_before - loop.time()))
            slot.connection = await AsyncioConnection.open(address.host, address.port, self._settings, self.metrics)
            slot.has_failed = False
            slot.backoff.reset()
            # For a broker that accepts connections and then breaks them, over and over.
            slot.not_before = loop.time() + self._settings.reconnect_backoff_ms / 1000
            return slot.connection
        except KafkaError as error:
            # Once, not for each attempt.
            log.log(logging.DEBUG if slot.has_failed else logging.WARNING, "no connection to %s: %s", address, error)
            slot.has_failed = True
            slot.not_before = loop.time() + slot.backoff.next()
            raise
        finally:
            slot.opening = None

    def in_flight(self, address: HostPort) -> int:
        """Return how many requests are in flight on the common lane to an address."""
        connection = self.ready(address)
        return 0 if connection is None else connection.in_flight

    def is_failing(self, address: HostPort) -> bool:
        """Whether the last attempt to connect to an address failed or is still running."""
        slot = self._slots.get(("", address))
        return slot is not None and (slot.has_failed or slot.opening is not None)

    async def close(self) -> None:
        """Close all connections, and open no more."""
        self._closed = True
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            if slot.opening is not None:
                opening = slot.opening
                opening.cancel()
                with contextlib.suppress(asyncio.CancelledError, KafkaError):
                    await opening
        open_now = {slot.connection for slot in slots.values() if slot.connection is not None}
        for connection in open_now | self._expiring:
            await connection.close()


def _take_exception(opening: asyncio.Task[AsyncioConnection]) -> None:
    """Mark an error as retrieved: all callers that waited for this attempt may have given up."""
    if not opening.cancelled():
        opening.exception()
