"""Brokers of Apache Kafka start with the classes that the first of them has left."""

from __future__ import annotations

import subprocess

import pytest
from tests.kit.apache_kafka import LIBS, LIBS_4, JarSet
from tests.kit.kafka_process import kafka_command, kafka_or_skip, quick_start

SECONDS_MAX = 120


@pytest.mark.parametrize("libs", [LIBS, LIBS_4], ids=["kafka-3.9", "kafka-4.1"])
def test_java_takes_the_classes_of_a_broker_from_the_archive(libs: JarSet) -> None:
    """And not from the jars, where they would have to be checked again."""
    kafka_or_skip(libs)
    command = kafka_command("kafka.Kafka", java_options=(*quick_start(libs), "-Xlog:class+load"), libs=libs)

    loaded = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX).stdout

    (sources,) = (line for line in loaded.splitlines() if " kafka.Kafka$ source: " in line)
    assert sources.endswith("shared objects file (top)")
