"""The background work does its steps for every log, whatever happens to one of them."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from structlog.typing import EventDict
from tests.broker.storage.many_logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    VIEWS,
    Broker,
    FakeSpace,
    append,
    os_error,
    raising,
)

from ottla.broker.storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.maintenance import maintenance as maintenance_module
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.maintenance.maintenance import Maintenance
from ottla.broker.storage.maintenance.retention import delete_old_segments
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

WEEK_MS = 7 * 24 * 3600 * 1000
DELETE_DELAY_MS = 60_000
WAIT_SECONDS = 30


class Setup:
    """Two logs in two directories, and the work on them; the threads are not started."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clock = broker.clock
        self.logs = broker.start()
        self.orders = self.logs.create(ORDERS, TOPIC_ID)
        self.views = self.logs.create(VIEWS, TOPIC_ID)
        self.group_commit = GroupCommit(self.logs.dirs, linger=lambda: None)
        self.lost: list[tuple[LogDir, list[TopicPartition]]] = []
        self.loop_ms = 0
        self.space_returned: list[int] = []
        self.maintenance = Maintenance(
            self.logs,
            self.group_commit,
            lambda log_dir, partitions: self.lost.append((log_dir, partitions)),
            lambda: self.loop_ms,
            on_space=lambda: self.space_returned.append(self.loop_ms),
        )

    def flush(self) -> None:
        for worker in self.group_commit.workers.values():
            worker.run_once()


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """Everything."""
    return Setup(Broker(tmp_path))


def fill(*logs: Log) -> None:
    for log in logs:
        append(log, 12)
        log.advance_high_watermark(12)


def test_retention_deletes_what_is_old_in_every_log(setup: Setup) -> None:
    """And the files go after their delay."""
    fill(setup.orders, setup.views)
    setup.clock.now += WEEK_MS + 1

    setup.maintenance.retain()

    assert (setup.orders.log_start_offset, setup.views.log_start_offset) == (12, 12)
    assert list(setup.orders.directory.glob("*.deleted"))
    setup.clock.now += DELETE_DELAY_MS
    setup.maintenance.remove_deleted()
    assert not list(setup.orders.directory.glob("*.deleted"))


def test_deleted_directories_are_removed(setup: Setup) -> None:
    """With their delay."""
    setup.logs.delete([ORDERS])
    setup.clock.now += DELETE_DELAY_MS

    setup.maintenance.remove_deleted()

    assert not list(setup.broker.paths[0].glob("orders*"))


def test_a_rolled_segment_is_flushed(setup: Setup) -> None:
    """Logs without one wait for their options."""
    append(setup.orders, 12)
    append(setup.views)

    setup.maintenance.request_due_flushes()
    setup.flush()

    assert (setup.orders.recovery_point, setup.views.recovery_point) == (12, 0)


def test_offsets_are_checkpointed(setup: Setup) -> None:
    """Each kind by its own step, in every directory."""
    fill(setup.orders)
    setup.orders.advance_log_start(4)
    setup.maintenance.request_due_flushes()
    setup.flush()
    first, second = setup.broker.paths

    setup.maintenance.checkpoint_recovery_points()
    setup.maintenance.checkpoint_log_starts()
    setup.maintenance.checkpoint_high_watermarks()

    assert read_offsets(first / RECOVERY_POINT_CHECKPOINT) == {ORDERS: 12}
    assert read_offsets(first / LOG_START_OFFSET_CHECKPOINT) == {ORDERS: 4}
    assert read_offsets(first / HIGH_WATERMARK_CHECKPOINT) == {ORDERS: 12}
    assert read_offsets(second / HIGH_WATERMARK_CHECKPOINT) == {VIEWS: 0}


def test_idle_producers_are_forgotten(setup: Setup) -> None:
    """After producer.id.expiration.ms."""
    append(setup.orders, producer_id=7, producer_epoch=0, base_sequence=0)
    expiration_ms = setup.broker.config.producer_id_expiration_ms
    setup.clock.now = START_MS + expiration_ms - 1
    setup.maintenance.expire_producers()
    assert len(setup.orders.producers) == 1
    setup.clock.now += 1

    setup.maintenance.expire_producers()

    assert len(setup.orders.producers) == 0


