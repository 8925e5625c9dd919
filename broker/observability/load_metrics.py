"""How busy a broker is: the idle shares of its threads, new connections, and bytes read from and written to disks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.network.network import Network
from ottla.broker.observability.growth_rate import GrowthRate

_PROCESS_IO = Path("/proc/self/io")


class LoadCollector(Collector):
    """Reads the network side of one broker and the system."""

    def __init__(self, network: Network, requests: RequestMetrics, process_io: Path = _PROCESS_IO) -> None:
        self._network = network
        self._process_io = process_io
        self._handling = GrowthRate(requests.handling_seconds)
        # The loop runs on the main thread. macOS has no such clock.
        has_clock = hasattr(time, "pthread_getcpuclockid")
        self._looping = GrowthRate(_main_thread_cpu_seconds) if has_clock else None
        self._creations: dict[str, GrowthRate] = {}

    def describe(self) -> Iterator[Metric]:
        """Return nothing: naming the metrics in advance would mean collecting them."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        if self._looping is not None:
            yield GaugeMetricFamily(
                "kafka_network_socketserver_networkprocessoravgidle_percent",
                "Share of time (0 to 1) in which the network loop is idle",
                max(0.0, 1 - self._looping()),
            )
        yield GaugeMetricFamily(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "Share of time (0 to 1) in which a worker is idle",
            max(0.0, 1 - self._handling() / max(1, self._network.workers.count)),
        )
        yield self._connection_creations()
        for kind in ("read", "write"):
            value = self._disk_bytes(kind)
            if value is not None:
                name = f"kafka_server_kafkaserver_linux_disk_{kind}_bytes"
                yield GaugeMetricFamily(name, f"Bytes of disk {kind}s", value)

    def _connection_creations(self) -> Metric:
        family = GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_creation_rate",
            "New connections per second",
            labels=["listener"],
        )
        accepted = self._network.counts.accepted
        for listener in list(accepted):
            if listener not in self._creations:
                self._creations[listener] = GrowthRate(lambda listener=listener: accepted[listener])  # type: ignore[misc]
            family.add_metric([listener], self._creations[listener]())
        return family

    def _disk_bytes(self, kind: str) -> int | None:
        """Return what the operating system has counted; None if it does not say."""
        try:
            lines = self._process_io.read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{kind}_bytes:")), None)


def _main_thread_cpu_seconds() -> float:
    ident = threading.main_thread().ident
    assert ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(ident))
