"""Events that are due later."""

from __future__ import annotations

from tests.kit.clock import FakeClock

from ottla.broker.controller.schedule import Schedule


def test_events_come_when_they_are_due_and_in_their_order() -> None:
    """Those of the same time in the order in which they were added."""
    clock = FakeClock(10.0)
    done: list[str] = []
    schedule = Schedule(clock)
    schedule.add(5, lambda: done.append("late"))
    schedule.add(2, lambda: done.append("first"))
    schedule.add(2, lambda: done.append("second"))

    assert schedule.seconds_left() == 2
    assert schedule.take_due() is None
    clock.now = 12.0
    while (event := schedule.take_due()) is not None:
        event()
    assert done == ["first", "second"]
    assert schedule.seconds_left() == 3
    clock.now = 20.0
    assert schedule.seconds_left() == 0


def test_nothing_is_due_after_a_clearing() -> None:
    """And there is nothing to wait for."""
    schedule = Schedule(lambda: 0.0)
    schedule.add(0, lambda: None)
    schedule.clear()

    assert schedule.take_due() is None
    assert schedule.seconds_left() is None
    assert len(schedule) == 0
