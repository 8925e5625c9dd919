"""What queries do, for Prometheus: rates, durations and lag, as Spark reports them after each batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.pipeline.errors import SettingsError

_LABELS: Final = ("job", "query")
_BATCH_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class JobMetrics:
    """The metrics of one job, and the port that they are served at."""

    def __init__(self, job: str) -> None:
        self.registry = CollectorRegistry()
        self._job = job
        self._input_rate = self._gauge("input_rows_per_second", "Rows that came in, in the last batch.", _LABELS)
        self._rate = self._gauge("processed_rows_per_second", "Rows that were worked on, in the last batch.", _LABELS)
        self._lag = self._gauge(
            "lag_records", "Records of a partition that no batch has read yet.", (*_LABELS, "topic", "partition")
        )
        self._seconds = Histogram(
            "ottla_pipeline_batch_duration_seconds",
            "How long batches took.",
            _LABELS,
            buckets=_BATCH_SECONDS,
            registry=self.registry,
        )
        self._batches = Counter(
            "ottla_pipeline_batches", "Batches that were finished.", _LABELS, registry=self.registry
        )
        self._rows = Counter("ottla_pipeline_rows", "Rows of these batches.", _LABELS, registry=self.registry)
        self._active = self._gauge("query_active", "Whether the query runs.", _LABELS)

    def _gauge(self, name: str, description: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(f"ottla_pipeline_{name}", description, labels, registry=self.registry)

    @contextmanager
    def served(self, host: str, port: int) -> Iterator[str]:
        """Serve the metrics over HTTP, and give the address; SettingsError where it is taken."""
        try:
            server, thread = start_http_server(port, host, registry=self.registry)
        except OSError as error:
            raise SettingsError(f"cannot serve metrics at {host}:{port}: {error.strerror}") from error
        try:
            yield f"http://{host}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def query_runs(self, query: str, active: bool) -> None:
        """Tell that a query has started or ended."""
        self._active.labels(self._job, query).set(active)

    def batch_done(self, query: str, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._seconds.labels(self._job, query).observe(seconds)
        self._batches.labels(self._job, query).inc()
        self._rows.labels(self._job, query).inc(rows)

    def rates(self, query: str, input_rate: float, processed_rate: float) -> None:
        """Set what came in and what was worked on, a second."""
        self._input_rate.labels(self._job, query).set(input_rate)
        self._rate.labels(self._job, query).set(processed_rate)

    def lag(self, query: str, lags: Mapping[tuple[str, str], int]) -> None:
        """Set how far behind the query is, by topic and partition."""
        for (topic, partition), records in lags.items():
            self._lag.labels(self._job, query, topic, partition).set(records)


class MetricsListener(StreamingQueryListener):
    """Has Spark report to the metrics. Spark calls it on a thread of its own, one call at a time."""

    def __init__(self, metrics: JobMetrics) -> None:
        self._metrics = metrics
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Know the query by its name."""
        name = event.name or str(event.id)
        self._names[str(event.id)] = name
        self._metrics.query_runs(name, True)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Count the batch, unless there was none to count."""
        progress = json.loads(event.progress.json)
        query = progress.get("name") or progress["id"]
        self._metrics.rates(
            query, _number(progress.get("inputRowsPerSecond")), _number(progress.get("processedRowsPerSecond"))
        )
        durations = progress.get("durationMs", {})
        # Without the step that runs the batch, Spark only says that it is idle.
        if "addBatch" in durations:
            rows = int(_number(progress.get("numInputRows")))
            self._metrics.batch_done(query, rows, _number(durations.get("triggerExecution")) / 1000)
        for source in progress.get("sources", ()):
            self._metrics.lag(query, dict(lags(source.get("latestOffset"), source.get("endOffset"))))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Tell that the query ended."""
        self._metrics.query_runs(self._names.get(str(event.id), str(event.id)), False)


def lags(latest: Any, end: Any) -> Iterator[tuple[tuple[str, str], int]]:
    """Return how far the end of the last batch is from the end of each partition, where both are known."""
    newest, read = _offsets(latest), _offsets(end)
    for topic, partitions in newest.items():
        for partition, offset in partitions.items():
            if partition in read.get(topic, {}):
                yield (topic, partition), max(0, offset - read[topic][partition])


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    """Read offsets by topic and partition, as objects or as text; nothing where they are something else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, dict):
        return {}
    found: dict[str, dict[str, int]] = {}
    for topic, partitions in value.items():
        if isinstance(partitions, dict):
            found[topic] = {str(each): offset for each, offset in partitions.items() if isinstance(offset, int)}
    return found


def _number(value: Any) -> float:
    """Return a number of a report; where nothing came in, Spark divides by zero and says NaN."""
    number = float(value or 0)
    return number if number == number and abs(number) != float("inf") else 0.0
