"""`replay`: an archive, Parquet or the files of a log to topics again: in order by partition, and not too fast.

Records are sent in steps, and after each the progress is kept. A run that is cut off repeats its last step when it goes
on: at least once. Records get new timestamps, as Spark's sinks have it; their places and times of before can go with
them in headers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.client.cli.terminal.output import say
from ottla.client.cli.terminal.signals import StopSignals
from ottla.pipeline.archives.files import Files
from ottla.pipeline.archives.manifest import Offsets
from ottla.pipeline.archives.replay_source import ReplaySource, replay_source, slices
from ottla.pipeline.errors import PipelineError, SettingsError, reason_of
from ottla.pipeline.metrics import JobMetrics
from ottla.pipeline.session import SPARK_ERRORS
from ottla.pipeline.settings import ReplaySettings
from ottla.pipeline.streaming import query_metrics
from ottla.pipeline.topics import ensure_topic, send
from ottla.pipeline.transforms.headers import places, with_headers
from ottla.pipeline.transforms.pacing import ReplayStep, advanced, steps, wait_seconds

QUERY: Final = "replay"
HEADER_PREFIX: Final = "ottla.replay."


class Progress(msgspec.Struct):
    """How far a replay is: what is read, where it goes, and the next offset of each partition."""

    source: str
    target: str | None
    offsets: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


def run(spark: SparkSession, settings: ReplaySettings) -> int:
    """Run the job to its end, or until it is told to stop."""
    kept = KeptProgress(spark, settings)
    try:
        source = replay_source(spark, settings)
        planned = _plan(source, settings, kept.progress.offsets)
        with query_metrics(spark, settings, QUERY) as metrics, StopSignals() as signals:
            return _run_steps(source, planned, settings, kept, metrics, signals)
    except SPARK_ERRORS as error:
        raise PipelineError(f"the replay failed: {reason_of(error)}{kept.advice}") from error


def _plan(source: ReplaySource, settings: ReplaySettings, offsets: Offsets) -> Iterator[ReplayStep]:
    """Return the steps that are left, a second's worth each where the rate is limited; have topics to send them to."""
    rows = min(settings.chunk_records, settings.records_per_second or settings.chunk_records)
    partitions = [
        (row["topic"], row["partition"]) for row in source.table().select("topic", "partition").distinct().collect()
    ]
    targets: dict[str, int] = {}
    for topic, partition in partitions:
        target = settings.target_topic or topic
        targets[target] = max(targets.get(target, 0), partition + 1)
    for target, count in targets.items():
        ensure_topic(settings, target, partitions=count if settings.keep_partitions else -1)
    return steps(slices(source.table(), offsets, max(1, rows // max(1, len(partitions)))), rows)


def _run_steps(
    source: ReplaySource,
    planned: Iterable[ReplayStep],
    settings: ReplaySettings,
    kept: KeptProgress,
    metrics: JobMetrics,
    signals: StopSignals,
) -> int:
    sent = 0
    for step in planned:
        begun = time.monotonic()
        _send(source.rows(step), settings)
        sent += step.rows
        kept.write(advanced(kept.progress.offsets, step))
        seconds = time.monotonic() - begun
        pause = wait_seconds(step.rows, seconds, settings.records_per_second)
        metrics.batch_done(QUERY, step.rows, seconds)
        metrics.rates(QUERY, step.rows / (seconds + pause), step.rows / seconds)
        if signals.wait(pause):
            say(f"stopped after {sent} records{kept.advice}")
            return 0
    say(f"{sent} records replayed")
    return 0


def _send(rows: DataFrame, settings: ReplaySettings) -> None:
    """Send the records of a step; those of a partition go one after the other."""
    if settings.place_headers:
        added = {**places(HEADER_PREFIX), f"{HEADER_PREFIX}timestamp": F.unix_millis("timestamp")}
        rows = rows.withColumn("headers", with_headers(added))
    # All of a partition is in one task, whose producer keeps the order.
    ordered = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    send(ordered if settings.keep_partitions else ordered.drop("partition"), settings, settings.target_topic)


class KeptProgress:
    """The file that says how far a replay is, where one is wanted."""

    def __init__(self, spark: SparkSession, settings: ReplaySettings) -> None:
        self.progress = Progress(str(settings.source), settings.target_topic)
        self._files: Files | None = None
        if settings.progress is None:
            return
        folder, _, self._name = settings.progress.rpartition("/")
        self._files = Files(spark, folder or ".")
        content = self._files.read_written(self._name)
        if content is not None:
            self._read(content, settings.progress)

    def _read(self, content: bytes, path: str) -> None:
        try:
            found = msgspec.json.decode(content, type=Progress)
        except msgspec.DecodeError as error:
            raise SettingsError(f"{path} is not the progress of a replay: {error}") from error
        if (found.source, found.target) != (self.progress.source, self.progress.target):
            raise SettingsError(f"{path} is the progress of another replay, of {found.source} to {found.target}")
        self.progress = found

    def write(self, offsets: dict[str, dict[str, int]]) -> None:
        """Keep the next offsets."""
        self.progress = Progress(self.progress.source, self.progress.target, offsets)
        if self._files is not None:
            self._files.write(self._name, msgspec.json.encode(self.progress))

    @property
    def advice(self) -> str:
        """What to do to go on."""
        return "; the same command goes on from there" if self._files is not None else ""
