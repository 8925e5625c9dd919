"""Waiting ends when something holds, and in time where it never does."""

from __future__ import annotations

import pytest
from tests.kit import waiting
from tests.kit.clock import FakeClock
from tests.kit.waiting import until, until_async

SHORT_S = 0.02


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock[float]:
    """The time that `until` goes by."""
    made = FakeClock(100.0)
    monkeypatch.setattr(waiting, "time", made)
    return made


def test_the_first_true_value_is_returned(clock: FakeClock[float]) -> None:
    """With a pause before each further question."""
    answers = iter([None, 0, "", "found"])

    assert until(lambda: next(answers), pause_s=0.5) == "found"
    assert clock.slept == [0.5] * 3


def test_what_never_holds_fails_in_time_and_says_what_it_was(clock: FakeClock[float]) -> None:
    """After the deadline, and no more than a pause later."""
    with pytest.raises(AssertionError, match=r"^after 7 s still not: a record arrives$"):
        until(lambda: False, "a record arrives", seconds=7, pause_s=0.5)
    assert 7 < clock.now - 100 <= 7.5


def test_a_description_may_be_the_state_at_the_end(clock: FakeClock[float]) -> None:
    """It is asked for when the wait is over."""
    seen: list[float] = []

    with pytest.raises(AssertionError, match=r"still not: \[100\.0, 101\.0, 102\.0\]$"):
        until(lambda: seen.append(clock.now), lambda: seen, seconds=1.5, pause_s=1.0)


def test_something_may_be_done_in_place_of_a_pause(clock: FakeClock[float]) -> None:
    """And not once it holds; the deadline counts all the same."""
    polled: list[float] = []

    def poll() -> None:
        polled.append(clock.now)
        clock.now += 2.0

    assert until(lambda: len(polled) == 2, meanwhile=poll)
    assert polled == [100.0, 102.0]
    assert clock.slept == []
    with pytest.raises(AssertionError, match="after 3 s"):
        until(lambda: False, seconds=3, meanwhile=poll)
    assert len(polled) == 4


def test_some_errors_are_a_no(clock: FakeClock[float]) -> None:
    """All others end the wait at once."""
    errors: list[Exception] = [KeyError("a"), ValueError("b")]

    def hold() -> bool:
        if errors:
            raise errors.pop(0)
        return True

    assert until(hold, not_yet=(KeyError, ValueError))
    assert len(clock.slept) == 2
    errors.append(OSError("c"))
    with pytest.raises(OSError, match="c"):
        until(hold, not_yet=(KeyError, ValueError))


def test_the_last_error_is_shown_with_the_failure(clock: FakeClock[float]) -> None:
    """As its cause."""
    found: dict[str, str] = {}

    with pytest.raises(AssertionError, match="still not: an answer") as failure:
        until(lambda: found["a"], "an answer", seconds=1, not_yet=KeyError)
    assert isinstance(failure.value.__cause__, KeyError)
    assert clock.now > 101


async def test_coroutines_wait_for_functions_and_for_coroutines() -> None:
    """For the first value that is true."""
    answers = iter([0, 0, 3, 0, 4])

    async def ask() -> int:
        return next(answers)

    assert await until_async(lambda: next(answers)) == 3
    assert await until_async(ask) == 4


async def test_coroutines_fail_in_time_too() -> None:
    """With the same words."""
    with pytest.raises(AssertionError, match=r"^after 0\.02 s still not: a record arrives$"):
        await until_async(lambda: False, "a record arrives", seconds=SHORT_S)
