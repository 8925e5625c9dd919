"""What all workers of a workload share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tests.faults.access import Access
from tests.faults.checker.history import HistoryWriter

# librdkafka's defaults wait longer than a whole test lasts.
REQUEST_TIMEOUT_MS = 3_000
# Longer than any outage here: after a time-out librdkafka takes a new epoch and sends what was under way once more,
# which no broker can tell from new records.
DELIVERY_TIMEOUT_MS = 45_000
CONNECT_TIMEOUT_MS = 2_000
BACKOFF_MS_MAX = 500


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to send, where to write the history, and whether to go on."""

    bootstrap: str
    access: Access
    topic: str
    partitions: int
    history: HistoryWriter
    stopping: threading.Event = field(default_factory=threading.Event)

    def partition(self, number: int) -> str:
        """Return the name of a partition in the history."""
        return f"{self.topic}-{number}"

    @property
    def client(self) -> dict[str, object]:
        """The options of every librdkafka client."""
        return {
            "bootstrap.servers": self.bootstrap,
            **self.access.librdkafka,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "socket.connection.setup.timeout.ms": CONNECT_TIMEOUT_MS,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": BACKOFF_MS_MAX,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": BACKOFF_MS_MAX,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "log_level": 3,
        }
