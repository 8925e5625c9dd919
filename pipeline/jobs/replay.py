"""`replay`: an archive, Parquet or the files of a log to topics again: in order by partition, and not too fast.

Records are sent in steps. A file keeps what a step will send before it starts, and the progress after it. A run that is
cut off repeats its last step when it goes on, and the sink finds out which parts of it are written already: exactly
once, unless that is switched off. Records get new timestamps, as Spark's sinks have it; their places and times of
before can go with them in headers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from itertools import chain
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
from ottla.pipeline.sources.sharding import sharded
from ottla.pipeline.streaming import query_metrics
from ottla.pipeline.topics import SinkBatch, ensure_topic, send
from ottla.pipeline.transforms.headers import places, with_headers
from ottla.pipeline.transforms.pacing import ReplayStep, Slice, advanced, steps, wait_seconds

QUERY: Final = "replay"
HEADER_PREFIX: Final = "ottla.replay."


class Progress(msgspec.Struct):
    """How far a replay is: what is read, where it goes, and the next offset of each partition."""

    source: str
    target: str | None
    offsets: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    # For a replay that sends exactly once: its sink, how many steps are done, and what the step under way sends.
    sink: str | None = None
    shards: int = 0
    steps: int = 0
    under_way: list[Slice] = msgspec.field(default_factory=list)


def run(spark: SparkSession, settings: ReplaySettings) -> int:
    """Run the job to its end, or until it is told to stop."""
    kept = KeptProgress(spark, settings)
    try:
        source = replay_source(spark, settings)
        unfinished = kept.unfinished(settings)
        left = _plan(source, settings, advanced(kept.progress.offsets, unfinished))
        planned = chain([unfinished] if unfinished.slices else [], left)
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
        _send(source.rows(step), settings, kept.begin(step, settings) if settings.sends_once else None)
        sent += step.rows
        kept.end(step)
        seconds = time.monotonic() - begun
        pause = wait_seconds(step.rows, seconds, settings.records_per_second)
        metrics.batch_done(QUERY, step.rows, seconds)
        metrics.rates(QUERY, step.rows / (seconds + pause), step.rows / seconds)
        if signals.wait(pause):
            say(f"stopped after {sent} records{kept.advice}")
            return 0
    say(f"{sent} records replayed")
    return 0


def _send(rows: DataFrame, settings: ReplaySettings, batch: SinkBatch | None) -> None:
    """Send the records of a step; those of a partition go one after the other."""
    if settings.place_headers:
        added = {**places(HEADER_PREFIX), f"{HEADER_PREFIX}timestamp": F.unix_millis("timestamp")}
        rows = rows.withColumn("headers", with_headers(added))
    # All of a partition is in one task, whose producer keeps the order.
    divided = (
        rows.repartition("topic", "partition") if batch is None else sharded(rows, batch.shards, "topic", "partition")
    )
    ordered = divided.sortWithinPartitions("topic", "partition", "offset")
    send(ordered if settings.keep_partitions else ordered.drop("partition"), settings, settings.target_topic, batch)


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

    def unfinished(self, settings: ReplaySettings) -> ReplayStep:
        """Return the step that was under way when the last run ended; it has no records if there was none."""
        step = ReplayStep()
        for piece in self.progress.under_way:
            if settings.topics and piece.topic not in settings.topics:
                raise SettingsError(
                    f"the last run was cut off while it sent records of {piece.topic}, too: name that in --topics"
                )
            step.add(piece)
        return step

    def begin(self, step: ReplayStep, settings: ReplaySettings) -> SinkBatch:
        """Keep what a step sends, and return the batch that it is."""
        progress = self.progress
        if progress.sink is None:
            progress.sink = f"replay-{uuid.uuid4().hex}"
            progress.shards = settings.shuffle_partitions
        progress.under_way = list(step.slices.values())
        self._write()
        return SinkBatch(progress.sink, progress.steps, progress.shards)

    def end(self, step: ReplayStep) -> None:
        """Keep the next offsets after a step."""
        self.progress.offsets = advanced(self.progress.offsets, step)
        self.progress.under_way = []
        self.progress.steps += 1
        self._write()

    def _write(self) -> None:
        if self._files is not None:
            self._files.write(self._name, msgspec.json.encode(self.progress))

    @property
    def advice(self) -> str:
        """What to do to go on."""
        return "; the same command goes on from there" if self._files is not None else ""
