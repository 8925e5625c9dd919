"""The broker itself: what it is, how much went through it, and how busy it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig
from ottla.broker.network.network import Network
from ottla.broker.observability.growth_rate import GrowthRate
from ottla.broker.replication.partitions import Partitions
from ottla.version import __version__


class BrokerPage:
    """Reads the rooms of one broker."""

    def __init__(
        self,
        broker_id: int,
        config: Callable[[], BrokerConfig],
        network: Network,
        partitions: Partitions,
        requests: RequestMetrics,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._network = network
        self._partitions = partitions
        self._requests = requests
        self._began = time.monotonic()
        self._handling = GrowthRate(requests.handling_seconds)
        has_clock = hasattr(time, "pthread_getcpuclockid")
        self._looping = GrowthRate(_main_thread_cpu_seconds) if has_clock else None

    def __call__(self, subject: str) -> dict[str, Any] | None:
        """Return the page; there is only one."""
        if subject:
            return None
        partitions = list(self._partitions)
        network = self._network
        load: dict[str, float] = {
            "workers_idle": max(0.0, 1 - self._handling() / max(1, network.workers.count)),
            "requests_queued": len(network.queue),
            "connections": sum(network.counts.by_listener.values()),
        }
        if self._looping is not None:
            load["network_idle"] = max(0.0, 1 - self._looping())
        return {
            "broker_id": self._broker_id,
            "version": f"ottla {__version__}",
            "uptime_ms": int((time.monotonic() - self._began) * 1000),
            "listeners": [str(each) for each in self._config().listeners],
            "records_in": sum(each.records_in for each in partitions),
            "bytes_in": sum(each.bytes_in for each in partitions),
            "bytes_out": sum(each.bytes_out for each in partitions),
            "requests": sum(each.requests for each in list(self._requests.by_api.values())),
            "load": load,
        }


def _main_thread_cpu_seconds() -> float:
    ident = threading.main_thread().ident
    assert ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(ident))
