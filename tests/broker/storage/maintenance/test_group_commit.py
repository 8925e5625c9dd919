"""Appends are acknowledged when they are on disk: one flush for many, and never a second try after a failure."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.typing import EventDict
from tests.broker.storage.many_logs import ORDERS, TOPIC_ID, VIEWS, Broker, append, os_error

from ottla.broker.storage.errors import FlushError
from ottla.broker.storage.log import Log
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance import group_commit
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.protocol.errors import ErrorCode, KafkaError

WAIT_SECONDS = 30


class Flushes:
    """Flushes for real, counts, and fails when told to."""

    def __init__(self) -> None:
        self.logs: list[Log] = []
        self.error: Exception | None = None
        self.before: Callable[[], object] = lambda: None

    def __call__(self, log: Log) -> int:
        self.logs.append(log)
        self.before()
        if self.error is not None:
            raise self.error
        return log.flush()


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """Two logs, in a directory each."""
    logs = Broker(tmp_path).start()
    logs.create(ORDERS, TOPIC_ID)
    logs.create(VIEWS, TOPIC_ID)
    return logs


@pytest.fixture
def flushes() -> Flushes:
    """What the flushing threads call."""
    return Flushes()


@pytest.fixture
def commit(logs: Logs, flushes: Flushes) -> GroupCommit:
    """A group commit whose threads are not started: the test runs it."""
    return GroupCommit(logs.dirs, flush=flushes, linger=lambda: None)


def run(commit: GroupCommit) -> int:
    return sum(worker.run_once() for worker in commit.workers.values())


def test_one_flush_serves_all_that_gathered(logs: Logs, commit: GroupCommit, flushes: Flushes) -> None:
    """Each is called back once, when its records are on disk."""
    log = logs.get(ORDERS)
    answers: list[tuple[int, KafkaError | None]] = []
    for _ in range(5):
        end = append(log)
        commit.when_flushed(log, end, lambda error, end=end: answers.append((end, error)))  # type: ignore[misc]
    assert answers == []

    assert run(commit) == 1

    assert answers == [(end, None) for end in range(1, 6)]
    assert flushes.logs == [log]
    assert log.recovery_point == 5
    assert run(commit) == 0


def test_what_is_on_disk_already_is_answered_at_once(logs: Logs, commit: GroupCommit, flushes: Flushes) -> None:
    """In the thread of the caller, without a flush."""
    log = logs.get(ORDERS)
    end = append(log)
    log.flush()
    answers: list[KafkaError | None] = []

    commit.when_flushed(log, end, answers.append)

    assert answers == [None]
    assert run(commit) == 0


def test_what_is_appended_during_a_flush_shares_the_next(logs: Logs, commit: GroupCommit, flushes: Flushes) -> None:
    """It must not be taken for flushed by one that began before it."""
    log = logs.get(ORDERS)
    answers: list[str] = []
    commit.when_flushed(log, append(log), lambda error: answers.append("first"))

    def append_more() -> None:
        flushes.before = lambda: None
        with_more.append(append(log))
        commit.when_flushed(log, with_more[0], lambda error: answers.append("second"))

    with_more: list[int] = []
    flushes.before = append_more
    run(commit)
    assert answers == ["first"]

    run(commit)

    assert answers == ["first", "second"]


def test_each_log_that_is_waited_for_is_flushed(logs: Logs, commit: GroupCommit, flushes: Flushes) -> None:
    """And those that are only asked for, with nobody waiting."""
    orders, views = logs.get(ORDERS), logs.get(VIEWS)
    answers: list[KafkaError | None] = []
    commit.when_flushed(orders, append(orders), answers.append)
    append(views)
    commit.request(views)

    assert run(commit) == 2

    assert (orders.recovery_point, views.recovery_point, answers) == (1, 1, [None])
    commit.request(views)
    assert run(commit) == 0


def test_who_may_wait_waits_for_several_logs_at_once(logs: Logs, flushes: Flushes) -> None:
    """Each is flushed once, in the thread of its directory, and the failure of one is its own."""
    commit = GroupCommit(logs.dirs, flush=flushes, linger=lambda: None)
    for name in (ORDERS, VIEWS):
        append(logs.get(name))
    commit.start()
    try:
        assert commit.flush(logs) == {}
        assert [log.recovery_point for log in logs] == [1, 1]
        assert commit.flush([]) == {}
        append(logs.get(ORDERS))
        flushes.error = OSError(errno.EIO, "Input/output error")
        (error,) = commit.flush(logs).values()
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(flushes.logs) == 3
    finally:
        commit.stop()


def test_who_waits_for_a_disk_that_hangs_goes_on_after_a_while(
    logs: Logs, commit: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody runs the flushes here."""
    monkeypatch.setattr(group_commit, "FLUSH_SECONDS_MAX", 0.0)
    append(logs.get(ORDERS))
    (error,) = commit.flush(logs).values()

    assert error.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_failed_flush_is_told_and_never_tried_again(logs: Logs, commit: GroupCommit, flushes: Flushes) -> None:
    """The directory goes offline with all who wait for it; a flush that would succeed now proves nothing."""
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []
    commit.when_flushed(log, append(log), answers.append)
    flushes.error = FlushError(errno.EIO, "Input/output error")
    run(commit)
    flushes.error = None
    commit.when_flushed(log, log.log_end_offset, answers.append)

    run(commit)

    assert [error.code for error in answers if error is not None] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert len(flushes.logs) == 1
    assert not logs.dirs[0].is_online
    assert logs.dirs[1].is_online
    assert log.recovery_point == 0


