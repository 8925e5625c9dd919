"""Topics as the jobs read and write them: settings become options of the data source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.admin.results import NewTopic
from ottla.client.errors import KafkaConfigurationError, TopicAlreadyExistsError
from ottla.client.net.settings import ClientSettings
from ottla.client.sync.clients import Admin
from ottla.pipeline.errors import SettingsError
from ottla.pipeline.sources.sharding import SHARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipeline.settings import JobSettings, StreamSettings

# What a row of the sink may have besides.
SINK_COLUMNS: Final = ("key", "value", "topic", "partition", "headers")
# Tasks that write what a batch of a stream sends; a sink keeps its number for good.
STREAM_SHARDS: Final = 4
# Spark sets this for all that a batch of a query does; it is the id in the checkpoint.
_QUERY_ID: Final = "sql.streaming.queryId"


class SinkBatch(NamedTuple):
    """A batch that is written exactly once: it has the same rows under the same name and number, however often."""

    sink: str
    number: int
    shards: int
    fail_on_data_loss: bool = True


def stream_batch(rows: DataFrame, name: str, batch_id: int, settings: StreamSettings) -> SinkBatch:
    """Return the batch of a sink that a stream writes to in foreachBatch; the checkpoint makes its name unique."""
    query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    return SinkBatch(f"{name}-{query}", batch_id, STREAM_SHARDS, settings.fail_on_data_loss)


def client_options(settings: JobSettings) -> dict[str, str]:
    """Return the options of the data source that say which cluster, and how it is reached."""
    named = {f"kafka.{name}": value for name, value in settings.client.items()}
    return {"kafka.bootstrap.servers": settings.bootstrap_servers} | named


def stream_of(spark: SparkSession, settings: StreamSettings, starting_offsets: str | None = None) -> DataFrame:
    """Return the stream of what a job reads, with headers."""
    options: dict[str, Any] = {
        "startingOffsets": starting_offsets or settings.starting_offsets,
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": settings.max_offsets_per_trigger,
        "minPartitions": settings.min_partitions,
        "subscribe": ",".join(settings.topics) or None,
        "subscribePattern": settings.topic_pattern,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return spark.readStream.format(settings.connector).options(**client_options(settings)).options(**given).load()


def table_of(spark: SparkSession, settings: JobSettings, topics: Iterable[str]) -> DataFrame:
    """Return all that topics have now, with headers."""
    options: Mapping[str, str] = {
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "includeHeaders": "true",
    }
    return spark.read.format(settings.connector).options(**client_options(settings)).options(**options).load()


def send(rows: DataFrame, settings: JobSettings, topic: str | None = None, batch: SinkBatch | None = None) -> None:
    """Write rows to a topic, or each to that in its column `topic`.

    At least once; with a batch, exactly once, if `sharded(...)` has divided the rows into as many shards as it has.
    """
    columns: list[str] = [name for name in SINK_COLUMNS if name in rows.columns and not (topic and name == "topic")]
    if batch is not None:
        columns.append(SHARD)
    writer = rows.select(*columns).write.format(settings.connector).options(**client_options(settings))
    if batch is not None:
        writer = writer.options(exactlyOnce="true", sinkName=batch.sink, batchId=batch.number, shards=batch.shards)
        writer = writer.option("failOnDataLoss", batch.fail_on_data_loss)
    if "headers" in columns:
        writer = writer.option("includeHeaders", "true")
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.mode("append").save()


def check_cluster(settings: JobSettings) -> None:
    """Raise NoBrokersAvailable if no broker can be reached, SettingsError if an option of the client is wrong."""
    with _admin(settings):
        return


def _admin(settings: JobSettings) -> Admin:
    try:
        options = ClientSettings.kwargs_from_config(dict(settings.client))
        where = {"bootstrap_servers": settings.bootstrap_servers, "client_id": "ottla-pipeline"}
        return Admin(**where | options)
    except KafkaConfigurationError as error:
        raise SettingsError(f"an option of the client: {error.detail}") from error


def ensure_topic(
    settings: JobSettings, topic: str, configs: Mapping[str, str] | None = None, partitions: int = -1
) -> None:
    """Create a topic unless it is there, with so many partitions or as many as the brokers make.

    SettingsError where it is there with fewer.
    """
    with _admin(settings) as admin:
        try:
            admin.create_topics([NewTopic(topic, partitions, configs=dict(configs or {}))])
        except TopicAlreadyExistsError:
            (found,) = admin.describe_topics([topic])
            if len(found.partitions) < partitions:
                raise SettingsError(
                    f"the topic {topic} has {len(found.partitions)} partitions and {partitions} are needed: add some, "
                    "or let records go by their keys with --no-keep-partitions"
                ) from None
