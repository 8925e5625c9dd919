"""All logs come back after any stop; what is broken is reported and keeps no other from opening."""

from __future__ import annotations

import errno
import os
from itertools import count
from pathlib import Path

import pytest
from structlog.typing import EventDict
from tests.broker.storage.many_logs import ORDERS, TOPIC_ID, VIEWS, Broker, append, crash, os_error, raising

from ottla.broker.storage.checkpoint import CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, read_offsets
from ottla.broker.storage.directory_files import CLEAN_SHUTDOWN, read_clean_shutdown
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import CHECKPOINTS
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery import recovery, startup
from ottla.broker.storage.recovery.per_directory import for_each_in_directories
from ottla.broker.storage.recovery.startup import close_logs
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

EPOCH = 12


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker with two directories."""
    return Broker(tmp_path)


def filled(broker: Broker) -> Logs:
    """Open logs with twelve records over several segments in the first directory, one record in the second."""
    logs = broker.start()
    orders, views = logs.create(ORDERS, TOPIC_ID), logs.create(VIEWS, TOPIC_ID)
    append(orders, 12)
    append(views)
    orders.advance_high_watermark(9)
    orders.advance_log_start(2)
    logs.note_cleaned(orders, 3, 0)
    return logs


def tear(log: Log) -> None:
    """End the active file within a batch, as a crash may."""
    with open(log.active.path, "r+b") as file:
        file.truncate(log.active.size - 5)


def test_everything_comes_back_after_a_clean_stop(broker: Broker) -> None:
    """Offsets, start and high watermark of each log, in its directory."""
    close_logs(filled(broker), EPOCH)
    logs = broker.start()
    orders = logs.get(ORDERS)

    assert (orders.log_start_offset, orders.high_watermark, orders.log_end_offset) == (2, 9, 12)
    assert orders.recovery_point == 12
    assert logs.get(VIEWS).log_end_offset == 1
    assert [logs.dir_of(ORDERS), logs.dir_of(VIEWS)] == logs.dirs
    assert [log_dir.last_broker_epoch for log_dir in logs.dirs] == [EPOCH, EPOCH]
    assert logs.cleaner_offset(ORDERS) == 3
    assert append(orders) == 13


def test_after_a_clean_stop_no_log_is_looked_into(broker: Broker) -> None:
    """Ten thousand logs are opened by their names and sizes: a scan would cut this one at its first batch."""
    logs = filled(broker)
    close_logs(logs, EPOCH)
    path = logs.get(ORDERS).segments[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    assert broker.start().get(ORDERS).log_end_offset == 12


def test_a_torn_batch_is_cut_after_an_unclean_stop(broker: Broker) -> None:
    """What is whole stays, and the log takes appends."""
    logs = filled(broker)
    tear(logs.get(ORDERS))
    crash(logs)

    log = broker.start().get(ORDERS)

    assert log.log_end_offset == 11
    assert append(log) == 12


def test_without_the_mark_a_stop_counts_as_unclean(broker: Broker) -> None:
    """The scan finds what the mark would have promised away."""
    logs = filled(broker)
    close_logs(logs, EPOCH)
    tear(logs.get(ORDERS))
    (broker.paths[0] / CLEAN_SHUTDOWN).unlink()

    assert broker.start().get(ORDERS).log_end_offset == 11


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"0\n1\norders 0 -4\n", b"0\n2\norders 0 4\n"])
def test_a_broken_checkpoint_does_not_keep_logs_from_opening(broker: Broker, name: str, damage: bytes) -> None:
    """All records are there, and the file is whole again after the next stop."""
    close_logs(filled(broker), EPOCH)
    (broker.paths[0] / name).write_bytes(damage)

    logs = broker.start()

    assert logs.get(ORDERS).log_end_offset == 12
    close_logs(logs, EPOCH)
    read_offsets(broker.paths[0] / name)
    assert broker.start().get(ORDERS).log_end_offset == 12


def test_a_broken_recovery_point_file_makes_the_logs_be_scanned(broker: Broker) -> None:
    """Also after what claims to have been a clean stop."""
    logs = filled(broker)
    close_logs(logs, EPOCH)
    tear(logs.get(ORDERS))
    (broker.paths[0] / "recovery-point-offset-checkpoint").write_bytes(b"nonsense")

    assert broker.start().get(ORDERS).log_end_offset == 11


def test_a_second_broker_is_refused_and_changes_nothing(broker: Broker, tmp_path: Path) -> None:
    """The first directory is free, the second in use: the first keeps its mark, and is let go."""
    close_logs(filled(broker), EPOCH)
    other = Broker(tmp_path, 1)
    other.settings["log.dirs"] = str(broker.paths[1])
    running = other.start()

    with pytest.raises(StorageError, match="in use by another broker"):
        broker.start()

    assert read_clean_shutdown(broker.paths[0]) == EPOCH
    close_logs(running, EPOCH)
    assert all(log_dir.was_clean for log_dir in broker.start().dirs)


def test_a_broken_partition_is_reported_and_the_others_open(broker: Broker, log_lines: list[EventDict]) -> None:
    """It is neither handed out nor made anew, its rows stay, and no clean stop is claimed for its directory."""
    logs = filled(broker)
    whole = TopicPartition("whole", 0)
    append(logs.create(whole, TOPIC_ID))
    close_logs(logs, EPOCH)
    active = logs.get(ORDERS).active.path
    active.unlink()
    active.mkdir()

    second = broker.start()

    assert list(second.broken) == [ORDERS]
    broken = [line["partition"] for line in log_lines if line["event"] == "partition_broken"]
    assert broken == ["orders-0"]
    assert second.get(whole).log_end_offset == 1
    assert second.dir_of(ORDERS) is second.dirs[0]
    for ask in (second.get, lambda partition: second.create(partition, TOPIC_ID)):
        with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*cannot be used"):
            ask(ORDERS)
    append(second.get(whole))
    close_logs(second, EPOCH)
    assert read_offsets(broker.paths[0] / HIGH_WATERMARK_CHECKPOINT)[ORDERS] == 9
    assert read_offsets(broker.paths[0] / CLEANER_OFFSET_CHECKPOINT) == {ORDERS: 3}
    assert [read_clean_shutdown(path) for path in broker.paths] == [None, EPOCH]


def test_a_partition_in_two_directories_is_opened_from_neither(broker: Broker) -> None:
    """Nothing says which of them is right."""
    close_logs(filled(broker), EPOCH)
    (broker.paths[1] / "orders-0").mkdir()

    logs = broker.start()

    assert "data-1 and " in logs.broken[ORDERS].reason
    assert [log.partition for log in logs] == [VIEWS]


def test_a_broken_partition_is_lost_with_its_directory(broker: Broker) -> None:
    """It is then offline like the others there."""
    close_logs(filled(broker), EPOCH)
    (broker.paths[1] / "orders-0").mkdir()
    logs = broker.start()
    logs.dirs[0].failed(os_error(errno.EIO))

    logs.drop_offline()

    assert logs.broken == {}
    with pytest.raises(KafkaError, match="is offline"):
        logs.get(ORDERS)


def test_other_names_in_a_log_directory_are_left_alone(broker: Broker, log_lines: list[EventDict]) -> None:
    """A file system has its own, and what was set aside has one."""
    close_logs(filled(broker), EPOCH)
    stray = f"orders-0.{'a' * 32}-stray"
    for name in ("lost+found", stray):
        (broker.paths[0] / name).mkdir()

    logs = broker.start()

    assert len(logs) == 2
    assert (broker.paths[0] / stray).exists()
    assert any("lost+found" in line.get("path", "") for line in log_lines)


def test_a_disk_that_fails_while_logs_open_is_lost_with_what_is_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it is not tried, and the other directory opens."""
    close_logs(filled(broker), EPOCH)
    whole = recovery.open_log

    def failing(directory: Path, *args: object, **options: object) -> Log:
        if directory.is_relative_to(broker.paths[0]):
            raise os_error(errno.EIO)
        return whole(directory, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(startup, "open_log", failing)

    logs = broker.start()

    assert logs.online_dirs == [logs.dirs[1]]
    assert logs.broken == {}
    assert logs.dir_of(ORDERS) is logs.dirs[0]
    assert logs.get(VIEWS).log_end_offset == 1


def test_a_directory_that_cannot_be_listed_is_lost(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With none left, the start fails and says why for each."""
    monkeypatch.setattr(os, "scandir", raising(errno.EACCES))

    with pytest.raises(StorageError, match=r"data-1.*Permission denied.*data-2.*Permission denied"):
        broker.start()


def test_only_logs_that_changed_are_closed_with_work(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others lie on disk as the last clean stop left them; after any other stop all are closed."""
    close_logs(filled(broker), EPOCH)
    closed: list[TopicPartition] = []
    whole = recovery.close_log

    def noting(log: Log) -> None:
        closed.append(log.partition)
        whole(log)

    monkeypatch.setattr(startup, "close_log", noting)
    logs = broker.start()
    append(logs.get(VIEWS))
    close_logs(logs, EPOCH)
    assert closed == [VIEWS]

    logs = broker.start()
    assert (logs.get(ORDERS).log_end_offset, logs.get(VIEWS).log_end_offset) == (12, 2)
    logs.truncate_to({ORDERS: 11})
    append(logs.get(ORDERS))
    close_logs(logs, EPOCH)
    assert closed == [VIEWS, ORDERS]

    crash(broker.start())
    close_logs(broker.start(), EPOCH)
    assert sorted(closed[2:]) == [ORDERS, VIEWS]


def test_a_log_that_cannot_be_closed_costs_its_directory_the_mark(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict]
) -> None:
    """The others are closed, and the other directory gets its mark."""
    logs = filled(broker)
    whole = recovery.close_log

    def failing(log: Log) -> None:
        if log.partition == ORDERS:
            raise os_error(errno.ENOSPC)
        whole(log)

    monkeypatch.setattr(startup, "close_log", failing)

    close_logs(logs, EPOCH)

    assert [read_clean_shutdown(path) for path in broker.paths] == [None, EPOCH]
    assert [line["partition"] for line in log_lines if line["event"] == "log_not_closed"] == ["orders-0"]
    monkeypatch.undo()
    assert broker.start().get(ORDERS).log_end_offset == 12


def test_checkpoints_that_cannot_be_written_cost_the_mark(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the directory is let go all the same."""
    logs = filled(broker)
    with monkeypatch.context() as patch:
        patch.setattr("ottla.broker.storage.log_dir.write_offsets", raising(errno.ENOSPC))
        close_logs(logs, EPOCH)

    assert [read_clean_shutdown(path) for path in broker.paths] == [None, None]
    assert broker.start().get(ORDERS).log_end_offset == 12


def test_a_broker_that_stops_takes_no_more_appends(broker: Broker) -> None:
    """A late append would be below a mark that says that everything is on disk."""
    logs = filled(broker)
    log = logs.get(ORDERS)
    close_logs(logs, EPOCH)

    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        append(log)
    with pytest.raises(KafkaError, match="no log directory is usable"):
        logs.create(TopicPartition("late", 0), TOPIC_ID)


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_is_said_every_few_seconds_and_at_the_end(
    broker: Broker, log_lines: list[EventDict], threads: int
) -> None:
    """For each directory by itself, whatever the number of threads."""
    broker.settings["num.recovery.threads.per.data.dir"] = str(threads)
    logs = broker.start()
    for number in range(24):
        logs.create(TopicPartition("many", number), TOPIC_ID)
    crash(logs)
    seconds = count()
    log_lines.clear()

    logs = broker.start(now_seconds=lambda: float(next(seconds)))

    assert len(logs) == 24
    lines = [line for line in log_lines if line["event"] == "logs_recovered"]
    for path in broker.paths:
        mine = [line for line in lines if line["directory"] == str(path)]
        assert len(mine) > 1
        assert (mine[-1]["done"], mine[-1]["total"], mine[-1]["left"]) == ("12", "12", "0")


def test_large_numbers_of_logs_are_said_in_groups(broker: Broker, log_lines: list[EventDict]) -> None:
    """Nobody counts digits."""
    log_dir = broker.start().dirs[0]
    seconds = iter([0.0, 9.0])

    for_each_in_directories(
        lambda _: "recovered", {log_dir: range(4000)}, lambda log_dir, item: None, 1, lambda: next(seconds, 9.0)
    )

    lines = [(line["done"], line["total"], line["left"]) for line in log_lines if line["event"] == "logs_recovered"]
    assert ("1", "4,000", "3,999") in lines
    assert ("4,000", "4,000", "0") in lines


def test_a_step_that_raises_is_raised(broker: Broker) -> None:
    """A bug is not hidden in a thread."""
    log_dir = broker.start().dirs[0]

    with pytest.raises(OSError, match="Input/output"):
        for_each_in_directories(lambda _: "done", {log_dir: [1]}, raising(errno.EIO), 1)
