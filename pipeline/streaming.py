"""Running a streaming query until it ends, or until somebody asks it to: the batch under way is finished first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.cli.terminal.output import say
from ottla.client.cli.terminal.signals import StopSignals
from ottla.pipeline.errors import PipelineError, reason_of
from ottla.pipeline.metrics import JobMetrics, MetricsListener

if TYPE_CHECKING:
    from ottla.pipeline.settings import JobSettings, StreamSettings

HandleBatch: TypeAlias = Callable[[DataFrame, int], None]

_POLL_S: Final = 0.2
_PAUSE_S_MAX: Final = 30.0
# Errors that come again, however often the query is started.
_FINAL: Final = ("DataLossError", "SourceOptionError", "ArchiveError")
# So does an error in the query itself. Spark has the same name for a commit of a sink that has failed.
_ANALYSIS: Final = "AnalysisException"
_SINK_FAILED: Final = "PYTHON_DATA_SOURCE_ERROR"


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
        self.batches = 0

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Handle a batch, as Spark's foreachBatch wants it."""
        if self._closed.is_set():
            self.waiting.set()
            self._released.wait()
            raise PipelineError("the job stops")
        self._handle(rows, batch_id)
        self.batches += 1

    def close(self) -> None:
        """Have the next batch wait."""
        self._closed.set()

    def release(self) -> None:
        """Let go of the batch that waits: it fails."""
        self._released.set()


@dataclass(frozen=True)
class Query:
    """What is to be run."""

    name: str
    rows: DataFrame
    open_handler: Callable[[], HandleBatch]
    """Called at each start: what a failed run left behind is settled there."""
    checkpoint: str
    output_mode: str = "append"

    def start(self, gate: BatchGate, settings: StreamSettings) -> StreamingQuery:
        """Start it."""
        writer = self.rows.writeStream.foreachBatch(gate).queryName(self.name).outputMode(self.output_mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(settings.interval_seconds * 1000)} milliseconds").start()


def run_query(spark: SparkSession, query: Query, settings: StreamSettings) -> None:
    """Run a query until it ends or a signal comes.

    A query that fails is started again from its checkpoint, after a while: brokers come back. PipelineError is raised
    where it has failed too often without a batch in between, or where it would always fail.
    """
    attempts = 0
    with StopSignals() as signals:
        while True:
            gate = BatchGate(query.open_handler())
            failure = _run_once(spark, query.start(gate, settings), gate, signals, settings.stop_timeout_seconds)
            if failure is None:
                return
            attempts = 0 if gate.batches else attempts + 1
            reason = reason_of(failure)
            if attempts >= settings.attempts or is_final(str(failure)):
                raise PipelineError(f"the query {query.name} failed: {reason}") from failure
            pause_s = min(_PAUSE_S_MAX, 2.0**attempts)
            say(f"the query {query.name} failed, and is started again in {pause_s:.0f} s: {reason}")
            if signals.wait(pause_s):
                return


def is_final(failure: str) -> bool:
    """Whether an error comes again, however often the query is started."""
    return any(name in failure for name in _FINAL) or (_ANALYSIS in failure and _SINK_FAILED not in failure)


def _run_once(
    spark: SparkSession, running: StreamingQuery, gate: BatchGate, signals: StopSignals, timeout_s: float
) -> StreamingQueryException | None:
    """Wait for the end of a query, or have it end when a signal comes; return why it failed, if it did."""
    while running.isActive:
        if signals.wait(_POLL_S):
            _finish_batch(spark, running, gate, signals, timeout_s)
            return None
    return running.exception()


def _finish_batch(
    spark: SparkSession, running: StreamingQuery, gate: BatchGate, signals: StopSignals, timeout_s: float
) -> None:
    """Stop a query between two batches; at once when the time is up, or at a second signal."""
    gate.close()
    deadline = time.monotonic() + timeout_s
    while running.isActive and running.status["isTriggerActive"] and not gate.waiting.is_set():
        if signals.wait(_POLL_S) or time.monotonic() > deadline:
            break
    # The batch that waits has to fail, which is no news.
    spark.sparkContext.setLogLevel("OFF")
    gate.release()
    running.stop()


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
