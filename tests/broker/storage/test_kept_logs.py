"""Logs of deleted topics are kept, brought back, and given up when their time is over or their space is needed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.broker.storage.many_logs import ORDERS, START_MS, TOPIC_ID, Broker, FakeSpace, append, crash, os_error

from ottla.broker.storage import logs as logs_module
from ottla.broker.storage.kept_logs import KEPT_FILE, KeptLog
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import close_logs
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

UNTIL_MS = START_MS + 1000
LATER_MS = UNTIL_MS + 10 * 60 * 1000
RENAMED = TopicPartition("old-orders", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker with one directory."""
    return Broker(tmp_path, directories=1)


def deleted(broker: Broker) -> Logs:
    """Start a broker, and delete a log of 12 records, 5 of them below its start, which is kept."""
    logs = broker.start()
    log = logs.create(ORDERS, TOPIC_ID)
    append(log, 12)
    log.advance_high_watermark(11)
    log.advance_log_start(5)
    assert logs.delete([ORDERS], kept_until_ms=UNTIL_MS) == {}
    return logs


def offsets(logs: Logs, partition: TopicPartition = ORDERS) -> tuple[int, int, int]:
    log = logs.get(partition)
    return log.log_start_offset, log.high_watermark, log.log_end_offset


def test_a_kept_log_comes_back_for_its_topic_id_alone(broker: Broker) -> None:
    """A new topic of the same name gets a log of its own; the old one may come back under another name."""
    logs = deleted(broker)
    assert offsets_of_new(logs) == (0, 0, 0)

    logs.create(RENAMED, TOPIC_ID, is_new=False)

    assert offsets(logs, RENAMED) == (5, 11, 12)
    assert not (logs.get(RENAMED).directory / KEPT_FILE).exists()
    assert len(logs.kept) == 0
    logs.remove_doomed_directories()
    assert sorted(path.name for path in broker.paths[0].iterdir() if path.is_dir()) == ["old-orders-0", "orders-0"]


def offsets_of_new(logs: Logs) -> tuple[int, int, int]:
    logs.create(ORDERS, b"n" * 16)
    return offsets(logs)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_kept_log_survives_restarts(broker: Broker, is_clean: bool) -> None:
    """Its directory looks like any deleted one, but for the file."""
    logs = deleted(broker)
    close_logs(logs, 1) if is_clean else crash(logs)
    logs = broker.start()
    logs.remove_doomed_directories()

    logs.create(ORDERS, TOPIC_ID, is_new=False)

    assert offsets(logs) == (5, 11, 12)


def test_a_crash_on_the_way_back_costs_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory has its name again, and no checkpoint knows its offsets."""
    logs = deleted(broker)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(logs_module, "open_log", dies)
        with pytest.raises(KeyboardInterrupt):
            logs.create(ORDERS, TOPIC_ID, is_new=False)
    crash(logs)
    assert (broker.paths[0] / "orders-0" / KEPT_FILE).exists()
    logs = broker.start()

    assert offsets(logs) == (5, 11, 12)
    assert not (broker.paths[0] / "orders-0" / KEPT_FILE).exists()
    close_logs(logs, 1)
    assert offsets(broker.start()) == (5, 11, 12)


def test_a_kept_log_goes_when_its_time_is_over_and_nobody_objects(broker: Broker) -> None:
    """Not before, and not if its topic is back."""
    logs = deleted(broker)
    asked: list[KeptLog] = []

    def may_give_up(kept: KeptLog) -> bool:
        asked.append(kept)
        return len(asked) > 1

    logs.kept.may_give_up = may_give_up
    broker.clock.now = LATER_MS - 1
    logs.remove_doomed_directories()
    assert not asked
    broker.clock.now = LATER_MS
    logs.remove_doomed_directories()
    assert len(logs.kept) == 1

    logs.remove_doomed_directories()

    assert len(logs.kept) == 0
    assert not list(broker.paths[0].glob("orders*"))
    assert {(each.topic_id, each.partition, each.mark.topic) for each in asked} == {(TOPIC_ID, 0, "orders")}


def test_a_low_disk_gets_the_space_of_kept_logs_at_once(broker: Broker) -> None:
    """Somebody else may need it."""
    broker.settings["ottla.log.min.free.bytes"] = "100"
    broker.statvfs = space = FakeSpace(1000)
    logs = deleted(broker)
    logs.remove_doomed_directories()
    assert len(logs.kept) == 1
    space.free_bytes = 99
    logs.dirs[0].sample_space()

    logs.remove_doomed_directories()

    assert not list(broker.paths[0].glob("orders*"))


def test_a_log_that_a_full_disk_cannot_keep_is_given_up_or_not_deleted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic must not come back with a replica that is not there."""
    logs = broker.start()
    append(logs.create(ORDERS, TOPIC_ID))
    given_up: list[KeptLog] = []

    def full(*_: object) -> None:
        raise os_error(errno.ENOSPC)

    monkeypatch.setattr(logs_module, "write_kept_mark", full)

    def hears_nothing(kept: KeptLog) -> bool:
        given_up.append(kept)
        return False

    logs.kept.may_give_up = hears_nothing
    error = logs.delete([ORDERS], kept_until_ms=UNTIL_MS)[ORDERS]
    assert isinstance(error, KafkaError)
    assert "neither be kept nor be given up" in error.detail
    assert [(each.topic_id, each.partition) for each in given_up] == [(TOPIC_ID, 0)]
    assert logs.get(ORDERS).log_end_offset == 1

    logs.kept.may_give_up = lambda kept: True
    assert logs.delete([ORDERS], kept_until_ms=UNTIL_MS) == {}
    assert len(logs.kept) == 0
