"""Topics as streams, in and out, on a real cluster."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from tests.interop.raw import RawConnection
from tests.kit.waiting import until
from tests.pipeline.conftest import MakeTopic

from ottla.client.errors import TopicAlreadyExistsError
from ottla.client.testing.fault_cluster import FaultCluster
from ottla.protocol.api import Api
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.sync import Admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 180


def produce(cluster: FaultCluster, topic: str, numbers: range, partition: int = 0) -> None:
    """Write numbers."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(120) == 0


def stream(spark: SparkSession, cluster: FaultCluster, **options: str) -> DataFrame:
    """Return a stream of topics."""
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def run_to_end(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Read what is there into Parquet files, with a checkpoint that the next call goes on from."""
    numbers = frame.select(F.col("value").cast("string").cast("int").alias("number"), "partition", "offset")
    writer = numbers.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()
    return list(query.recentProgress)


def has_partitions(server: str, topic: str, count: int) -> bool:
    """Whether one broker knows this many partitions."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with RawConnection(server) as connection:
        return len(connection.request(Api.METADATA, 8, request).topics[0].partitions) == count


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    """Return what was read so far."""
    return sorted(row.number for row in spark.read.parquet(str(folder / "out")).collect())


def test_a_stream_goes_on_where_its_checkpoint_ends(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """In triggers of a limited size; each record once, also over a restart, and with partitions that are new."""
    topic = pipeline_topic(partitions=1)
    produce(pipeline_cluster, topic, range(100))
    limited = stream(spark, pipeline_cluster, subscribe=topic, maxOffsetsPerTrigger="40")
    progress = run_to_end(limited, tmp_path)

    assert numbers(spark, tmp_path) == list(range(100))
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [40, 40, 20]
    source = progress[-1]["sources"][0]
    assert json.loads(source["endOffset"]) == {topic: {"0": 100}}

    with Admin(bootstrap_servers=pipeline_cluster.bootstrap_servers) as admin:
        admin.create_partitions({topic: 2})
    for server in pipeline_cluster.bootstrap_servers.split(","):
        until(partial(has_partitions, server, topic, 2), "each broker has heard of the new partition")
    produce(pipeline_cluster, topic, range(100, 110))
    produce(pipeline_cluster, topic, range(110, 130), partition=1)
    run_to_end(stream(spark, pipeline_cluster, subscribe=topic), tmp_path)

    assert numbers(spark, tmp_path) == list(range(130))


def test_a_stream_runs_until_it_is_stopped(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """Records that come while it runs are read, also when their leader dies in between."""
    topic = pipeline_topic()
    produce(pipeline_cluster, topic, range(10))
    frame = stream(spark, pipeline_cluster, subscribe=topic).select(F.col("value").cast("string").cast("int"))
    query = frame.writeStream.format("memory").queryName("endless").start()
    try:
        query.processAllAvailable()
        with Admin(bootstrap_servers=pipeline_cluster.bootstrap_servers) as admin:
            leader = admin.describe_topics([topic])[0].partitions[0].leader
        assert leader is not None
        pipeline_cluster.kill(leader)
        produce(pipeline_cluster, topic, range(10, 20))
        query.processAllAvailable()
        found = sorted(row.value for row in spark.sql("select value from endless").collect())
    finally:
        query.stop()

    assert found == list(range(20))


def make_again(make: MakeTopic, topic: str) -> None:
    """Make a topic once the old one of its name is gone."""
    until(
        lambda: make(name=topic), f"{topic} is gone", seconds=DEADLINE_S, pause_s=0.1, not_yet=TopicAlreadyExistsError
    )


def test_a_topic_that_was_made_anew_is_a_loss_of_data(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """An error for a stream that was further; with failOnDataLoss=false it goes on with what comes."""
    topic = pipeline_topic()
    produce(pipeline_cluster, topic, range(50))
    run_to_end(stream(spark, pipeline_cluster, subscribe=topic), tmp_path)
    with Admin(bootstrap_servers=pipeline_cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
    make_again(pipeline_topic, topic)
    produce(pipeline_cluster, topic, range(100, 120))
    with pytest.raises(PySparkException, match=r"was read up to offset 50, and now ends at 20(.|\n)*failOnDataLoss"):
        run_to_end(stream(spark, pipeline_cluster, subscribe=topic), tmp_path)

    lenient = stream(spark, pipeline_cluster, subscribe=topic, failOnDataLoss="false")
    run_to_end(lenient, tmp_path)
    produce(pipeline_cluster, topic, range(200, 210))
    run_to_end(lenient, tmp_path)
    assert numbers(spark, tmp_path) == [*range(50), *range(200, 210)]


def read_back(cluster: FaultCluster, topic: str, partitions: int) -> list[Any]:
    """Return all messages with librdkafka."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found


def test_what_is_written_can_be_read_by_others(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """Keys, values, headers and partitions, with topics by column or by option."""
    topic = pipeline_topic(partitions=2)
    frame = spark.range(100).select(
        F.lit(topic).alias("topic"),
        F.concat(F.lit("key "), F.col("id")).alias("key"),
        F.when(F.col("id") % 10 != 0, F.col("id").cast("string").cast("binary")).alias("value"),
        (F.col("id") % 2).cast("int").alias("partition"),
        F.when(
            F.col("id") % 3 == 0,
            F.array(F.struct(F.lit("h").alias("key"), F.col("id").cast("string").cast("binary").alias("value"))),
        ).alias("headers"),
    )
    servers = pipeline_cluster.bootstrap_servers
    frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", servers).save()
    found = {message.key(): message for message in read_back(pipeline_cluster, topic, 2)}

    assert len(found) == 100
    for number in range(100):
        message = found[b"key %d" % number]
        assert message.partition() == number % 2
        assert message.value() == (b"%d" % number if number % 10 else None)
        assert message.headers() == ([("h", b"%d" % number)] if number % 3 == 0 else None)


def test_a_stream_is_written_to_a_topic(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """From one topic to another, with a restart in between."""
    source, target = pipeline_topic(), pipeline_topic(partitions=2)
    servers = pipeline_cluster.bootstrap_servers
    for numbers_written in (range(50), range(50, 80)):
        produce(pipeline_cluster, source, numbers_written)
        frame = stream(spark, pipeline_cluster, subscribe=source).select(F.col("value").cast("string"))
        writer = frame.writeStream.format("ottla").option("kafka.bootstrap.servers", servers).option("topic", target)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)

    assert sorted(int(message.value()) for message in read_back(pipeline_cluster, target, 2)) == list(range(80))


@pytest.mark.parametrize(
    ("columns", "options", "advice"),
    [
        (["'x' as key"], {"topic": "t"}, "A column 'value' is missing"),
        (["'x' as value"], {}, "set the option topic, or have a column 'topic'"),
        (["id as value"], {"topic": "t"}, "The column 'value' is bigint; it must be a string or binary"),
        (["'x' as value", "id as partition"], {"topic": "t"}, "The column 'partition' is bigint"),
        (["'x' as value", "cast(null as string) as topic"], {}, "A row has null in the column 'topic'"),
        (["'x' as value"], {"topic": "t", "kafka.acks": "maybe"}, "acks must be one of"),
    ],
)
def test_rows_that_cannot_be_written_are_told_in_plain_words(
    spark: SparkSession,
    pipeline_cluster: FaultCluster,
    columns: list[str],
    options: dict[str, str],
    advice: str,
) -> None:
    """The message says which column, and what to do."""
    writer = spark.range(1).selectExpr(*columns).write.format("ottla").mode("append").options(**options)
    with pytest.raises(PySparkException) as refused:
        writer.option("kafka.bootstrap.servers", pipeline_cluster.bootstrap_servers).save()

    assert advice in str(refused.value)
