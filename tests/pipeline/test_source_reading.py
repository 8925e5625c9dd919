"""Topics and their files as tables, on a real cluster: the same rows by every way."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from tests.kit.waiting import until
from tests.pipeline.conftest import MakeTopic

from ottla.client.testing.fault_cluster import FaultCluster
from ottla.protocol.identifiers import TopicPartition
from ottla.sync import Admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers"]


def fill(cluster: FaultCluster, topic: str, count: int, partitions: int = 1, **options: Any) -> None:
    """Write records of many shapes with librdkafka."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 20, **options})
    for number in range(count):
        producer.produce(
            topic,
            None if number % 7 == 3 else b"value %d " % number * (number % 5),
            None if number % 3 == 1 else b"key %d" % number,
            number % partitions,
            timestamp=1_767_225_600_000 + number,
            headers=[("number", b"%d" % number), ("empty", None)] if number % 4 == 2 else None,
        )
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def table(spark: SparkSession, source: str, cluster: FaultCluster, options: Mapping[str, str]) -> DataFrame:
    """Return a table of a source on the cluster."""
    reader = spark.read.format(source).option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return reader.options(**options).load()


def rows(frame: DataFrame) -> list[Any]:
    """Return all rows in the order of offsets."""
    return [tuple(row) for row in frame.select(COLUMNS).orderBy("topic", "partition", "offset").collect()]


def offsets(frame: DataFrame) -> list[int]:
    """Return the offsets that a query gives."""
    return [row.offset for row in frame.select("offset").orderBy("offset").collect()]


def leaders_dir(cluster: FaultCluster, topic: str, partition: int = 0) -> Path:
    """Return the directory of a partition on the broker that leads it."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        leader = admin.describe_topics([topic])[0].partitions[partition].leader
    assert leader is not None
    return cluster.data_dir(leader) / f"{topic}-{partition}"


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.usefixtures("stock_connector")
def test_all_sources_give_the_same_rows(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, codec: str
) -> None:
    """Ours, the files, and Spark's own connector, which reads from our brokers unmodified."""
    topic = pipeline_topic(partitions=3)
    fill(pipeline_cluster, topic, 3000, 3, **{"compression.type": codec})
    options = {"subscribe": topic, "includeHeaders": "true"}
    ours = rows(table(spark, "ottla", pipeline_cluster, options))
    paths = ",".join(str(leaders_dir(pipeline_cluster, topic, number)) for number in range(3))
    files = spark.read.format("ottla-log").options(includeHeaders="true").load(paths)

    assert len(ours) == 3000
    assert ours == rows(table(spark, "kafka", pipeline_cluster, options))
    assert ours == rows(files)


@pytest.mark.usefixtures("stock_connector")
def test_schemas_and_bounds_are_those_of_the_stock_connector(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """The same offsets for each way to bound a query."""
    topic = pipeline_topic(partitions=2)
    fill(pipeline_cluster, topic, 200, 2)
    first, second = f'{{"{topic}": {{"0": 10, "1": -2}}}}', f'{{"{topic}": {{"0": -1, "1": 77}}}}'
    times = f'{{"{topic}": {{"0": 1767225600050, "1": 1767225600120}}}}'
    cases = [
        {"subscribe": topic},
        {"assign": f'{{"{topic}": [1]}}', "includeHeaders": "true"},
        {"subscribePattern": f"{topic[:-1]}.", "startingOffsets": first, "endingOffsets": second},
        {"subscribe": topic, "startingTimestamp": "1767225600100", "endingTimestamp": "1767225600150"},
        {"subscribe": topic, "startingOffsetsByTimestamp": times, "endingOffsetsByTimestamp": times},
        {"subscribe": topic, "minPartitions": "7", "maxRecordsPerPartition": "30"},
    ]
    for options in cases:
        ours = table(spark, "ottla", pipeline_cluster, options)
        stock = table(spark, "kafka", pipeline_cluster, options)

        assert ours.schema == stock.schema
        assert rows_of(ours) == rows_of(stock)


def rows_of(frame: DataFrame) -> list[Any]:
    """Return partitions and offsets in order."""
    return sorted(tuple(row) for row in frame.select("partition", "offset").collect())


def test_ranges_are_divided_among_tasks(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """As many tasks as were asked for, and every record once."""
    topic = pipeline_topic()
    fill(pipeline_cluster, topic, 1000)
    frame = table(spark, "ottla", pipeline_cluster, {"subscribe": topic, "minPartitions": "5"})

    assert frame.rdd.getNumPartitions() == 5
    assert offsets(frame) == list(range(1000))


def test_an_empty_topic_is_an_empty_table(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """With its schema."""
    frame = table(spark, "ottla", pipeline_cluster, {"subscribe": pipeline_topic(), "includeHeaders": "true"})

    assert frame.count() == 0
    assert frame.columns[-1] == "headers"


def wait_for_tasks(spark: SparkSession) -> None:
    """Wait until tasks run."""
    tracker = spark.sparkContext.statusTracker()

    def are_running() -> bool:
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage and stage.numActiveTasks for stage in stages)

    until(are_running, "tasks run")


def test_a_broker_may_die_while_a_table_is_read(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """The tasks go on with the new leader; no record is missing, none comes twice."""
    topic = pipeline_topic(partitions=3)
    count = 60_000
    fill(pipeline_cluster, topic, count, 3)
    options = {"subscribe": topic, "kafka.max.partition.fetch.bytes": "4096", "kafka.fetch.max.bytes": "4096"}
    frame = (
        table(spark, "ottla", pipeline_cluster, options)
        .groupBy("partition")
        .agg(F.count("*").alias("rows"), F.countDistinct("offset").alias("offsets"), F.max("offset").alias("last"))
    )
    found: list[Any] = []
    reading = threading.Thread(target=lambda: found.extend(frame.collect()))
    reading.start()
    wait_for_tasks(spark)
    pipeline_cluster.kill(2)
    reading.join(timeout=240)

    assert not reading.is_alive()
    assert sorted(tuple(row) for row in found) == [(each, 20_000, 20_000, 19_999) for each in range(3)]


def test_offsets_that_were_deleted_are_a_loss_of_data(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """An error that says so, or the records that are left; files agree on where the log begins."""
    topic = pipeline_topic(replicas=1)
    fill(pipeline_cluster, topic, 100)
    with Admin(bootstrap_servers=pipeline_cluster.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 40})
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 10}}}}'}
    with pytest.raises(PySparkException, match=r"has offsets 40 to 100(.|\n)*failOnDataLoss"):
        table(spark, "ottla", pipeline_cluster, options).count()

    left = table(spark, "ottla", pipeline_cluster, {**options, "failOnDataLoss": "false"})
    assert offsets(left) == list(range(40, 100))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"subscribe": "no-such-topic"}, "There is no topic no-such-topic"),
        ({"subscribe": "a", "assign": "{}"}, "keep one of them"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "nothing would be read"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "Remove kafka.auto.offset.reset"),
    ],
)
def test_wrong_options_are_told_in_plain_words(
    spark: SparkSession, pipeline_cluster: FaultCluster, options: dict[str, str], advice: str
) -> None:
    """The message reaches the author of the job."""
    with pytest.raises(PySparkException) as refused:
        table(spark, "ottla", pipeline_cluster, options).count()

    assert advice in str(refused.value)