def test_low_space_is_noticed_and_forgiven(tmp_path: Path) -> None:
    """Producers are refused before the disk is full; retention and readers go on meanwhile."""
    broker = Broker(tmp_path)
    broker.settings["ottla.log.min.free.bytes"] = "100"
    broker.statvfs = space = FakeSpace(1000)
    setup = Setup(broker)
    fill(setup.orders)
    space.free_bytes = 10
    setup.maintenance.sample_space()
    with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*ottla.log.min.free.bytes"):
        append(setup.orders)
    assert setup.orders.read(0, 1000) is not None
    setup.clock.now += WEEK_MS + 1
    setup.maintenance.retain()
    assert setup.orders.log_start_offset == 12
    space.free_bytes = 1000

    setup.maintenance.sample_space()

    assert append(setup.orders) == 13


def test_a_low_disk_gets_the_space_of_deleted_files_at_once(tmp_path: Path) -> None:
    """The delays of deleted segments and partitions end early."""
    broker = Broker(tmp_path)
    broker.settings["ottla.log.min.free.bytes"] = "100"
    broker.statvfs = space = FakeSpace(1000)
    setup = Setup(broker)
    fill(setup.orders)
    setup.clock.now += WEEK_MS + 1
    setup.maintenance.retain()
    setup.logs.delete([VIEWS])
    setup.maintenance.remove_deleted()
    assert list(broker.paths[0].glob("orders-0/*.deleted"))
    assert list(broker.paths[1].glob("views*"))

    space.free_bytes = 99
    setup.maintenance.sample_space()
    setup.maintenance.remove_deleted()

    assert not list(broker.paths[0].glob("orders-0/*.deleted"))
    assert not list(broker.paths[1].glob("views*"))


def test_a_low_disk_hurries_retention_and_names_the_largest_topics_once(
    tmp_path: Path, log_lines: list[EventDict]
) -> None:
    """Retention runs again every ten seconds, because options may have changed; who waits for space is woken."""
    broker = Broker(tmp_path, directories=1)
    broker.settings["ottla.log.min.free.bytes"] = "100"
    broker.statvfs = space = FakeSpace(1000)
    setup = Setup(broker)
    fill(setup.orders)
    append(setup.views)
    (retention,) = [loop for loop in setup.maintenance.loops if any(task.name == "retain" for task in loop.tasks)]
    hurried = []
    space.free_bytes = 99
    for second in range(21):
        setup.loop_ms = second * 1000
        setup.maintenance.sample_space()
        if retention.wake.is_set():
            retention.wake.clear()
            hurried.append(second)
    space.free_bytes = 1000
    setup.maintenance.sample_space()

    assert hurried == [0, 10, 20]
    assert setup.space_returned == [20_000]
    (named,) = [line for line in log_lines if line["event"] == "topics_to_trim"]
    assert [text.partition(":")[0] for text in named["largest"]] == ["orders", "views"]
    assert named["largest"][0].endswith(" bytes (retention.ms=604800000)")


def test_a_disk_that_is_full_at_the_start_has_its_topics_named(tmp_path: Path, log_lines: list[EventDict]) -> None:
    """The broker starts, and says what to trim."""
    broker = Broker(tmp_path, directories=1)
    broker.settings["ottla.log.min.free.bytes"] = "100"
    broker.statvfs = FakeSpace(0)
    setup = Setup(broker)

    setup.maintenance.sample_space()

    assert [line["event"] for line in log_lines if "topics" in line["event"]] == ["topics_to_trim"]


def failures(lines: list[EventDict]) -> list[EventDict]:
    """The lines about steps that failed."""
    return [line for line in lines if line["event"] == "maintenance_step_failed"]


