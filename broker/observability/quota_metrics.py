"""Metrics of quotas, under the names that Kafka's JMX exporter gives: usage and throttle times of clients.

Only clients with a quota are counted. Only those that were active last are shown, up to a limit, because clients choose
their own names and could make up any number of them.
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
        """Return the current values."""
        for name, value, help_text, quota in (
            ("produce", "byte_rate", "Bytes per second produced by clients with a quota", self._quotas.produce),
            ("fetch", "byte_rate", "Bytes per second fetched by clients with a quota", self._quotas.fetch),
            ("request", "request_time", "Percentage of a thread used by clients with a quota", self._quotas.request),
            ("controllermutation", "tokens", "Partitions that may be created or deleted now", self._quotas.mutation),
        ):
            used = GaugeMetricFamily(f"kafka_server_{name}_{value}", help_text, labels=_LABELS)
            waits = GaugeMetricFamily(
                f"kafka_server_{name}_throttle_time", "Throttle time in milliseconds", labels=_LABELS
            )
            for row in islice(quota.rows(), _ENTITIES_SHOWN_MAX):
                used.add_metric([row.user, row.client_id], row.value)
                waits.add_metric([row.user, row.client_id], row.throttle_ms)
            yield used
            yield waits
