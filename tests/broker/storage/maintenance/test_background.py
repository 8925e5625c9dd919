"""A background thread runs each step at its own interval, and no step stops the others."""

from __future__ import annotations

import threading

from structlog.typing import EventDict
from tests.kit.clock import FakeClock

from ottla.broker.common.clocks import monotonic_ms
from ottla.broker.storage.maintenance.background import Loop, Task

WAIT_SECONDS = 30


class Steps:
    """Notes which steps ran, by a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000)
        self.ran: list[str] = []

    def task(self, name: str, interval_ms: int, due_ms: int, *, on_wake: bool = False) -> Task:
        return Task(name, interval_ms, lambda: self.ran.append(name), due_ms, on_wake)


def test_steps_run_when_they_are_due_and_not_before() -> None:
    """The first time when it was said, then at the interval."""
    steps = Steps()
    loop = Loop("test", [steps.task("often", 10, 1000), steps.task("seldom", 100, 1050)], steps.clock)

    assert loop.run_due() == 10
    steps.clock.now = 1009
    assert loop.run_due() == 1
    assert steps.ran == ["often"]
    steps.clock.now = 1060
    assert loop.run_due() == 10
    assert steps.ran == ["often", "often", "seldom"]


def test_the_first_wait_counts_from_the_start() -> None:
    """A broker makes its loops before it recovers its logs, which may take long."""
    steps = Steps()
    loop = Loop("test", [steps.task("late", 10, 1050)], steps.clock)
    steps.clock.now = 5000

    loop.start()
    loop.stop()

    assert steps.ran == []
    assert loop.tasks[0].due_ms == 5050


def test_a_slow_step_does_not_starve_the_others() -> None:
    """Its interval counts from its end."""
    steps = Steps()

    def slow() -> None:
        steps.clock.now += 500

    loop = Loop("test", [Task("slow", 10, slow, 1000), steps.task("quick", 10, 1400)], steps.clock)

    assert loop.run_due() == 10
    assert steps.ran == ["quick"]


def test_a_step_that_fails_is_counted_and_tried_again(log_lines: list[EventDict]) -> None:
    """The steps behind it run."""
    steps = Steps()

    def fail() -> None:
        raise RuntimeError("a bug")

    loop = Loop("test", [Task("faulty", 10, fail, 1000), steps.task("whole", 10, 1000)], steps.clock)

    assert loop.run_due() == 10
    steps.clock.now = 1010
    loop.run_due()

    assert loop.failures == 2
    assert steps.ran == ["whole", "whole"]
    assert [(line["event"], line["step"]) for line in log_lines] == [("background_step_failed", "faulty")] * 2


def test_a_hurry_makes_those_due_that_are_for_it() -> None:
    """And no others."""
    steps = Steps()
    loop = Loop("test", [steps.task("calm", 100, 9000), steps.task("alert", 100, 9000, on_wake=True)], steps.clock)

    loop.hurry()
    loop.run_due()

    assert steps.ran == ["alert"]


def test_the_thread_runs_a_step_when_it_is_woken_and_ends_when_it_is_stopped() -> None:
    """However long the intervals are."""
    woken, wake = threading.Event(), threading.Event()
    loop = Loop("test", [Task("alert", 2**62, woken.set, monotonic_ms() + 2**62, on_wake=True)], wake=wake)
    loop.start()

    wake.set()

    assert woken.wait(WAIT_SECONDS)
    loop.stop()
    assert all(thread.name != "test" for thread in threading.enumerate())


def test_a_loop_that_never_started_can_be_stopped() -> None:
    """And runs nothing afterwards."""
    steps = Steps()
    loop = Loop("test", [steps.task("often", 10, 1000)], steps.clock)

    loop.stop()
    loop.run_due()

    assert steps.ran == []
