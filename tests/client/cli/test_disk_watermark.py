"""A real broker on a small real disk: producers are refused before it is full, and everything else goes on."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.client.cli.conftest import Ottla
from tests.faults.disks import Disks
from tests.kit.apache_kafka import UnavailableError, skip_or_fail
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until

from ottla.client.admin.results import ConfigResource
from ottla.client.errors import KafkaError
from ottla.protocol.config_resources import ConfigResourceType
from ottla.sync import Admin, Consumer, Producer

MIB = 1024 * 1024
# Of a disk of 256 MiB; half and a quarter of it are what followers and groups have.
WATERMARK = 64 * MIB
DAY_MS = 86_400_000


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    """Small disks with a real file system."""
    try:
        made = Disks(tmp_path / "disks")
    except UnavailableError as error:
        skip_or_fail(error)
    (tmp_path / "disks").mkdir()
    with closing(made):
        yield made


def small_broker(make_broker: MakeBroker, disk: Path, *options: str) -> BrokerProcess:
    """Start a broker whose records are on a disk."""
    return make_broker(
        f"log.dirs={disk / 'data'}",
        f"ottla.log.min.free.bytes={WATERMARK}",
        "log.segment.bytes=1048576",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.num.partitions=1",
        "log.initial.task.delay.ms=0",
        *options,
    )


def free_bytes(disk: Path) -> int:
    space = os.statvfs(disk)
    return space.f_bavail * space.f_frsize


def leave_free(disk: Path, size: int) -> Path:
    """Fill a disk with something else, until only so much is free."""
    ballast = disk / "ballast"
    with ballast.open("ab") as file:
        while (left := free_bytes(disk) - size) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.tell(), min(left, 16 * MIB))
            except OSError:
                break
            file.seek(0, os.SEEK_END)
    return ballast


def producer_of(broker: BrokerProcess, **options: Any) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap, linger_ms=0, **options)


def refusal(broker: BrokerProcess, topic: str) -> str:
    """Send a record that is refused until its time is over; return what its sender is told."""
    with producer_of(broker, delivery_timeout_ms=1500, request_timeout_ms=1500) as producer:
        try:
            producer.send_and_wait(topic, b"refused")
        except KafkaError as error:
            return str(error)
    raise AssertionError("it was accepted")


def level(broker: BrokerProcess) -> str:
    """What the broker says of its disk."""
    with urllib.request.urlopen(f"{broker.http}/inside/v1/disks", timeout=30) as page:
        (directory,) = json.load(page)["directories"]
    return str(directory["space_level"])


def values(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    """Read records from the start of a topic."""
    found: list[bytes] = []
    with Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        until(
            lambda: len(found) >= count,
            lambda: f"{len(found)} of {count} records",
            meanwhile=lambda: found.extend(
                record.value or b"" for each in consumer.poll(timeout_ms=500).values() for record in each
            ),
        )
    return found


def test_producers_are_refused_before_a_disk_is_full_and_the_rest_goes_on(
    make_broker: MakeBroker, disks: Disks, ottla: Ottla, topic: str
) -> None:
    """Reading, commits and open transactions go on; a full disk is started on; deleting brings producers back."""
    disk = disks.new("disk")
    broker = small_broker(make_broker, disk)
    sent = [b"%08d" % number * 128 for number in range(200)]
    with producer_of(broker, transactional_id="t") as transactional, producer_of(broker) as producer:
        for value in sent:
            producer.send(topic, value)
        producer.flush()
        transactional.begin_transaction()
        transactional.send_and_wait(topic, b"in a transaction")
        sent.append(b"in a transaction")
        leave_free(disk, WATERMARK - 8 * MIB)
        until(lambda: level(broker) == "no_producers", "the disk is low")

        told = refusal(broker, topic)
        assert "KAFKA_STORAGE_ERROR" in told
        assert "ottla.log.min.free.bytes keeps 67,108,864" in told
        # Below the watermark, and also below half of it.
        leave_free(disk, WATERMARK // 2 - 4 * MIB)
        until(lambda: level(broker) == "no_copies", "the disk is lower")
        transactional.commit_transaction()
    with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        read: list[bytes] = []
        until(
            lambda: len(read) >= len(sent),
            "everything is read",
            meanwhile=lambda: read.extend(
                record.value or b"" for each in consumer.poll(timeout_ms=500).values() for record in each
            ),
        )
        consumer.commit()
    assert read == sent
    shown = ottla("doctor", "--format", "json", bootstrap=broker.bootstrap)
    (found,) = [each for each in shown.items if each["check"] == "disk of broker 1"]
    assert found["status"] == "BROKEN"
    assert f"Largest topics: {topic} (" in found["advice"]

    # The last quarter is for the broker alone.
    ballast = leave_free(disk, 8 * MIB)
    until(lambda: level(broker) == "no_appends", "there is nearly nothing left")
    leave_free(disk, 0)
    broker.kill()
    broker.start()
    until(lambda: "topics_to_trim" in broker.output(), "it says what to trim")
    assert f"{topic}: " in broker.output()
    assert values(broker, topic, len(sent)) == sent

    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([topic])
    ballast.unlink()
    until(lambda: level(broker) == "enough", "there is space again")
    with producer_of(broker) as producer:
        producer.send_and_wait(f"{topic}-2", b"accepted")


@pytest.mark.long
def test_the_watermark_is_changed_while_the_broker_runs(make_broker: MakeBroker, disks: Disks, topic: str) -> None:
    """An operator who needs the last space can have it at once, and a percentage counts as well."""
    disk = disks.new("disk")
    broker = small_broker(make_broker, disk)
    brokers = ConfigResource(ConfigResourceType.BROKER, "")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_configs({brokers: {"ottla.log.min.free.percent": "99"}})
        until(lambda: level(broker) == "no_producers", "99 % are to be free")
        assert "ottla.log.min.free.percent" in refusal(broker, topic)
        admin.alter_configs({brokers: {"ottla.log.min.free.percent": "1"}})
        until(lambda: level(broker) == "enough", "1 % are to be free")
    with producer_of(broker) as producer:
        producer.send_and_wait(topic, b"accepted")


def test_doctor_names_the_segment_that_retention_cannot_delete(
    make_broker: MakeBroker, ottla: Ottla, topic: str
) -> None:
    """A timestamp of next month keeps it, and what lies behind it."""
    broker = make_broker(
        "log.segment.bytes=1048576", "log.initial.task.delay.ms=0", "log.retention.check.interval.ms=100"
    )
    with producer_of(broker) as producer:
        future = int(time.time() * 1000) + 30 * DAY_MS
        for _ in range(4):
            producer.send_and_wait(topic, bytes(500_000), timestamp_ms=future)

    def stuck() -> list[dict[str, Any]]:
        shown = ottla("doctor", "--format", "json", bootstrap=broker.bootstrap).items
        return [each for each in shown if each["check"] == "retention on broker 1"]

    (found,) = until(stuck, "doctor has found it")
    assert f"{topic}-0/00000000000000000000.log holds back 97" in found["found"]
    assert "its newest record is from 20" in found["found"]
    assert found["change"] == f"ottla topic trim {topic} --offset 2 --partition 0"
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=30) as page:
        assert f'segment="00000000000000000000.log",topic="{topic}"' in page.read().decode()
    assert ottla(*found["change"].split()[1:], "--yes", bootstrap=broker.bootstrap).code == 0
    until(lambda: not broker.partition_dir(topic).joinpath("0" * 20 + ".log").exists(), "the segment is gone")
