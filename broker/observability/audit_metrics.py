"""Metrics of the audit stream, if it goes to a topic."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.security.audit.audit_topic import AuditTopic


class AuditCollector(Collector):
    """Reads the counts of one broker."""

    def __init__(self, topic: AuditTopic | None) -> None:
        self._topic = topic

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        if self._topic is not None:
            yield CounterMetricFamily(
                "ottla_audit_events_written", "Events written to the audit topic", value=self._topic.written
            )
            yield CounterMetricFamily(
                "ottla_audit_events_dropped", "Events that could not be written in time", value=self._topic.dropped
            )
