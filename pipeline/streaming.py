"""Running a streaming query until it ends, or until somebody asks it to: the batch under way is finished first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.cli.signals import StopSignals
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.metrics import JobMetrics, MetricsListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.pipeline.settings import JobSettings, StreamSettings

HandleBatch: TypeAlias = Callable[[DataFrame, int], None]

_POLL_S: Final = 0.2


class BatchGate:
    """Lets batches through until it is closed; the one that comes then waits, and nothing of it is done.

    When Spark brings a batch, the one before it is committed. So a query whose batch waits here can be stopped without
    the loss of any work.
    """

    def __init__(self, handle: HandleBatch) -> None:
        self._handle = handle
        self._closed = threading.Event()
        self._released = threading.Event()
        self.waiting = threading.Event()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Handle a batch, as Spark's foreachBatch wants it."""
        if self._closed.is_set():
            self.waiting.set()
            self._released.wait()
            raise PipelineError("the job stops")
        self._handle(rows, batch_id)

    def close(self) -> None:
        """Have the next batch wait."""
        self._closed.set()

    def release(self) -> None:
        """Let go of the batch that waits: it fails."""
        self._released.set()


def run_query(
    spark: SparkSession,
    writer: DataStreamWriter,
    handle: HandleBatch,
    settings: StreamSettings,
    checkpoint: str,
    name: str,
) -> None:
    """Run a query until it ends or a signal comes; PipelineError where it fails."""
    gate = BatchGate(handle)
    writer = writer.foreachBatch(gate).queryName(name).option("checkpointLocation", checkpoint)
    if settings.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{int(settings.interval_seconds * 1000)} milliseconds")
    with StopSignals() as signals:
        query = writer.start()
        while query.isActive and not signals.wait(_POLL_S):
            pass
        if query.isActive:
            _finish_batch(spark, query, gate, signals, settings.stop_timeout_seconds)
    failure = query.exception()
    if failure is not None and not gate.waiting.is_set():
        raise PipelineError(f"the query {name} failed: {_reason(failure)}") from failure


def _finish_batch(
    spark: SparkSession, query: StreamingQuery, gate: BatchGate, signals: StopSignals, timeout_s: float
) -> None:
    """Stop a query between two batches; at once when the time is up, or at a second signal."""
    gate.close()
    deadline = time.monotonic() + timeout_s
    while query.isActive and query.status["isTriggerActive"] and not gate.waiting.is_set():
        if signals.wait(_POLL_S) or time.monotonic() > deadline:
            break
    # The batch that waits has to fail, which is no news.
    spark.sparkContext.setLogLevel("OFF")
    gate.release()
    query.stop()


def _reason(failure: StreamingQueryException) -> str:
    """Return what went wrong without the traces of two languages: the last line that names an error of ours."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or ["no reason is given"])[-1]


def start_metrics(spark: SparkSession, settings: JobSettings, job: str, say: Callable[[str], None]) -> JobMetrics:
    """Have the queries of a session counted, and served where a port is given."""
    metrics = JobMetrics(job)
    spark.streams.addListener(MetricsListener(metrics))
    if settings.metrics_port is not None:
        port = metrics.serve(settings.metrics_host, settings.metrics_port)
        say(f"metrics are served at http://{settings.metrics_host}:{port}/metrics")
    return metrics
