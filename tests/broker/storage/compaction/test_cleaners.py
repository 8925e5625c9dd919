"""The filthiest log is compacted first, by one cleaner at a time, and one that fails does not hold up the others."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.typing import EventDict
from tests.broker.storage.many_logs import ORDERS, START_MS, TOPIC_ID, VIEWS, Broker, batch, os_error
from tests.kit.waiting import until

from ottla.broker.storage.checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offsets
from ottla.broker.storage.compaction.cleaners import RETRY_MS, Cleaners
from ottla.broker.storage.compaction.compaction import CompactionOutcome, CompactionReport
from ottla.broker.storage.log import Log
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import close_logs
from ottla.protocol.identifiers import TopicPartition

PLAIN = TopicPartition("plain", 0)
WAIT_SECONDS = 30


def report(
    log: Log, first_dirty: int, cleaned_up_to: int, outcome: CompactionOutcome = CompactionOutcome.COMPLETE
) -> CompactionReport:
    return CompactionReport(
        partition=log.partition,
        outcome=outcome,
        first_dirty_offset=first_dirty,
        cleaned_up_to=cleaned_up_to,
        map_entries=1,
        map_bytes=1,
        bytes_mapped=1,
        records_mapped=1,
        bytes_read=1,
        bytes_written=1,
        records_read=1,
        records_written=1,
        segments_before=1,
        segments_after=1,
        duration_ms=1,
    )


class Compactions:
    """Stands in for compaction: notes which logs it was given, and cleans them up to the active segment."""

    def __init__(self) -> None:
        self.logs: list[TopicPartition] = []
        self.before: Callable[[Log, Callable[[], bool]], object] = lambda log, is_stopped: None
        self.outcome = CompactionOutcome.COMPLETE
        self.comes_further = True

    def __call__(
        self, log: Log, checkpoint: int | None, limits: object, *, is_stopped: Callable[[], bool], **options: object
    ) -> CompactionReport:
        self.logs.append(log.partition)
        self.before(log, is_stopped)
        first_dirty = checkpoint or 0
        end = log.active.base_offset if self.comes_further else first_dirty
        return report(log, first_dirty, end, self.outcome)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker with one directory, two compacted topics and a plain one."""
    broker = Broker(tmp_path, directories=1)
    for topic in (ORDERS.topic, VIEWS.topic):
        broker.overrides[topic] = {"cleanup.policy": "compact"}
    return broker


@pytest.fixture
def logs(broker: Broker) -> Logs:
    """Their logs, with several closed segments each; that of views is clean in part."""
    logs = broker.start()
    for partition in (ORDERS, VIEWS, PLAIN):
        fill(logs.create(partition, TOPIC_ID))
    views = logs.get(VIEWS)
    logs.note_cleaned(views, views.segments[1].base_offset, views.cuts)
    return logs


@pytest.fixture
def compactions() -> Compactions:
    """What the cleaners call."""
    return Compactions()


def fill(log: Log) -> None:
    for number in range(20):
        log.append_as_leader(batch(timestamp=START_MS + number), 0)
    log.advance_high_watermark(log.log_end_offset)


def test_the_filthiest_log_comes_first_and_nothing_is_cleaned_twice(logs: Logs, compactions: Compactions) -> None:
    """Then the other compacted one, then none; what was cleaned is written down."""
    cleaners = Cleaners(logs, compactions)

    assert [cleaners.clean_filthiest() for _ in range(3)] == [True, True, False]

    assert compactions.logs == [ORDERS, VIEWS]
    expected = {partition: logs.get(partition).active.base_offset for partition in (ORDERS, VIEWS)}
    assert read_offsets(logs.dirs[0].path / CLEANER_OFFSET_CHECKPOINT) == expected


def test_logs_are_really_compacted(logs: Logs, broker: Broker) -> None:
    """Of one key one record stays, and a restart knows how far that went."""
    cleaners = Cleaners(logs)
    while cleaners.clean_filthiest():
        pass
    log = logs.get(ORDERS)
    cleaned = log.active.base_offset
    close_logs(logs, 1)
    again = broker.start()

    assert not cleaners.failures
    assert log.segments[0].size < 400
    assert again.cleaner_offset(ORDERS) == cleaned
    assert again.get(ORDERS).log_end_offset == 20


def test_the_state_tells_when_logs_were_looked_at_and_how_dirty_they_were(
    logs: Logs, broker: Broker, compactions: Compactions
) -> None:
    """The filthiest one has never been compacted; a log that fails is left alone, and counted for its directory."""
    cleaners = Cleaners(logs, compactions)

    def fail(log: Log, is_stopped: object) -> None:
        raise ValueError("not this one")

    compactions.before = fail
    broker.clock.now += 1000
    assert cleaners.state() == (1000, 0.0, {logs.dirs[0]: 0}, 0)
    cleaners.clean_filthiest()
    assert cleaners.state() == (0, 1.0, {logs.dirs[0]: 1}, 0)
    broker.clock.now += RETRY_MS
    assert cleaners.state() == (RETRY_MS, 1.0, {logs.dirs[0]: 0}, 0)


def test_two_cleaners_never_take_the_same_log(logs: Logs, compactions: Compactions) -> None:
    """While one cleans, the other takes the next; then there is nothing left."""
    cleaners = Cleaners(logs, compactions)
    found: list[bool] = []

    def clean_another(log: Log, is_stopped: object) -> None:
        if len(compactions.logs) < 3:
            found.append(cleaners.clean_filthiest())

    compactions.before = clean_another
    cleaners.clean_filthiest()

    assert compactions.logs == [ORDERS, VIEWS]
    assert found == [False, True]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), os_error(errno.ENOSPC)])
