"""Rows written exactly once: whatever fails and is repeated, a reader of committed records has each of them once."""

from __future__ import annotations

import json
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from tests.kit.guarded_process import GuardedProcess
from tests.kit.kafka_process import new_kafka
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer
from tests.pipeline.conftest import MakeTopic
from tests.pipeline.failing_sink import SHARDS, FailingSource, start_copy
from tests.pipeline.spark_cluster import SparkCluster

from ottla.client.admin.results import NewTopic
from ottla.client.testing.fault_cluster import FaultCluster
from ottla.pipeline.session import SPARK_ERRORS
from ottla.pipeline.sources.sharding import sharded
from ottla.sync import Admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Each task starts a producer, on a machine that may have other things to do.
pytestmark = pytest.mark.timeout(1800)

DEADLINE_S = 300
PARTITIONS = 2
END = b"end"


class Target:
    """A topic that batches are written to."""

    def __init__(self, spark: SparkSession, servers: str, topic: str) -> None:
        self.topic = topic
        self.servers = servers
        self.sink = f"sink-{uuid.uuid4().hex}"
        self._spark = spark

    def rows(self, numbers: range) -> DataFrame:
        """Return numbers as rows."""
        return self._spark.range(numbers.start, numbers.stop).select(F.col("id").cast("string").alias("value"))

    def write(self, rows: DataFrame, batch: int, **options: Any) -> None:
        """Write rows as a batch; with `failAt` it fails."""
        self.write_sharded(sharded(rows, SHARDS), batchId=batch, **options)

    def write_sharded(self, rows: DataFrame, **options: Any) -> None:
        """Write rows that have their shards."""
        own: dict[str, Any] = {"topic": self.topic, "sinkName": self.sink, "exactlyOnce": "true", "shards": SHARDS}
        writer = rows.write.format("failing" if "failAt" in options else "ottla").mode("append")
        writer.option("kafka.bootstrap.servers", self.servers).options(**own | options).save()

    def read(self) -> list[int]:
        """Return the numbers that are committed, which come before records that are written now; once in a test."""
        produce(self.servers, self.topic, [END] * PARTITIONS)
        config: Any = {"bootstrap.servers": self.servers, "group.id": "x", "isolation.level": "read_committed"}
        consumer = Consumer(config)
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(PARTITIONS)])
        found = []
        ends = 0
        while ends < PARTITIONS:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.error() is None
            if message.value() == END:
                ends += 1
            else:
                found.append(int(message.value() or b""))
        consumer.close()
        return sorted(found)


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    """Write values in turn to the partitions."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


@pytest.fixture
def target(spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic) -> Iterator[Target]:
    """A topic, and the name of a sink whose control topic is deleted afterwards."""
    spark.dataSource.register(FailingSource)
    made = Target(spark, pipeline_cluster.bootstrap_servers, pipeline_topic(partitions=PARTITIONS))
    yield made
    with Admin(bootstrap_servers=made.servers) as admin:
        admin.delete_topics([f"ottla-sink-{made.sink}"], raise_errors=False)


def test_a_batch_that_is_repeated_is_not_written_again(target: Target) -> None:
    """Nor is an older one; the next batch is written. The control topic says what was written."""
    target.write(target.rows(range(100)), 7)
    target.write(target.rows(range(100)), 7)
    target.write(target.rows(range(100, 150)), 8)
    target.write(target.rows(range(100)), 7)

    assert target.read() == list(range(150))
    control = f"ottla-sink-{target.sink}"
    consumer = Consumer({"bootstrap.servers": target.servers, "group.id": "x", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(control, shard, 0) for shard in range(SHARDS)])
    records = [consumer.poll(DEADLINE_S) for _ in range(2 * SHARDS)]
    consumer.close()
    written: dict[int, int] = {}
    for record in records:
        assert record is not None
        assert record.key() == f"{target.sink}/{record.partition()}".encode()
        value = json.loads(record.value() or b"")
        written[value["batch"]] = written.get(value["batch"], 0) + value["rows"]
    assert written == {7: 100, 8: 50}


@pytest.mark.parametrize(
    "at", ["between", *(pytest.param(at, marks=pytest.mark.long) for at in ("task", "before", "after"))]
)
def test_a_batch_that_failed_is_completed_when_it_is_repeated(target: Target, at: str) -> None:
    """A task dies after it has written, or the driver dies before, between or after the commits of the shards."""
    target.write(target.rows(range(50)), 1)
    for _ in range(2):
        with pytest.raises(PySparkException, match="dies"):
            target.write(target.rows(range(50, 150)), 2, failAt=at)
    target.write(target.rows(range(50, 150)), 2)
    target.write(target.rows(range(150, 160)), 3)

    assert target.read() == list(range(160))


@pytest.mark.long
def test_a_batch_is_completed_without_a_broker_that_had_a_part_in_it(
    target: Target, pipeline_cluster: FaultCluster
) -> None:
    """The driver dies between the commits, and a leader with it; other brokers take over its part."""
    target.write(target.rows(range(50)), 1)
    with pytest.raises(PySparkException, match="dies"):
        target.write(target.rows(range(50, 150)), 2, failAt="between")
    with Admin(bootstrap_servers=target.servers) as admin:
        leader = admin.describe_topics([f"ottla-sink-{target.sink}"])[0].partitions[0].leader
    assert leader is not None
    pipeline_cluster.kill(leader)
    target.write(target.rows(range(50, 150)), 2)

    assert target.read() == list(range(150))


def test_rows_that_end_early_are_not_committed(spark: SparkSession, target: Target) -> None:
    """When Spark fails in the middle of a task's rows, Python sees the first of them and then an ordinary end."""
    rows = sharded(target.rows(range(1000)), SHARDS)
    broken = F.when(F.col("value") == "700", F.raise_error(F.lit("an executor is lost"))).otherwise(F.col("value"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    try:
        with pytest.raises(PySparkException, match="an executor is lost"):
            target.write_sharded(rows.withColumn("value", broken), batchId=1)
        target.write_sharded(rows, batchId=1)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert target.read() == list(range(1000))


@pytest.mark.long
def test_attempts_at_the_same_time_fence_each_other(spark: SparkSession, target: Target) -> None:
    """Some of them fail; when one has got through, all rows are there once."""
    done = []

    def attempt() -> None:
        try:
            target.write(target.rows(range(300)), 1)
            done.append(True)
        except SPARK_ERRORS:
            done.append(False)

    threads = [InheritableThread(target=attempt, session=spark) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(done) == len(threads)
    target.write(target.rows(range(300)), 1)

    assert target.read() == list(range(300))


def run_copy(spark: SparkSession, target: Target, source: str, checkpoint: Path, fail_at: str | None = None) -> None:
    """Copy what is in a topic; a failure is raised."""
    query = start_copy(spark, target.servers, source, target.topic, str(checkpoint), fail_at)
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()


@pytest.mark.long
def test_a_stream_repeats_a_batch_that_its_sink_has_committed(
    spark: SparkSession, target: Target, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """The driver dies after the commit in the sink and before that in the checkpoint; or the latter is lost."""
    source = pipeline_topic(partitions=PARTITIONS)
    produce(target.servers, source, [b"%d" % number for number in range(100)])
    for at in ("between", "after"):
        with pytest.raises(PySparkException, match="the driver dies"):
            run_copy(spark, target, source, tmp_path, at)
    assert [each.name for each in sorted(tmp_path.glob("commits/[0-9]*"))] == ["0"]
    run_copy(spark, target, source, tmp_path)
    for lost in (tmp_path / "commits").glob("*2*"):
        lost.unlink()
    run_copy(spark, target, source, tmp_path)
    produce(target.servers, source, [b"%d" % number for number in range(100, 110)])
    run_copy(spark, target, source, tmp_path)

    assert target.read() == list(range(110))
    delete_control_topic(target, tmp_path)


@pytest.mark.long
def test_a_stream_goes_on_after_its_driver_was_killed_between_the_commits(
    spark: SparkSession, target: Target, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """A process of its own is killed when its sink has committed the second batch."""
    source = pipeline_topic(partitions=PARTITIONS)
    produce(target.servers, source, [b"%d" % number for number in range(100)])
    checkpoint, stopped, log = (tmp_path / name for name in ("checkpoint", "stopped", "log"))
    driver = GuardedProcess([*copy_command("local[2]", target, source, checkpoint), str(stopped)], log)
    until(stopped.exists, lambda: log.read_text(errors="replace"), seconds=DEADLINE_S, pause_s=0.1)
    driver.end(signal.SIGKILL)
    run_copy(spark, target, source, checkpoint)

    assert target.read() == list(range(100))
    delete_control_topic(target, checkpoint)


def copy_command(master: str, target: Target, source: str, checkpoint: Path) -> list[str]:
    """Return the command of a process that copies a topic."""
    program = [sys.executable, "-m", "tests.pipeline.failing_sink"]
    return [*program, master, target.servers, source, target.topic, str(checkpoint)]


def delete_control_topic(target: Target, checkpoint: Path) -> None:
    """Delete the control topic of a stream, which is named after the id in its checkpoint."""
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    with Admin(bootstrap_servers=target.servers) as admin:
        admin.delete_topics([f"ottla-sink-{query}"])


@pytest.mark.long
def test_rows_are_written_exactly_once_to_brokers_of_kafka(
    spark: SparkSession, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """The same failures of batches, and of a stream, with Apache Kafka 3.9."""
    spark.dataSource.register(FailingSource)
    with new_kafka("kafka-3.9", tmp_path / "kafka", zookeeper_server) as kafka:
        source, topic = f"source-{uuid.uuid4().hex}", f"target-{uuid.uuid4().hex}"
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, topic)])
        target = Target(spark, kafka.bootstrap, topic)
        for at in ("task", "before", "between", "after"):
            with pytest.raises(PySparkException, match="dies"):
                target.write(target.rows(range(100)), 1, failAt=at)
        target.write(target.rows(range(100)), 1)
        target.write(target.rows(range(100, 120)), 2)
        produce(target.servers, source, [b"%d" % number for number in range(120, 200)])
        for at in ("between", "after"):
            with pytest.raises(PySparkException, match="the driver dies"):
                run_copy(spark, target, source, tmp_path / "checkpoint", at)
        run_copy(spark, target, source, tmp_path / "checkpoint")

        assert target.read() == list(range(200))


@pytest.mark.long
def test_a_stream_on_a_cluster_of_spark_goes_on_after_an_executor_and_its_driver_were_killed(
    target: Target, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """A master and two workers: Spark repeats the tasks of the executor, and the next driver the batch under way."""
    source = pipeline_topic(partitions=PARTITIONS)
    records = 400
    produce(target.servers, source, [b"%d" % number for number in range(records)])
    checkpoint, log = tmp_path / "checkpoint", tmp_path / "driver.log"
    with SparkCluster(tmp_path / "cluster", workers=2) as cluster:

        def wait_for_batches(driver: GuardedProcess, count: int) -> None:
            def are_there() -> bool:
                assert driver.poll() is None, log.read_text(errors="replace")
                return len(list(checkpoint.glob("commits/[0-9]*"))) >= count

            until(are_there, lambda: log.read_text(errors="replace"), seconds=DEADLINE_S, pause_s=0.05)

        command = copy_command(cluster.master, target, source, checkpoint)
        driver = GuardedProcess(command, log, cluster.environment)
        wait_for_batches(driver, 2)
        cluster.kill_executor()
        wait_for_batches(driver, 5)
        driver.end(signal.SIGKILL)
        assert GuardedProcess(command, log, cluster.environment).wait(DEADLINE_S) == 0, log.read_text(errors="replace")

    assert target.read() == list(range(records))
    delete_control_topic(target, checkpoint)


def test_a_batch_with_other_rows_than_before_is_an_error(target: Target) -> None:
    """Unless failOnDataLoss is false, which keeps what is written."""
    target.write(target.rows(range(100)), 1)
    with pytest.raises(PySparkException, match=r"RepeatedBatchError(.|\n)*batch must have the same rows"):
        target.write(target.rows(range(200)), 1)
    target.write(target.rows(range(200)), 1, failOnDataLoss="false")

    assert target.read() == list(range(100))


def test_rows_in_the_wrong_tasks_and_other_numbers_of_shards_are_refused(target: Target) -> None:
    """The messages say what to do."""
    rows = sharded(target.rows(range(100)), SHARDS)
    with pytest.raises(PySparkException, match="has rows of other shards"):
        target.write_sharded(rows.coalesce(1), batchId=1)
    with pytest.raises(PySparkException, match="A column 'shard' of integers is missing"):
        target.write_sharded(rows.drop("shard"), batchId=1)
    target.write_sharded(rows, batchId=1)
    with pytest.raises(PySparkException, match=f"has had {SHARDS} shards so far"):
        target.write_sharded(sharded(target.rows(range(100)), 2), shards=2, batchId=2)
    with pytest.raises(PySparkException, match="transactional_id needs acks='all'"):
        target.write_sharded(rows, batchId=2, **{"kafka.acks": "1"})

    assert target.read() == list(range(100))
