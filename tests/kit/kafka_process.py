"""Apache Kafka's own brokers, as processes that tests start, stop and kill like ours: 3.9 on ZooKeeper, 4.x alone."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.kit.apache_kafka import (
    LIBS,
    LIBS_4,
    TEST_SECONDS_MAX,
    JarSet,
    UnavailableError,
    alone_in,
    jars,
    java,
    kafka_home,
    skip_or_fail,
)
from tests.kit.broker_process import NO_RETENTION, START_ATTEMPTS, BrokerProcess, BrokerStartError
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.broker.cluster.znodes import new_uuid
from ottla.protocol.primitives import uuid_to_text

# The lines of versions that clients meet, by what tests call them.
VERSIONS = ("kafka-3.9", "kafka-4.1")
_FORMAT_TIMEOUT_S = 90

_LOG4J = """
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_GIVES_UP = ("SessionExpiredException", "NodeExistsException")
# What makes a JVM start early and stay small.
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")


@cache
def _java_and_class_path(libs: JarSet = LIBS) -> tuple[str, str]:
    return java(), os.pathsep.join(map(str, jars(libs)))


def kafka_command(
    main_class: str,
    *arguments: str,
    java_options: Sequence[str] = SMALL,
    log4j: Path | None = None,
    libs: JarSet = LIBS,
) -> list[str]:
    """Return the command line of a class of Kafka, or of a source file; UnavailableError if Kafka is not here.

    With a path for a `log4j` configuration, which is written, it logs to standard output.
    """
    program, class_path = _java_and_class_path(libs)
    options = [*java_options]
    if log4j is not None:
        log4j.write_text(_LOG4J)
        options.append(f"-Dlog4j.configuration=file:{log4j}")
    return [program, *options, "-cp", class_path, main_class, *arguments]


def kafka_or_skip(libs: JarSet = LIBS) -> None:
    """Skip the test, or fail it under CI, where Kafka cannot be run."""
    try:
        _java_and_class_path(libs)
    except UnavailableError as reason:
        skip_or_fail(reason)


class KafkaProcess(BrokerProcess):
    """A broker of Kafka, with the options of ours; those that only we know are ignored by it."""

    def start(self) -> None:
        """Start it as all brokers, again if it gave up, as a service manager would.

        It gives up if its session has expired meanwhile: sessions of fault tests are short, and a machine with other
        work starts Kafka slowly. And if it was killed, and its earlier session has not expired yet.
        """
        for _ in range(START_ATTEMPTS - 1):
            try:
                return super().start()
            except BrokerStartError as error:
                if not any(reason in error.output for reason in _GIVES_UP):
                    raise
        return super().start()

    def _program(self) -> list[str]:
        properties = self.folder / "server.properties"
        # The file must be there; everything is in the overrides.
        properties.touch()
        log4j = self.folder / "log4j.properties"
        return kafka_command("kafka.Kafka", str(properties), java_options=quick_start(LIBS), log4j=log4j)


class Kafka4Process(BrokerProcess):
    """A broker of Kafka 4 that is its own controller; there is no ZooKeeper."""

    ready = re.compile(rb"Kafka Server started")
    libs = LIBS_4

    def start(self) -> None:
        """Give it a fresh log directory the first time; then as all brokers."""
        if not self.log_dir.exists():
            self._format()
        super().start()

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        cluster_id = uuid_to_text(new_uuid())
        properties = self.folder / "format.properties"
        properties.write_text("\n".join(self._options()))
        arguments = ("format", "--cluster-id", cluster_id, "--config", str(properties))
        command = [*self._java("kafka.tools.StorageTool"), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=_FORMAT_TIMEOUT_S)

    def _options(self) -> list[str]:
        # The port that another broker has for HTTP is free here.
        controller = f"{self.host}:{self.http_port}"
        return [
            "process.roles=broker,controller",
            f"node.id={self.broker_id}",
            f"controller.quorum.voters={self.broker_id}@{controller}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners=PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            f"advertised.listeners=PLAINTEXT://{self.bootstrap}",
            f"log.dirs={self.log_dir}",
            "num.partitions=1",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=3",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "group.consumer.min.heartbeat.interval.ms=100",
            "group.consumer.heartbeat.interval.ms=100",
            *NO_RETENTION,
            *self._overrides,
        ]

    def _command(self) -> list[str]:
        properties = self.folder / "server.properties"
        properties.write_text("\n".join(self._options()))
        return [*self._java("kafka.Kafka"), str(properties)]

    def _java(self, main_class: str) -> list[str]:
        log4j = self.folder / "log4j.properties"
        return kafka_command(main_class, java_options=self._java_options(), log4j=log4j, libs=self.libs)

    def _java_options(self) -> Sequence[str]:
        return quick_start(self.libs)


class _Rehearsal(Kafka4Process):
    """A broker of either version, alone, whose Java writes the classes that it has loaded to a file when it stops."""

    def __init__(self, libs: JarSet, folder: Path, archive: Path) -> None:
        super().__init__(folder, "")
        self.libs = libs
        self._archive = archive

    def _java_options(self) -> Sequence[str]:
        return SMALL

    def _command(self) -> list[str]:
        program, *rest = super()._command()
        return [program, f"-XX:ArchiveClassesAtExit={self._archive}", *rest]


@cache
def quick_start(libs: JarSet) -> Sequence[str]:
    """Return the options of Java for a broker: its classes come from a file, which is written once on a machine.

    With it, a start takes 1.3 to 1.5 s of a processor, and 2.0 to 2.9 s without. If it cannot be written, brokers start
    without it.
    """
    # Java ignores the file of another Java.
    version = Path(java()).resolve().stat().st_mtime_ns
    archive = kafka_home() / f"{libs.folder}.{version}.jsa"
    try:
        if not archive.exists():
            _rehearse(libs, archive)
    except (OSError, UnavailableError, subprocess.SubprocessError, BrokerStartError):
        return SMALL
    return (*SMALL, f"-XX:SharedArchiveFile={archive}")


def _rehearse(libs: JarSet, archive: Path) -> None:
    home = archive.parent
    with alone_in(home, time.monotonic() + TEST_SECONDS_MAX):
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(dir=home, prefix=".rehearsal-") as name:
            made = Path(name) / archive.name
            with _Rehearsal(libs, Path(name) / "broker", made) as broker:
                broker.stop()
            for earlier in home.glob(f"{libs.folder}.*.jsa"):
                earlier.unlink()
            made.rename(archive)


def new_kafka(
    version: str, folder: Path, zookeeper_server: ZooKeeperServer, *overrides: str
) -> KafkaProcess | Kafka4Process:
    """Return a broker of one of VERSIONS, alone in its cluster and not started; skips where it cannot be had."""
    if version == "kafka-3.9":
        kafka_or_skip()
        return KafkaProcess(folder, ZooKeeper(zookeeper_server).connect, *overrides)
    kafka_or_skip(LIBS_4)
    return Kafka4Process(folder, "", *overrides)
