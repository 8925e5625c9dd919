"""Apache Kafka's own broker in ZooKeeper mode, as a process that tests start, stop and kill like ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.apache_kafka import LIBS, UnavailableError, jars, java, skip_or_fail
from tests.broker_process import BrokerProcess

_LOG4J = """
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
# What makes a JVM start early and stay small.
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")


@cache
def _java_and_class_path() -> tuple[str, str]:
    return java(), os.pathsep.join(map(str, jars(LIBS)))


def kafka_command(
    main_class: str, *arguments: str, java_options: Sequence[str] = SMALL, log4j: Path | None = None
) -> list[str]:
    """Return the command line of a class of Kafka; UnavailableError if Kafka is not here.

    With a path for a `log4j` configuration, which is written, it logs to standard output.
    """
    program, class_path = _java_and_class_path()
    options = [*java_options]
    if log4j is not None:
        log4j.write_text(_LOG4J)
        options.append(f"-Dlog4j.configuration=file:{log4j}")
    return [program, *options, "-cp", class_path, main_class, *arguments]


def kafka_or_skip() -> None:
    """Skip the test, or fail it under CI, where Kafka cannot be run."""
    try:
        _java_and_class_path()
    except UnavailableError as reason:
        skip_or_fail(reason)


class KafkaProcess(BrokerProcess):
    """A broker of Kafka, with the options of ours; those that only we know are ignored by it."""

    def _program(self) -> list[str]:
        properties = self.folder / "server.properties"
        # The file must be there; everything is in the overrides.
        properties.touch()
        return kafka_command("kafka.Kafka", str(properties), log4j=self.folder / "log4j.properties")
