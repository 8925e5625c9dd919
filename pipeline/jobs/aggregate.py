"""`aggregate`: counts, sums and quantiles of JSON events by key and window, to a compacted topic and to Parquet.

A batch that comes again after a crash gives the same results: the sink of the topic knows which of them are committed,
and in Parquet they replace the folder of the batch. So the output belongs to one checkpoint.
"""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.client.cli.terminal.output import say
from ottla.pipeline.archives.archive import CHECKPOINT
from ottla.pipeline.archives.files import Files
from ottla.pipeline.errors import SettingsError, reason_of
from ottla.pipeline.settings import AggregateSettings
from ottla.pipeline.sources.sharding import sharded
from ottla.pipeline.streaming import Query, query_metrics, run_query
from ottla.pipeline.topics import ensure_topic, send, stream_batch, stream_of
from ottla.pipeline.transforms.windows import as_records, events, windowed

QUERY: Final = "aggregate"
COMPACTED: Final = {"cleanup.policy": "compact"}


def run(spark: SparkSession, settings: AggregateSettings) -> int:
    """Run the job until it is told to stop; with `once`, until all is read."""
    if settings.output_topic:
        ensure_topic(settings, settings.output_topic, COMPACTED)
    output = Files(spark, settings.output) if settings.output else None

    def handle(results: DataFrame, batch_id: int) -> None:
        results.persist()
        try:
            if not results.isEmpty():
                _write(results, batch_id, settings, output)
        finally:
            results.unpersist()

    try:
        results = aggregated(stream_of(spark, settings), settings)
    except PySparkException as error:
        raise SettingsError(f"the windows do not make sense: {reason_of(error)}") from error
    checkpoint = settings.checkpoint or (output.path(CHECKPOINT) if output else "")
    query = Query(QUERY, results, lambda: handle, checkpoint, settings.output_mode)
    with query_metrics(spark, settings, QUERY):
        run_query(spark, query, settings)
    return 0


def aggregated(rows: DataFrame, settings: AggregateSettings) -> DataFrame:
    """Return the results for records."""
    found = events(rows, key_field=settings.key_field, value_field=settings.value_field, time_field=settings.time_field)
    return windowed(
        found,
        window=settings.window,
        slide=settings.slide,
        watermark=settings.watermark,
        quantiles=settings.quantiles,
    )


def _write(results: DataFrame, batch_id: int, settings: AggregateSettings, output: Files | None) -> None:
    if output is not None:
        results.write.mode("overwrite").parquet(output.path(f"batch={batch_id:020d}"))
    if settings.output_topic:
        _send(as_records(results), batch_id, settings)
    say(f"batch {batch_id}: {results.count()} results")


def _send(records: DataFrame, batch_id: int, settings: AggregateSettings) -> None:
    """Send results; if the batch is repeated, not again."""
    if not settings.sends_once:
        send(records, settings, settings.output_topic)
        return
    batch = stream_batch(records, "windows", batch_id, settings)
    # By the key: sums and quantiles may differ in their last digits when a batch is computed again.
    send(sharded(records, batch.shards, "key"), settings, settings.output_topic, batch)
