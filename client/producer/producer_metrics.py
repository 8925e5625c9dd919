"""What a producer measures, under the names of Kafka's producer."""

from __future__ import annotations

from ottla.client.net.client_metrics import Metrics
from ottla.client.net.sensor import Sensor
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.producer_batch import ProducerBatch


class _TopicMetrics:
    """Records of one topic."""

    def __init__(self) -> None:
        self.records = Sensor()
        self.bytes = Sensor()
        self.errors = Sensor()
        self.retries = Sensor()

    def values(self) -> dict[str, float]:
        return {
            "record-send-total": self.records.total,
            "record-send-rate": self.records.rate(),
            "byte-total": self.bytes.total,
            "byte-rate": self.bytes.rate(),
            "record-error-total": self.errors.total,
            "record-error-rate": self.errors.rate(),
            "record-retry-total": self.retries.total,
            "record-retry-rate": self.retries.rate(),
        }


class ProducerMetrics:
    """Counts batches as they are sent, and their records with them."""

    def __init__(self) -> None:
        self._all = _TopicMetrics()
        self._topics: dict[str, _TopicMetrics] = {}
        self._batch_bytes = Sensor()
        self._batch_records = Sensor()
        self._request_records = Sensor()
        self._compression = Sensor()
        self._queue_ms = Sensor()
        self._splits = Sensor()

    def sent(self, batch: ProducerBatch, size: int, queued_ms: float) -> None:
        """Count a batch that is sent, also if it is sent again."""
        for topic in (self._all, self._topic(batch)):
            topic.records.record(batch.record_count)
            topic.bytes.record(size)
        self._batch_bytes.record(size)
        self._batch_records.record(batch.record_count)
        self._compression.record(size / batch.builder.size)
        self._queue_ms.record(queued_ms)

    def requested(self, record_count: int) -> None:
        """Count a request."""
        self._request_records.record(record_count)

    def retried(self, batch: ProducerBatch) -> None:
        """Count a batch that will be sent again."""
        for topic in (self._all, self._topic(batch)):
            topic.retries.record(batch.record_count)

    def given_up(self, batch: ProducerBatch) -> None:
        """Count a batch whose records have failed."""
        for topic in (self._all, self._topic(batch)):
            topic.errors.record(batch.record_count)

    def split(self) -> None:
        """Count a batch that was split."""
        self._splits.record()

    def values(self, connections: dict[str, float], accumulator: Accumulator) -> Metrics:
        """Return all numbers."""
        memory = accumulator.memory
        return {
            "producer-metrics": {
                **connections,
                **self._all.values(),
                "batch-size-avg": self._batch_bytes.average(),
                "batch-size-max": self._batch_bytes.highest(),
                "batch-split-total": self._splits.total,
                "records-per-batch-avg": self._batch_records.average(),
                "records-per-request-avg": self._request_records.average(),
                "compression-rate-avg": self._compression.average(),
                "record-queue-time-avg": self._queue_ms.average(),
                "record-queue-time-max": self._queue_ms.highest(),
                "buffer-total-bytes": memory.total,
                "buffer-available-bytes": memory.free,
                "waiting-threads": memory.waiting,
            },
            **{f"producer-topic-metrics.{name}": topic.values() for name, topic in self._topics.items()},
        }

    def _topic(self, batch: ProducerBatch) -> _TopicMetrics:
        name = batch.partition.topic
        known = self._topics.get(name)
        if known is None:
            known = self._topics[name] = _TopicMetrics()
        return known
