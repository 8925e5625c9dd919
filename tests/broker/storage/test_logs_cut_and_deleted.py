"""Logs are cut, deleted and set aside so that no crash and no late writer confuses old files with new ones."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from structlog.typing import EventDict
from tests.broker.storage.many_logs import (
    ORDERS,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    VIEWS,
    Broker,
    append,
    os_error,
    raising,
)

from ottla.broker.storage import logs as logs_module
from ottla.broker.storage.checkpoint import RECOVERY_POINT_CHECKPOINT, read_offsets
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import close_logs
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

DELETE_DELAY_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker with one directory."""
    return Broker(tmp_path, directories=1)


@pytest.fixture
def logs(broker: Broker) -> Logs:
    """Its logs: one of three records, and an empty one."""
    logs = broker.start()
    append(logs.create(ORDERS, TOPIC_ID), 3)
    logs.create(VIEWS, TOPIC_ID)
    return logs


def names(broker: Broker) -> list[str]:
    return sorted(path.name for path in broker.paths[0].iterdir() if path.is_dir())


def test_a_deleted_partition_frees_its_name_at_once(logs: Logs, broker: Broker) -> None:
    """The directory takes another name; the partition is unknown, and a new topic may have it."""
    assert logs.delete([ORDERS]) == {}
    assert logs.find(ORDERS) is None
    doomed, views = names(broker)
    assert doomed.startswith("orders-0.")
    assert doomed.endswith("-delete")
    assert views == "views-3"

    log = logs.create(ORDERS, OTHER_TOPIC_ID)

    assert log.log_end_offset == 0
    assert append(log) == 1


def test_whoever_still_holds_a_deleted_log_cannot_touch_the_new_one(logs: Logs) -> None:
    """A late append goes to the renamed directory, a late read finds what was there."""
    old = logs.get(ORDERS)
    logs.delete([ORDERS])
    new = logs.create(ORDERS, OTHER_TOPIC_ID)

    assert append(old, 20) == 23
    piece = old.read(0, 10_000)
    assert piece is not None
    assert len(piece.read()) > 0
    old.flush()
    assert new.log_end_offset == 0
    assert sum(path.stat().st_size for path in new.directory.glob("*.log")) == 0


def test_a_slice_outlives_the_deletion(logs: Logs, broker: Broker) -> None:
    """A fetch that is being answered is answered to the end."""
    piece = logs.get(ORDERS).read(0, 10_000)
    assert piece is not None
    expected = piece.read()

    logs.delete([ORDERS])
    broker.clock.now += DELETE_DELAY_MS
    logs.remove_doomed_directories()

    assert piece.read() == expected


def test_deleted_directories_are_removed_after_the_delay(logs: Logs, broker: Broker) -> None:
    """Not a millisecond earlier."""
    logs.delete([ORDERS])
    broker.clock.now += DELETE_DELAY_MS - 1
    assert logs.remove_doomed_directories() == 0
    broker.clock.now += 1

    assert logs.remove_doomed_directories() == 1
    assert names(broker) == ["views-3"]
    assert logs.remove_doomed_directories() == 0


def test_what_a_stop_left_of_deleted_directories_goes_after_the_start(logs: Logs, broker: Broker) -> None:
    """Without the delay: nobody reads them any more."""
    logs.delete([ORDERS])
    close_logs(logs, 1)
    second = broker.start()

    assert second.remove_doomed_directories() == 1
    assert names(broker) == ["views-3"]


def test_a_directory_that_cannot_be_removed_is_left_for_the_next_start(
    logs: Logs, broker: Broker, monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict]
) -> None:
    """It is said once, and the broker goes on."""
    logs.delete([ORDERS])
    broker.clock.now += DELETE_DELAY_MS
    monkeypatch.setattr(shutil, "rmtree", raising(errno.EACCES))

    assert logs.remove_doomed_directories() == 0
    assert "deleted_directory_not_removed" in [line["event"] for line in log_lines]
    assert logs.dirs[0].is_online


def test_nothing_is_removed_in_a_lost_directory(logs: Logs, broker: Broker) -> None:
    """A disk that fails is left as it is."""
    logs.delete([ORDERS])
    logs.dirs[0].failed(os_error(errno.EIO))
    broker.clock.now += DELETE_DELAY_MS

    assert logs.remove_doomed_directories() == 0
    assert len(names(broker)) == 2


def test_deleting_what_is_not_here_does_nothing(logs: Logs) -> None:
    """The controller asks every replica."""
    assert logs.delete([TopicPartition("nothing", 0)]) == {}