def test_a_log_that_cannot_be_compacted_is_left_alone_for_a_while(
    logs: Logs, broker: Broker, compactions: Compactions, error: Exception, log_lines: list[EventDict]
) -> None:
    """The others have their turn, and it gets another."""
    cleaners = Cleaners(logs, compactions)

    def fail(log: Log, is_stopped: object) -> None:
        if log.partition == ORDERS:
            raise error

    compactions.before = fail
    while cleaners.clean_filthiest():
        pass
    assert compactions.logs == [ORDERS, VIEWS]
    assert cleaners.failures.total() == 1
    failed = [line["partition"] for line in log_lines if line["event"] == "compaction_failed"]
    assert failed == ["orders-0"]
    assert logs.dirs[0].is_online
    broker.clock.now += RETRY_MS

    cleaners.clean_filthiest()

    assert compactions.logs[2:] == [ORDERS]


def test_a_disk_that_fails_in_compaction_is_lost(logs: Logs, compactions: Compactions) -> None:
    """Nothing is compacted on it any more."""

    def fail(log: Log, is_stopped: object) -> None:
        raise os_error(errno.EIO)

    compactions.before = fail
    cleaners = Cleaners(logs, compactions)

    assert [cleaners.clean_filthiest() for _ in range(2)] == [True, False]
    assert not logs.dirs[0].is_online


def test_a_compaction_that_comes_no_further_is_not_repeated_at_once(logs: Logs, compactions: Compactions) -> None:
    """A thread must not spin."""
    compactions.comes_further = False
    cleaners = Cleaners(logs, compactions)

    assert [cleaners.clean_filthiest() for _ in range(3)] == [True, True, False]


def test_a_log_that_was_cut_meanwhile_is_cleaned_again(logs: Logs, compactions: Compactions) -> None:
    """What was found clean is not what is there now."""

    def cut(log: Log, is_stopped: object) -> None:
        logs.truncate_to({log.partition: 15})

    compactions.before = cut
    Cleaners(logs, compactions).clean_filthiest()

    assert logs.cleaner_offset(ORDERS) is None


def test_a_deletion_makes_the_cleaner_let_go(logs: Logs, compactions: Compactions) -> None:
    """It waits no longer than a batch."""
    cleaning = threading.Event()
    stopped: list[bool] = []

    def clean_until_wanted(log: Log, is_stopped: Callable[[], bool]) -> None:
        assert not is_stopped()
        cleaning.set()
        stopped.append(until(is_stopped, "the deletion wants the log"))

    compactions.before = clean_until_wanted
    compactions.outcome = CompactionOutcome.STOPPED
    compactions.comes_further = False
    cleaner = threading.Thread(target=Cleaners(logs, compactions).clean_filthiest)
    cleaner.start()
    assert cleaning.wait(WAIT_SECONDS)

    assert logs.delete([ORDERS]) == {}

    cleaner.join(WAIT_SECONDS)
    assert stopped == [True]
    assert logs.find(ORDERS) is None
    assert logs.cleaner_offset(ORDERS) is None


def test_a_log_that_is_deleted_before_its_turn_is_passed_over(logs: Logs, compactions: Compactions) -> None:
    """The cleaner chose it, and then waited for the deletion."""
    cleaners = Cleaners(logs, compactions)
    whole = logs.find
    logs.find = lambda partition: None if partition == ORDERS else whole(partition)  # type: ignore[method-assign]

    assert cleaners.clean_filthiest()
    assert compactions.logs == []


def test_the_threads_clean_and_rest_and_end(logs: Logs, broker: Broker, compactions: Compactions) -> None:
    """As many as the options say; a stop does not wait for the rest to be over."""
    both = threading.Barrier(2)
    compactions.before = lambda log, is_stopped: both.wait(WAIT_SECONDS)
    close_logs(logs, 1)
    broker.settings["log.cleaner.threads"] = "2"
    logs = broker.start()
    cleaners = Cleaners(logs, compactions)
    cleaned = threading.Event()
    note = logs.note_cleaned

    def noted(log: Log, offset: int, cuts: int) -> None:
        note(log, offset, cuts)
        if len(compactions.logs) == 2:
            cleaned.set()

    logs.note_cleaned = noted  # type: ignore[method-assign]
    cleaners.start()

    assert cleaned.wait(WAIT_SECONDS)
    cleaners.stop()
    assert sorted(compactions.logs) == [ORDERS, VIEWS]


def test_without_the_cleaner_there_are_no_threads(logs: Logs, broker: Broker) -> None:
    """log.cleaner.enable=false."""
    close_logs(logs, 1)
    broker.settings["log.cleaner.enable"] = "false"
    cleaners = Cleaners(broker.start())

    cleaners.start()

    assert not any(thread.name.startswith("log-cleaner") for thread in threading.enumerate())
    cleaners.stop()


def test_a_choice_that_fails_does_not_end_the_thread(
    logs: Logs, compactions: Compactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rests, and tries again later."""
    failed = threading.Event()

    def fail() -> object:
        failed.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr(logs, "places", fail)
    cleaners = Cleaners(logs, compactions)
    cleaners.start()

    assert failed.wait(WAIT_SECONDS)
    cleaners.stop()
    assert cleaners.failures == {"choice": 1}