def test_a_flush_that_went_well_beside_one_that_failed_proves_nothing(
    logs: Logs, commit: GroupCommit, flushes: Flushes
) -> None:
    """The system may have told the failure to somebody else."""
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []
    commit.when_flushed(log, append(log), answers.append)
    flushes.before = lambda: logs.dirs[0].failed(os_error(errno.EIO))

    run(commit)

    assert [error.code for error in answers if error is not None] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_flush_that_could_not_begin_fails_those_who_wait_alone(
    logs: Logs, commit: GroupCommit, flushes: Flushes
) -> None:
    """Too many open files pass: the directory stays, and the next flush serves those who come then."""
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []
    commit.when_flushed(log, append(log), answers.append)
    flushes.error = os_error(errno.EMFILE)
    run(commit)
    flushes.error = None
    commit.when_flushed(log, log.log_end_offset, answers.append)

    run(commit)

    assert [error.code if error else None for error in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, None]


def test_a_bug_in_a_flush_is_told_too(logs: Logs, commit: GroupCommit, flushes: Flushes) -> None:
    """Nobody waits for ever."""
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []
    commit.when_flushed(log, append(log), answers.append)
    flushes.error = RuntimeError("a bug")

    run(commit)

    assert [error.code for error in answers if error is not None] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_callback_that_raises_keeps_no_other_from_its_turn(
    logs: Logs, commit: GroupCommit, log_lines: list[EventDict]
) -> None:
    """It is logged."""
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []

    def fail(error: KafkaError | None) -> None:
        raise RuntimeError("a bug")

    commit.when_flushed(log, append(log), fail)
    commit.when_flushed(log, log.log_end_offset, answers.append)

    run(commit)

    assert answers == [None]
    assert "flush_callback_failed" in [line["event"] for line in log_lines]


def test_records_that_were_cut_are_not_acknowledged(logs: Logs, commit: GroupCommit) -> None:
    """This broker leads no more; the new leader decides."""
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []
    commit.when_flushed(log, append(log, 3), answers.append)
    logs.truncate_to({ORDERS: 1})

    run(commit)

    assert [error.code for error in answers if error is not None] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_the_queue_is_bounded(logs: Logs, flushes: Flushes) -> None:
    """Who comes when it is full is refused at once; when it has drained others are taken."""
    commit = GroupCommit(logs.dirs, waiting_max=2, flush=flushes, linger=lambda: None)
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []
    for _ in range(3):
        commit.when_flushed(log, append(log), answers.append)
    assert [error.code for error in answers if error is not None] == [ErrorCode.REQUEST_TIMED_OUT]

    run(commit)
    commit.when_flushed(log, append(log), answers.append)
    run(commit)

    assert answers[1:] == [None, None, None]


def test_a_stop_flushes_what_is_waited_for_and_refuses_what_comes_later(logs: Logs, commit: GroupCommit) -> None:
    """Whether the threads were started or not."""
    log = logs.get(ORDERS)
    answers: list[KafkaError | None] = []
    commit.when_flushed(log, append(log), answers.append)

    commit.stop()

    assert answers == [None]
    commit.when_flushed(log, append(log), answers.append)
    assert answers[1] is not None
    assert answers[1].code is ErrorCode.KAFKA_STORAGE_ERROR


def test_threads_that_append_at_once_share_a_flush(logs: Logs, flushes: Flushes) -> None:
    """Eight producers, one flush: it lingers until all eight have come."""
    producers = 8
    log = logs.get(ORDERS)
    all_came, all_answered = threading.Barrier(producers + 1), threading.Semaphore(0)
    commit = GroupCommit(logs.dirs, flush=flushes, linger=lambda: wait(all_came))
    answers: list[KafkaError | None] = []

    def answered(error: KafkaError | None) -> None:
        answers.append(error)
        all_answered.release()

    def produce() -> None:
        commit.when_flushed(log, append(log), answered)
        wait(all_came)

    commit.start()
    threads = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert all(all_answered.acquire(timeout=WAIT_SECONDS) for _ in range(producers))
    commit.stop()

    assert answers == [None] * producers
    assert log.recovery_point == producers
    assert len(flushes.logs) == 1


def wait(barrier: threading.Barrier) -> None:
    barrier.wait(WAIT_SECONDS)
