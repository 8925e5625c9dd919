"""`archive`: topics to Parquet, by topic and date, exactly once; bad records to a topic of their own, as well."""

from __future__ import annotations

import json
from typing import Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ottla.client.cli.terminal.output import say
from ottla.pipeline.archives.archive import CHECKPOINT, Archive, manifest_numbers, read_manifest
from ottla.pipeline.archives.files import Files
from ottla.pipeline.errors import SettingsError
from ottla.pipeline.settings import ArchiveSettings
from ottla.pipeline.sources.sharding import SHARD, sharded
from ottla.pipeline.streaming import HandleBatch, Query, query_metrics, run_query
from ottla.pipeline.topics import send, stream_batch, stream_of
from ottla.pipeline.transforms.quality import REASON, dead_letters, with_reason

QUERY: Final = "archive"


def run(spark: SparkSession, settings: ArchiveSettings) -> int:
    """Run the job until it is told to stop; with `once`, until all is archived."""
    files = Files(spark, str(settings.archive))
    schema = _schema(settings.schema)

    def open_handler() -> HandleBatch:
        archive = Archive(spark, files, starting_offsets=settings.starting_offsets, compression=settings.compression)

        def handle(rows: DataFrame, batch_id: int) -> None:
            records = _add(archive, rows, batch_id, settings, schema)
            if records is not None:
                say(f"batch {batch_id}: {records} records archived")

        return handle

    checkpoint = settings.checkpoint or files.path(CHECKPOINT)
    rows = stream_of(spark, settings, _starting_offsets(spark, files, settings, checkpoint))
    with query_metrics(spark, settings, QUERY):
        run_query(spark, Query(QUERY, rows, open_handler, checkpoint), settings)
    return 0


def _starting_offsets(spark: SparkSession, files: Files, settings: ArchiveSettings, checkpoint: str) -> str:
    """Return where the query begins: at the end of the archive, where that is there and the checkpoint is not."""
    numbers = manifest_numbers(files)
    if not numbers or settings.starting_offsets == "earliest" or Files(spark, checkpoint).names("offsets"):
        return settings.starting_offsets
    return json.dumps(read_manifest(files, numbers[-1]).ends)


def _add(
    archive: Archive, rows: DataFrame, batch_id: int, settings: ArchiveSettings, schema: StructType | None
) -> int | None:
    """Add a batch to the archive; return how many records it has, None where all of it was there already."""
    if not settings.rejects:
        manifest = archive.append(rows, batch_id)
    else:
        # Read once, and gone through for the good ones, the bad ones and the dead letters.
        judged = archive.unseen(with_reason(rows, json=settings.reject == "json", schema=schema)).persist()
        try:
            bad = judged.filter(judged[REASON].isNotNull())
            all_are_good = bad.isEmpty()
            if settings.dead_letter_topic and not all_are_good:
                # Before the batch is decided, so that none is forgotten.
                _send_letters(bad, batch_id, settings)
            manifest = archive.append(judged.drop(REASON) if all_are_good else judged, batch_id)
        finally:
            judged.unpersist()
    return sum(piece.rows for piece in manifest.pieces) if manifest else None


def _send_letters(bad: DataFrame, batch_id: int, settings: ArchiveSettings) -> None:
    """Send bad records; if the batch is repeated, not again."""
    if not settings.sends_once:
        send(dead_letters(bad), settings, settings.dead_letter_topic)
        return
    batch = stream_batch(bad, "dead-letters", batch_id, settings)
    ordered = sharded(bad, batch.shards, "topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    send(dead_letters(ordered, SHARD), settings, settings.dead_letter_topic, batch)


def _schema(text: str | None) -> StructType | None:
    """Read a schema in Spark's words; SettingsError where it is none."""
    if text is None:
        return None
    try:
        return cast(StructType, StructType.fromDDL(text))
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise SettingsError(f"--schema {text!r} is not a schema such as 'id BIGINT NOT NULL': {reason}") from error