def test_a_partition_in_a_lost_directory_cannot_be_deleted(logs: Logs) -> None:
    """The controller is told, and asks again when the directory is back."""
    logs.dirs[0].failed(os_error(errno.EIO))

    assert logs.delete([ORDERS])[ORDERS].code is ErrorCode.KAFKA_STORAGE_ERROR
    logs.drop_offline()
    assert logs.delete([ORDERS])[ORDERS].code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_rename_that_fails_leaves_the_partition(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the same request go all the same."""
    log = logs.get(ORDERS)
    rename = os.rename
    monkeypatch.setattr(
        os,
        "rename",
        lambda old, new: raising(errno.EACCES)() if old == log.directory else rename(old, new),
    )

    errors = logs.delete([ORDERS, VIEWS])

    assert list(errors) == [ORDERS]
    assert logs.find(ORDERS) is log
    assert logs.find(VIEWS) is None
    assert append(log) == 4


def test_a_rename_that_is_not_known_to_be_on_disk_is_an_error(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss the old name might be back."""
    monkeypatch.setattr(logs_module, "sync_directory", raising(errno.EIO))

    assert logs.delete([ORDERS])[ORDERS].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not logs.dirs[0].is_online


def test_a_broken_partition_can_be_deleted(logs: Logs, broker: Broker) -> None:
    """That is how an operator gets rid of it."""
    close_logs(logs, 1)
    log_file = broker.paths[0] / "orders-0" / f"{0:020d}.log"
    log_file.unlink()
    log_file.mkdir()
    second = broker.start()
    assert list(second.broken) == [ORDERS]

    assert second.delete([ORDERS]) == {}

    assert second.broken == {}
    assert second.create(ORDERS, TOPIC_ID).log_end_offset == 0


def test_a_partition_that_is_set_aside_stays_on_disk(logs: Logs, broker: Broker) -> None:
    """Under a name that no start opens and nothing removes."""
    assert logs.set_aside([ORDERS]) == {}
    broker.clock.now += DELETE_DELAY_MS
    assert logs.remove_doomed_directories() == 0
    close_logs(logs, 1)

    assert [log.partition for log in broker.start()] == [VIEWS]
    stray = names(broker)[0]
    assert stray.startswith("orders-0.")
    assert stray.endswith("-stray")


def test_a_cut_below_the_recovery_point_is_written_down(logs: Logs) -> None:
    """What is appended after the cut was never flushed, and a crash must make recovery look at it."""
    log, log_dir = logs.place(ORDERS)
    log.flush()
    logs.checkpoint(RECOVERY_POINT_CHECKPOINT, log_dir)
    assert read_offsets(log_dir.path / RECOVERY_POINT_CHECKPOINT)[ORDERS] == 3

    assert logs.truncate_to({ORDERS: 1}) == {}

    assert log.log_end_offset == 1
    assert read_offsets(log_dir.path / RECOVERY_POINT_CHECKPOINT)[ORDERS] == 1


def test_a_cut_above_the_recovery_point_writes_nothing(logs: Logs) -> None:
    """Most cuts are of this kind, and many come at once."""
    path = logs.dirs[0].path / RECOVERY_POINT_CHECKPOINT
    before = path.stat().st_ino

    assert logs.truncate_to({ORDERS: 2, VIEWS: 0}) == {}

    assert path.stat().st_ino == before


def test_a_cut_takes_what_is_clean_back(logs: Logs) -> None:
    """What is appended behind the cut has not been cleaned; a cleaning that did not notice does not count."""
    log = logs.get(ORDERS)
    logs.note_cleaned(log, 3, log.cuts)
    cuts = log.cuts

    logs.truncate_to({ORDERS: 1})
    logs.note_cleaned(log, 3, cuts)

    assert logs.cleaner_offset(ORDERS) == 1


def test_a_log_that_starts_anew_begins_at_the_offset(logs: Logs) -> None:
    """A follower whose leader's log begins later than its own ends."""
    assert logs.truncate_fully_and_start_at({ORDERS: 100}) == {}

    log = logs.get(ORDERS)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)


def test_a_cut_that_fails_is_told_for_its_partition(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown partitions, and those whose recovery point cannot be written down."""
    unknown = TopicPartition("nothing", 0)
    log, log_dir = logs.place(ORDERS)
    log.flush()
    logs.checkpoint(RECOVERY_POINT_CHECKPOINT, log_dir)
    monkeypatch.setattr("ottla.broker.storage.log_dir.write_offsets", raising(errno.ENOSPC))

    errors = logs.truncate_to({unknown: 0, ORDERS: 1, VIEWS: 0})

    assert {partition: error.code for partition, error in errors.items()} == {
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ORDERS: ErrorCode.KAFKA_STORAGE_ERROR,
    }
