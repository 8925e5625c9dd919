"""What a thread puts off to the end of its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ottla.broker.common.turn import Turn, carry_out, put_off


@pytest.fixture
def done() -> list[str]:
    """What was done, in order."""
    return []


@pytest.fixture
def note(done: list[str]) -> Callable[[str], Callable[[], None]]:
    """Make actions that note their name."""
    return lambda name: lambda: done.append(name)


Note = Callable[[str], Callable[[], None]]


def test_without_a_turn_nothing_is_put_off(note: Note, done: list[str]) -> None:
    """The caller acts at once."""
    assert not put_off("a", note("a"))
    carry_out()
    assert done == []


def test_actions_are_carried_out_at_the_end_once_for_each_key(note: Note, done: list[str]) -> None:
    """In the order in which their keys were put off first."""
    with Turn():
        for name in ("a", "b", "a"):
            assert put_off(name, note(name))
        assert done == []
    assert done == ["a", "b"]
    assert not put_off("a", note("a"))


def test_actions_may_put_off_others(note: Note, done: list[str]) -> None:
    """Waking a fetch ends in sending its response, which waits until all are woken."""

    def wake(name: str) -> Callable[[], None]:
        def action() -> None:
            done.append(name)
            assert put_off("send", note("send"))

        return action

    with Turn():
        put_off("first", wake("first"))
        put_off("second", wake("second"))
    assert done == ["first", "second", "send"]


def test_a_turn_within_another_is_a_part_of_it(note: Note, done: list[str]) -> None:
    """Its end is not the end of what the thread does."""
    with Turn():
        with Turn():
            put_off("a", note("a"))
        assert done == []
    assert done == ["a"]


def test_the_turn_goes_on_after_what_was_put_off_is_carried_out_early(note: Note, done: list[str]) -> None:
    """So the same key may come again."""
    with Turn():
        put_off("a", note("early"))
        carry_out()
        assert done == ["early"]
        assert put_off("a", note("late"))
    assert done == ["early", "late"]


def test_an_action_that_fails_takes_no_other_with_it(note: Note, done: list[str]) -> None:
    """Somebody waits for each of them."""

    def fail() -> None:
        raise ValueError

    with Turn():
        put_off("bad", fail)
        put_off("good", note("good"))
    assert done == ["good"]


def test_what_was_put_off_is_done_though_the_turn_fails(note: Note, done: list[str]) -> None:
    """And the thread has no turn afterwards."""

    def fail_in_a_turn() -> None:
        with Turn():
            put_off("a", note("a"))
            raise KeyError("b")

    with pytest.raises(KeyError):
        fail_in_a_turn()
    assert done == ["a"]
    assert not put_off("b", note("b"))


def test_other_threads_have_turns_of_their_own(note: Note) -> None:
    """Nothing waits for a turn of somebody else."""
    answers: list[bool] = []
    with Turn():
        other = threading.Thread(target=lambda: answers.append(put_off("a", note("a"))))
        other.start()
        other.join()
    assert answers == [False]
