"""One Spark and one cluster for all tests of the pipeline.

`spark` is a session on two threads, with both of our sources; Spark's own connector for Kafka is in it where it can be
had, and a test that needs that asks for `stock_connector`. `pipeline_cluster` has three brokers; a test may kill them,
since whatever does not run is started again after each test that asked for the cluster. `pipeline_topic` makes topics
with names of their own.
"""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.kit.apache_kafka import JAVA_VERSION_MIN, UnavailableError, java, skip_or_fail
from tests.kit.spark_kafka import spark_kafka_jars
from tests.kit.waiting import until

from ottla.client.admin.results import NewTopic
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.client.testing.fault_cluster import FaultCluster
from ottla.protocol.api import Api
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.sync import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]
METADATA_VERSION = 9
ANSWER_MS_MAX = 60_000

_SPARK_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Tests end before the work of the optimising compiler would pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.streaming.pollingDelay": "20ms",
    # A machine that runs all tests at once may be slow to start a worker.
    "spark.python.authenticate.socketTimeout": "60s",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads, for all tests of the run."""
    try:
        java()
    except UnavailableError:
        skip_or_fail(UnavailableError(f"Spark needs Java {JAVA_VERSION_MIN} or later: install a JDK"))
    from pyspark.sql import SparkSession

    from ottla.pipeline.sources import register

    builder = SparkSession.builder.master("local[2]").appName("ottla-tests")
    for name, value in _SPARK_OPTIONS.items():
        builder = builder.config(name, value)
    # The tests that need it say so when it is not there.
    with suppress(UnavailableError):
        builder = builder.config("spark.jars", ",".join(map(str, spark_kafka_jars())))
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    with _worker_python(tmp_path_factory.mktemp("python")):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def stock_connector(spark: SparkSession) -> None:
    """Spark's own `format("kafka")`; the test is skipped where it is not to be had, and fails under CI."""
    try:
        spark_kafka_jars()
    except UnavailableError as reason:
        skip_or_fail(reason)


@pytest.fixture(scope="session")
def _pipeline_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultCluster]:
    overrides = {
        "num.partitions": "3",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        # Records of tests have the times that suit them.
        "log.retention.ms": "-1",
    }
    with FaultCluster(tmp_path_factory.mktemp("pipeline-cluster"), 3, overrides) as cluster:
        yield cluster


@pytest.fixture
def pipeline_cluster(_pipeline_processes: FaultCluster) -> Iterator[FaultCluster]:
    """Three brokers, all running when the test begins."""
    yield _pipeline_processes
    _pipeline_processes.start()


@pytest.fixture
def pipeline_topic(pipeline_cluster: FaultCluster) -> Iterator[MakeTopic]:
    """Makes a topic and returns its name: `pipeline_topic(partitions=1, replicas=3, **configs)`."""
    made: list[str] = []

    def make(partitions: int = 1, replicas: int = 3, name: str | None = None, **configs: str) -> str:
        topic = name or f"topic-{uuid.uuid4().hex}"
        made.append(topic)
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(bootstrap_servers=pipeline_cluster.bootstrap_servers) as admin:
            admin.create_topics(
                [NewTopic(topic, num_partitions=partitions, replication_factor=replicas, configs=dotted)]
            )
        # Spark asks any broker, and the last one may learn of a topic a moment after it was created.
        for broker in pipeline_cluster.running():
            until(partial(_is_known, pipeline_cluster.address(broker), topic), f"broker {broker} knows {topic}")
        return topic

    yield make
    pipeline_cluster.start()
    with Admin(bootstrap_servers=pipeline_cluster.bootstrap_servers) as admin:
        admin.delete_topics(made, raise_errors=False)


def _is_known(address: str, topic: str) -> bool:
    """Return whether a broker knows the leaders of a topic."""
    host, _, port = address.rpartition(":")
    connection = BlockingConnection(
        host, int(port), client_id="pipeline", connect_timeout_ms=ANSWER_MS_MAX, request_timeout_ms=ANSWER_MS_MAX
    )
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with closing(connection):
        (known,) = connection.request(Api.METADATA, METADATA_VERSION, request).topics
    return known.error_code == 0 and all(partition.leader_id >= 0 for partition in known.partitions)


@contextmanager
def _worker_python(folder: Path) -> Iterator[None]:
    """Have Spark's workers run the Python, and the modules, that the tests run.

    Spark puts a zip of itself in front of them, which every worker compiles anew. From where it is installed it starts
    in half the time, and on a busy machine that decides whether it is there within the ten seconds that Spark waits.
    """
    program = folder / "python"
    path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    names = {"PYSPARK_PYTHON": str(program), "PYSPARK_DRIVER_PYTHON": sys.executable}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
