"""Metrics of quotas, under the names that Kafka's JMX exporter gives: what clients use, and how long they have to wait.

Only those who have a quota are counted at all; of these, as many as were seen last are shown, since names of clients
are not ours to choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.quotas.client_quotas import ClientQuotas

_ENTITIES_SHOWN_MAX: Final = 200
_LABELS: Final = ("user", "client_id")


class QuotaCollector(Collector):
    """Reads the quotas of one broker."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[Metric]:
        """Return everything as it is now."""
        for name, value, help_text, quota in (
            ("produce", "byte_rate", "Bytes produced a second, by those who have a quota", self._quotas.produce),
            ("fetch", "byte_rate", "Bytes fetched a second, by those who have a quota", self._quotas.fetch),
            ("request", "request_time", "Percentage of a thread, by those who have a quota", self._quotas.request),
            ("controllermutation", "tokens", "Partitions that may be changed at once", self._quotas.mutation),
        ):
            used = GaugeMetricFamily(f"kafka_server_{name}_{value}", help_text, labels=_LABELS)
            waits = GaugeMetricFamily(
                f"kafka_server_{name}_throttle_time", "Milliseconds that clients beyond it wait", labels=_LABELS
            )
            for row in islice(quota.rows(), _ENTITIES_SHOWN_MAX):
                used.add_metric([row.user, row.client_id], row.value)
                waits.add_metric([row.user, row.client_id], row.throttle_ms)
            yield used
            yield waits
