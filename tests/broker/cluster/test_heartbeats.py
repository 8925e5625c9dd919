"""How long a server may be silent before its connection is given up."""

from __future__ import annotations

import pytest
from tests.kit.clock import FakeClock

from ottla.broker.cluster.session_client import Heartbeats

SILENCE_S_MAX = 6.0


@pytest.fixture
def clock() -> FakeClock[float]:
    """Return a clock that the test moves."""
    return FakeClock(100.0)


@pytest.fixture
def heartbeats(clock: FakeClock[float]) -> Heartbeats:
    """Return the pings of a connection that was opened just now."""
    heartbeats = Heartbeats(clock)
    heartbeats.begin(SILENCE_S_MAX)
    return heartbeats


def test_a_ping_is_overdue_when_the_server_was_silent_for_too_long(
    heartbeats: Heartbeats, clock: FakeClock[float]
) -> None:
    """The time counts from the last word of the server, not from the ping."""
    clock.now += 4.0
    heartbeats.set()
    clock.now += 1.9
    assert not heartbeats.is_set()
    clock.now += 0.1
    assert heartbeats.is_set()


def test_any_word_of_the_server_shows_that_it_lives(heartbeats: Heartbeats, clock: FakeClock[float]) -> None:
    """Also one that does not answer the ping."""
    heartbeats.set()
    clock.now += 5.0
    heartbeats.heard()
    clock.now += 5.0
    assert not heartbeats.is_set()


def test_silence_without_a_ping_says_nothing(heartbeats: Heartbeats, clock: FakeClock[float]) -> None:
    """A process that was frozen has not asked."""
    clock.now += 100.0
    assert not heartbeats.is_set()


def test_answers_belong_to_pings_in_order(heartbeats: Heartbeats, clock: FakeClock[float]) -> None:
    """An answer shows that the session lived when its own ping was sent, not when the latest was."""
    heartbeats.set()
    clock.now += 2.0
    heartbeats.set()
    heartbeats.clear()
    assert (heartbeats.answered, len(heartbeats)) == (100.0, 1)
    heartbeats.clear()
    assert (heartbeats.answered, len(heartbeats)) == (102.0, 0)


def test_a_new_connection_owes_nothing(heartbeats: Heartbeats, clock: FakeClock[float]) -> None:
    """Pings of the last one are never answered."""
    heartbeats.set()
    clock.now += 100.0
    heartbeats.begin(SILENCE_S_MAX)
    heartbeats.clear()
    assert not heartbeats.is_set()
    assert heartbeats.answered == 0.0
