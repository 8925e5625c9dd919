"""The archive job as a process: its driver and brokers are killed and restarted, and nothing is lost or doubled."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from tests.kit.guarded_process import GuardedProcess
from tests.kit.waiting import until
from tests.pipeline.conftest import MakeTopic

from ottla.client.testing.fault_cluster import FaultCluster
from ottla.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Several starts of Java, on a machine that may have other things to do.
pytestmark = pytest.mark.timeout(1800)

PARTITIONS = 3
RECORDS = 1500
TIMEOUT_S = 480
METRICS = ("input_rows_per_second", "processed_rows_per_second", "lag_records", "batches_total", "rows_total")


class ArchiveJob:
    """The job in a process of its own, started again wherever a supervisor would."""

    def __init__(self, cluster: FaultCluster, topic: str, folder: Path) -> None:
        self.archive = folder / "archive"
        self._log = folder / "job.log"
        self._command = [
            *(sys.executable, "-m", "ottla.pipeline", "archive", "--topics", topic, "--archive", str(self.archive)),
            *("--bootstrap-server", cluster.bootstrap_servers, "--master", "local[2]", "--metrics-port", "0"),
            # Small batches, one after the other; and a Java that is soon at work.
            *("--max-offsets-per-trigger", "300", "--interval-seconds", "0", "--driver-memory", "512m"),
            *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        ]
        self._process: GuardedProcess | None = None

    def start(self) -> None:
        """Start the job."""
        self._process = GuardedProcess(self._command, self._log)

    def end(self, number: signal.Signals) -> int:
        """Send the driver a signal, and return the exit code."""
        assert self._process is not None
        return self._process.end(number, TIMEOUT_S)

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Wait for something that the job brings about; it may give up meanwhile, and is started again."""

        def holds() -> bool:
            assert self._process is not None
            if what():
                return True
            if self._process.poll() is not None:
                self.end(signal.SIGKILL)
                self.start()
            return False

        until(holds, lambda: self.log, seconds=TIMEOUT_S, pause_s=0.1)

    @property
    def log(self) -> str:
        """What the job has said."""
        return self._log.read_text(errors="replace")

    def batches(self) -> int:
        """Return how many batches are in the archive."""
        return len(list(self.archive.glob("_manifests/*.json")))

    def records(self) -> int:
        """Return how many records the archive has by its last manifest: offsets have no holes here."""
        manifests = sorted(self.archive.glob("_manifests/*.json"))
        if not manifests:
            return 0
        return sum(sum(each.values()) for each in json.loads(manifests[-1].read_text())["ends"].values())

    def metrics(self) -> str:
        """Return what the job serves for Prometheus."""
        address = self.log.rpartition("metrics are served at ")[2].split()[0]
        with urlopen(address, timeout=TIMEOUT_S) as response:
            return str(response.read().decode())


@contextmanager
def producing(cluster: FaultCluster, topic: str, records: int) -> Iterator[None]:
    """Produce in the background; all is acknowledged when the block is left."""
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", linger_ms=5) as producer:
                for number in range(records):
                    value = json.dumps({"number": number}).encode()
                    producer.send(topic, value, key=b"%d" % (number % 10), partition=number % PARTITIONS)
                    if number % 100 == 0:
                        producer.flush()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert not failures


def test_a_job_shows_its_metrics_and_stops_between_batches_when_it_is_asked(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """One start of the process: it archives what is there, tells Prometheus, and ends well."""
    topic = pipeline_topic(partitions=PARTITIONS)
    with producing(pipeline_cluster, topic, RECORDS):
        pass
    job = ArchiveJob(pipeline_cluster, topic, tmp_path)
    job.start()
    job.wait_for(lambda: job.records() == RECORDS)

    shown = job.metrics()
    assert all(f"ottla_pipeline_{name}{{" in shown for name in METRICS)
    assert job.end(signal.SIGTERM) == 0, job.log


@pytest.mark.long
def test_the_archive_has_every_record_once_whatever_is_killed(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """The driver by SIGKILL in the middle, a broker by SIGKILL, another restarted; at last the job stops when asked."""
    topic = pipeline_topic(partitions=PARTITIONS)
    job = ArchiveJob(pipeline_cluster, topic, tmp_path)

    with producing(pipeline_cluster, topic, RECORDS):
        job.start()
        job.wait_for(lambda: job.batches() >= 2)
        job.end(signal.SIGKILL)
        killed_at = job.records()
    with producing(pipeline_cluster, topic, RECORDS):
        job.start()
        pipeline_cluster.kill(1)
        job.wait_for(lambda: job.records() > killed_at)
        pipeline_cluster.start(1)
        pipeline_cluster.restart(2)
        job.wait_for(lambda: job.records() > RECORDS)
    job.wait_for(lambda: job.records() == 2 * RECORDS)

    shown = job.metrics()
    assert all(f"ottla_pipeline_{name}{{" in shown for name in METRICS)
    assert job.end(signal.SIGTERM) == 0, job.log
    check_audits(spark, pipeline_cluster, job.archive, topic)


def check_audits(spark: SparkSession, cluster: FaultCluster, archive: Path, topic: str) -> None:
    """The archive is complete against the brokers and against the files of one; without a file it is not."""
    from ottla.pipeline.jobs import audit
    from ottla.pipeline.settings import AuditSettings

    against_broker = AuditSettings(archive=str(archive), bootstrap_servers=cluster.bootstrap_servers)
    assert audit.run(spark, against_broker) == 0
    against_log = AuditSettings(archive=str(archive), against="log", log_dir=str(cluster.data_dir(3)))
    report = audit.Audit(spark, against_log).report()
    assert report.is_complete
    assert [(each.topic, each.rows, each.source_rows) for each in report.partitions] == [
        (topic, 2 * RECORDS // PARTITIONS, 2 * RECORDS // PARTITIONS)
    ] * PARTITIONS

    next(archive.glob("topic=*/date=*/*.parquet")).unlink()

    report = audit.Audit(spark, against_log).report()
    assert {each.kind for each in report.findings} == {"missing-file", "gap"}
    assert audit.run(spark, against_broker) == 1