def test_a_step_that_fails_for_one_log_is_done_for_the_others(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict]
) -> None:
    """It is counted each time and logged once, until it has worked again."""
    fill(setup.orders, setup.views)
    setup.clock.now += WEEK_MS + 1

    def failing(log: Log) -> object:
        if log is setup.orders:
            raise RuntimeError("a bug")
        return delete_old_segments(log)

    with monkeypatch.context() as patch:
        patch.setattr(maintenance_module, "delete_old_segments", failing)
        setup.maintenance.retain()
        setup.maintenance.retain()

        assert setup.views.log_start_offset == 12
        assert setup.maintenance.failures == {"retention": 2}
        assert [line["step"] for line in failures(log_lines)] == ["retention"]
    setup.maintenance.retain()
    assert setup.orders.log_start_offset == 12
    monkeypatch.setattr(maintenance_module, "delete_old_segments", failing)
    setup.maintenance.retain()
    assert [line["step"] for line in failures(log_lines)] == ["retention"] * 2


def test_a_disk_that_fails_in_the_background_is_lost_and_told(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps pass it over from then on."""
    monkeypatch.setattr(
        maintenance_module,
        "delete_old_segments",
        lambda log: raising(errno.EIO)() if log is setup.orders else delete_old_segments(log),
    )
    fill(setup.orders, setup.views)
    setup.clock.now += WEEK_MS + 1

    setup.maintenance.retain()
    setup.maintenance.retain()
    setup.maintenance.tell_of_lost_directories()
    setup.maintenance.tell_of_lost_directories()

    assert setup.lost == [(setup.logs.dirs[0], [ORDERS])]
    assert setup.maintenance.failures == {"retention": 1}
    assert setup.views.log_start_offset == 12


def test_a_checkpoint_that_fails_in_one_directory_is_written_in_the_others(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no reason to forget the other."""
    first, second = setup.logs.dirs
    monkeypatch.setattr(first, "write_checkpoint", raising(errno.ENOSPC))

    setup.maintenance.checkpoint_high_watermarks()

    assert first.is_online
    assert setup.maintenance.failures == {HIGH_WATERMARK_CHECKPOINT: 1}
    assert read_offsets(second.path / HIGH_WATERMARK_CHECKPOINT) == {VIEWS: 0}


def test_a_log_that_is_deleted_during_a_step_is_no_failure(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are elsewhere, or gone."""

    def deleting(log: Log) -> object:
        if log is setup.orders:
            setup.logs.delete([ORDERS])
            raise os_error(errno.ENOENT)
        return None

    monkeypatch.setattr(maintenance_module, "delete_old_segments", deleting)
    monkeypatch.setattr(maintenance_module, "_retain", deleting)

    setup.maintenance.retain()

    assert not setup.maintenance.failures


def test_steps_run_at_the_intervals_that_the_options_say(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention first after the initial delay; high watermarks every five seconds, the others every minute."""
    due = {task.name: (task.due_ms, task.interval_ms) for loop in setup.maintenance.loops for task in loop.tasks}

    assert due == {
        "sample_space": (1000, 1000),
        "request_due_flushes": (1000, 1000),
        "checkpoint_high_watermarks": (5000, 5000),
        "checkpoint_recovery_points": (60_000, 60_000),
        "checkpoint_log_starts": (60_000, 60_000),
        "tell_of_lost_directories": (1000, 1000),
        "remove_deleted": (1000, 1000),
        "retain": (30_000, 300_000),
        "expire_producers": (600_000, 600_000),
    }


def test_the_threads_tell_of_a_lost_directory_at_once(tmp_path: Path) -> None:
    """Nobody waits for the next look; a stop ends them."""
    broker = Broker(tmp_path)
    logs = broker.start()
    logs.create(ORDERS, TOPIC_ID)
    told = threading.Event()
    lost: list[list[TopicPartition]] = []

    def on_offline(log_dir: LogDir, partitions: list[TopicPartition]) -> None:
        lost.append(partitions)
        told.set()

    maintenance = Maintenance(logs, GroupCommit(logs.dirs), on_offline, lambda: 0)
    maintenance.start()
    logs.dirs[0].failed(os_error(errno.EIO))

    assert told.wait(WAIT_SECONDS)
    maintenance.stop()
    assert lost == [[ORDERS]]
    assert not any(thread.name.startswith("log-") for thread in threading.enumerate())
