"""Operations that wait: completed exactly once, by whoever comes first."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator

import pytest
from tests.kit.clock import FakeClock

from ottla.broker.common.purgatory import DelayedOperation, Purgatory

DEADLINE_SECONDS = 60


class Operation(DelayedOperation):
    """Satisfied when the test says so."""

    __slots__ = ("completions", "done", "satisfied")

    def __init__(self, satisfied: bool = False) -> None:
        super().__init__()
        self.satisfied = satisfied
        self.completions: list[bool] = []
        self.done = threading.Event()

    def is_satisfied(self) -> bool:
        return self.satisfied

    def on_complete(self, *, expired: bool) -> None:
        self.completions.append(expired)
        self.done.set()


@pytest.fixture
def clock() -> FakeClock[float]:
    """Return a clock that stands still."""
    return FakeClock(100.0)


@pytest.fixture
def purgatory(clock: FakeClock[float]) -> Purgatory:
    """Return a purgatory whose deadlines the test expires itself."""
    return Purgatory("test", clock)


@pytest.fixture
def running() -> Iterator[Purgatory]:
    """Return a purgatory with its thread, on the real clock."""
    purgatory = Purgatory("test")
    purgatory.start()
    yield purgatory
    purgatory.stop()


def test_what_is_satisfied_already_does_not_wait(purgatory: Purgatory) -> None:
    """Nobody would tell it later."""
    operation = Operation(satisfied=True)

    purgatory.watch(operation, ["a"], 10)

    assert operation.completions == [False]
    assert len(purgatory) == 0


def test_a_check_completes_what_is_satisfied_under_its_key(purgatory: Purgatory) -> None:
    """Other keys and other operations are left alone."""
    ready, waiting, elsewhere = Operation(), Operation(), Operation()
    purgatory.watch(ready, ["a", "b"], 10)
    purgatory.watch(waiting, ["a"], 10)
    purgatory.watch(elsewhere, ["c"], 10)
    ready.satisfied = elsewhere.satisfied = True

    assert purgatory.check("a") == 1
    assert purgatory.check("b") == 0
    assert (ready.completions, waiting.completions, elsewhere.completions) == ([False], [], [])
    assert len(purgatory) == 2


class Asked(DelayedOperation):
    """Notes what it is asked about; satisfied by one key."""

    __slots__ = ("asked", "wanted")

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted = wanted
        self.asked: list[Hashable] = []

    def is_satisfied(self) -> bool:
        self.asked.append("everything")
        return False

    def is_satisfied_by(self, key: Hashable) -> bool:
        self.asked.append(key)
        return key == self.wanted

    def on_complete(self, *, expired: bool) -> None:
        pass


def test_an_operation_is_told_what_happened(purgatory: Purgatory) -> None:
    """It may have hundreds of keys, of which one moves."""
    operation = Asked("b")
    purgatory.watch(operation, ["a", "b"], 10, purgatory.mark())

    purgatory.check("a")
    purgatory.check("c")
    assert not operation.is_complete
    purgatory.check("b")

    assert (operation.is_complete, operation.asked) == (True, ["a", "b"])


def test_what_happened_since_an_operation_looked_is_not_lost(purgatory: Purgatory) -> None:
    """It is asked about that when it is watched, and about nothing else."""
    purgatory.check("b")
    mark = purgatory.mark()
    idle, late = Asked("b"), Asked("a")
    purgatory.check("a")
    purgatory.check("c")

    purgatory.watch(idle, ["a", "b"], 10, mark)
    purgatory.watch(late, ["a", "b"], 10, mark)

    assert (idle.is_complete, idle.asked) == (False, ["a"])
    assert (late.is_complete, len(purgatory)) == (True, 1)


def test_an_operation_that_looked_long_ago_is_asked_about_everything(purgatory: Purgatory) -> None:
    """The checks of that time are forgotten."""
    mark = purgatory.mark()
    for number in range(1000):
        purgatory.check(number)
    operation = Asked("a")

    purgatory.watch(operation, ["a"], 10, mark)

    assert operation.asked == ["everything"]


def test_a_standing_watch_tells_what_has_changed(purgatory: Purgatory) -> None:
    """Once, and only of its keys."""
    standing, other = purgatory.stand(), purgatory.stand()
    standing.add(["a", "b"])
    other.add(["b"])
    for key in ("b", "c", "b", "a"):
        purgatory.check(key)

    assert list(standing.take()) == ["b", "a"]
    assert list(standing.take()) == []
    assert list(other.take()) == ["b"]


def test_an_operation_waits_for_the_keys_of_a_standing_watch(purgatory: Purgatory) -> None:
    """One after the other; the change that completed one is there for the next."""
    standing = purgatory.stand()
    standing.add(["a", "b"])
    for _ in range(2):
        operation = Asked("b")
        purgatory.watch(operation, (), 10, standing=standing)
        assert (purgatory.check("a"), purgatory.check("c"), purgatory.check("b")) == (0, 0, 1)
        assert (operation.asked, len(purgatory)) == (["a", "b"], 0)
        assert list(standing.take()) == ["a", "b"]
        assert not standing.operations
    assert purgatory.check("b") == 0


def test_what_was_checked_before_an_operation_begins_to_wait_is_asked_then(purgatory: Purgatory) -> None:
    """The caller looked before, and after it took the changes."""
    standing = purgatory.stand()
    standing.add(["a", "b"])
    standing.take()
    purgatory.check("b")
    operation = Asked("b")

    purgatory.watch(operation, (), 10, standing=standing)

    assert (operation.is_complete, operation.asked, len(purgatory)) == (True, ["b"], 0)


def test_a_key_that_is_watched_no_longer_tells_nothing(purgatory: Purgatory) -> None:
    """Nor does a watch that is closed; who waits then has a deadline."""
    standing = purgatory.stand()
    standing.add(["a", "b"])
    purgatory.check("a")
    standing.discard(["a"])
    operation = Asked("b")
    purgatory.watch(operation, (), 10, standing=standing)
    assert purgatory.check("a") == 0
    assert list(standing.take()) == []
    standing.close()
    assert purgatory.check("b") == 0
    assert (len(standing), operation.asked) == (0, [])
    assert purgatory.expire(float("inf")) == 1


def test_the_deadline_completes_the_rest(purgatory: Purgatory, clock: FakeClock[float]) -> None:
    """Not before its time."""
    early, late = Operation(), Operation()
    purgatory.watch(late, ["a"], 20)
    purgatory.watch(early, ["a"], 10)
    clock.now += 9.9
    assert purgatory.expire(clock.now) == 0
    clock.now += 0.2

    assert purgatory.expire(clock.now) == 1
    assert (early.completions, late.completions) == ([True], [])


def test_completion_happens_once(purgatory: Purgatory, clock: FakeClock[float]) -> None:
    """Whether it is the check or the deadline that comes first."""
    operation = Operation()
    purgatory.watch(operation, ["a"], 10)
    operation.satisfied = True
    purgatory.check("a")
    clock.now += 100

    assert purgatory.expire(clock.now) == 0
    assert purgatory.check("a") == 0
    assert operation.completions == [False]


def test_a_failing_operation_does_not_keep_the_others_waiting(purgatory: Purgatory) -> None:
    """It is forgotten as if it were complete."""

    class Failing(Operation):
        __slots__ = ()

        def on_complete(self, *, expired: bool) -> None:
            raise RuntimeError("a bug")

    failing, good = Failing(), Operation()
    purgatory.watch(failing, ["a"], 10)
    purgatory.watch(good, ["a"], 10)
    failing.satisfied = good.satisfied = True

    purgatory.check("a")

    assert good.completions == [False]
    assert len(purgatory) == 0


def test_ten_thousand_that_wait_leave_nothing_behind(purgatory: Purgatory) -> None:
    """Keys and deadlines of completed operations are dropped."""
    operations = [Operation() for _ in range(10_000)]
    for number, operation in enumerate(operations):
        purgatory.watch(operation, [number, "all"], 60)
    for operation in operations:
        operation.satisfied = True

    assert purgatory.check("all") == 10_000
    assert len(purgatory) == 0
    assert not purgatory._watchers
    assert len(purgatory._deadlines) <= 1025


def test_the_thread_expires_what_is_due(running: Purgatory) -> None:
    """An earlier deadline that comes later is not slept through."""
    late, early = Operation(), Operation()
    running.watch(late, ["a"], 3600)
    running.watch(early, ["a"], 0.01)

    assert early.done.wait(DEADLINE_SECONDS)
    assert (early.completions, late.completions) == ([True], [])


def test_stopping_completes_everything() -> None:
    """Nobody is left without an answer."""
    purgatory = Purgatory("test")
    purgatory.start()
    operation = Operation()
    purgatory.watch(operation, ["a"], 3600)

    purgatory.stop()

    assert operation.completions == [True]


def test_a_race_of_checks_completes_once(running: Purgatory) -> None:
    """Many threads tell the same news."""
    for _ in range(50):
        operation = Operation()
        running.watch(operation, ["a"], 3600)
        operation.satisfied = True
        threads = [threading.Thread(target=running.check, args=("a",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert operation.completions == [False]


class Unsure(Operation):
    """Fails when it is asked."""

    __slots__ = ()

    def is_satisfied_by(self, key: Hashable) -> bool:
        raise RuntimeError("oh")


def test_an_operation_that_cannot_say_whether_it_is_satisfied_is_completed(purgatory: Purgatory) -> None:
    """So that whoever waits for it is told, and neither the others nor who moved the key suffer from it."""
    unsure, other = Unsure(), Operation()
    purgatory.watch(unsure, ["a"], 10)
    purgatory.watch(other, ["a"], 10)
    other.satisfied = True

    assert purgatory.check("a") == 2
    assert (unsure.completions, other.completions) == ([False], [False])
