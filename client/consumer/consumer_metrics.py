"""What a consumer measures, under the names of Kafka's consumer."""

from __future__ import annotations

from ottla.client.consumer.assigned_partitions import AssignedPartition, AssignedPartitions
from ottla.client.net.client_metrics import Metrics
from ottla.client.net.sensor import Sensor


class ConsumerMetrics:
    """Counts fetches with the records in them, commits and rebalances."""

    def __init__(self) -> None:
        self.fetch_latency_ms = Sensor()
        self.fetch_bytes = Sensor()
        self.fetch_records = Sensor()
        self.commit_latency_ms = Sensor()
        self.rebalances = Sensor()

    def values(self, connections: dict[str, float], partitions: AssignedPartitions, idle_s: float) -> Metrics:
        """Return all numbers."""
        lags = {state.partition: lag for state in partitions if (lag := _lag(state)) is not None}
        return {
            "consumer-metrics": {**connections, "last-poll-seconds-ago": idle_s},
            "consumer-fetch-manager-metrics": {
                "fetch-total": self.fetch_latency_ms.count,
                "fetch-latency-avg": self.fetch_latency_ms.average(),
                "fetch-latency-max": self.fetch_latency_ms.highest(),
                "fetch-size-avg": self.fetch_bytes.average(),
                "fetch-size-max": self.fetch_bytes.highest(),
                "bytes-consumed-total": self.fetch_bytes.total,
                "bytes-consumed-rate": self.fetch_bytes.rate(),
                "records-consumed-total": self.fetch_records.total,
                "records-consumed-rate": self.fetch_records.rate(),
                "records-per-request-avg": self.fetch_records.average(),
                "records-lag-max": max(lags.values(), default=0),
            },
            "consumer-coordinator-metrics": {
                "assigned-partitions": len(partitions.names()),
                "commit-total": self.commit_latency_ms.count,
                "commit-latency-avg": self.commit_latency_ms.average(),
                "commit-latency-max": self.commit_latency_ms.highest(),
                "rebalance-total": self.rebalances.count,
            },
            **{f"consumer-fetch-manager-metrics.{partition}": {"records-lag": lag} for partition, lag in lags.items()},
        }


def _lag(state: AssignedPartition) -> int | None:
    """Return how many offsets of a partition are still to be read; None before the first fetch."""
    if state.position is None or state.high_watermark is None:
        return None
    return max(state.high_watermark - state.position, 0)
