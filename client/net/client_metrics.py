"""What a client measures of its connections, under the names of Kafka's clients, and reports of it at intervals."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from ottla.client.net.sensor import Sensor

# Numbers by name, by the group of names that Kafka's documentation gives them.
Metrics: TypeAlias = dict[str, dict[str, float]]
StatisticsCallback: TypeAlias = Callable[[Mapping[str, Mapping[str, float]]], "Awaitable[None] | None"]

log = logging.getLogger(__name__)


class ConnectionMetrics:
    """Connections, requests and bytes of one client; each request costs a few additions."""

    def __init__(self) -> None:
        self.connections_opened = Sensor()
        self.connections_closed = Sensor()
        self.sent_bytes = Sensor()
        self.received_bytes = Sensor()
        self.latency_ms = Sensor()
        self.throttle_ms = Sensor()

    def values(self) -> dict[str, float]:
        """Return all numbers."""
        return {
            "connection-count": self.connections_opened.count - self.connections_closed.count,
            "connection-creation-total": self.connections_opened.count,
            "connection-creation-rate": self.connections_opened.rate(),
            "connection-close-total": self.connections_closed.count,
            "connection-close-rate": self.connections_closed.rate(),
            "request-total": self.sent_bytes.count,
            "request-size-avg": self.sent_bytes.average(),
            "request-size-max": self.sent_bytes.highest(),
            "response-total": self.received_bytes.count,
            "outgoing-byte-total": self.sent_bytes.total,
            "outgoing-byte-rate": self.sent_bytes.rate(),
            "incoming-byte-total": self.received_bytes.total,
            "incoming-byte-rate": self.received_bytes.rate(),
            "request-latency-avg": self.latency_ms.average(),
            "request-latency-max": self.latency_ms.highest(),
            "throttle-time-avg": self.throttle_ms.average(),
            "throttle-time-max": self.throttle_ms.highest(),
        }


async def report(metrics: Callable[[], Metrics], callback: StatisticsCallback, interval_ms: int) -> None:
    """Call back with the metrics at intervals, until cancelled; what the callback raises is logged."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            waiting = callback(metrics())
            if inspect.isawaitable(waiting):
                await waiting
        except Exception:
            log.exception("statistics_callback failed")
