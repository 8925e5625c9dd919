"""Running a streaming query until it ends, or until somebody asks it to: the batch under way is finished first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.cli.output import say
from ottla.client.cli.signals import StopSignals
from ottla.pipeline.errors import PipelineError, reason_of
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
        raise PipelineError(f"the query {name} failed: {reason_of(failure)}") from failure


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


@contextmanager
def query_metrics(spark: SparkSession, settings: JobSettings, job: str) -> Iterator[JobMetrics]:
    """Have the queries of a session counted, and the figures served where a port is given."""
    metrics = JobMetrics(job)
    listener = MetricsListener(metrics)
    with ExitStack() as stack:
        if settings.metrics_port is not None:
            address = stack.enter_context(metrics.served(settings.metrics_host, settings.metrics_port))
            say(f"metrics are served at {address}")
        spark.streams.addListener(listener)
        stack.callback(spark.streams.removeListener, listener)
        yield metrics
