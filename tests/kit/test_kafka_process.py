"""Brokers of Apache Kafka start with the classes that the first of them has left."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

import pytest
from tests.kit import kafka_process
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


class QuickRehearsal:
    """Leaves an archive without starting a broker."""

    def __init__(self, _libs: JarSet, _folder: Path, archive: Path) -> None:
        archive.touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        """Do nothing."""


def test_an_archive_replaces_only_the_earlier_one_of_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever order the two versions are started."""
    kafka_or_skip()
    monkeypatch.setenv("OTTLA_KAFKA_HOME", str(tmp_path))
    monkeypatch.setattr(kafka_process, "_Rehearsal", QuickRehearsal)
    earlier = tmp_path / "libs.1.jsa"
    earlier.touch()

    options = [quick_start.__wrapped__(libs)[-1] for libs in (LIBS_4, LIBS)]

    assert all(Path(option.partition("=")[2]).exists() for option in options)
    assert not earlier.exists()
