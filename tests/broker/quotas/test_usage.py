"""Which limit holds for whom, and what clients are told who are beyond it."""

from __future__ import annotations

import pytest
from tests.kit.clock import FakeClock

from ottla.broker.quotas.limits import DEFAULT, Entity, Limit, QuotaLimits
from ottla.broker.quotas.usage import MutationQuota, RateQuota
from ottla.broker.security.session import Session

HOUR_MS = 3600 * 1000.0


def session(user: str) -> Session:
    """Somebody who has proved to be a user."""
    return Session("PLAINTEXT", "127.0.0.1", f"User:{user}")


BOTH, USER, CLIENT = Entity("u", "c"), Entity("u"), Entity(None, "c")

PRECEDENCE = [
    (Entity("u", "c"), BOTH),
    (Entity("u", DEFAULT), BOTH),
    (Entity("u"), USER),
    (Entity(DEFAULT, "c"), BOTH),
    (Entity(DEFAULT, DEFAULT), BOTH),
    (Entity(DEFAULT), USER),
    (Entity(None, "c"), CLIENT),
    (Entity(None, DEFAULT), CLIENT),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_entity_that_says_most_has_the_limit(first: int) -> None:
    """In Kafka's order, and with what is counted together."""
    limits = QuotaLimits({entity: float(index) for index, (entity, _) in enumerate(PRECEDENCE) if index >= first})

    assert limits.find("u", "c") == Limit(float(first), PRECEDENCE[first][1])


def test_nothing_holds_for_others() -> None:
    """Without a default there is no limit."""
    limits = QuotaLimits({Entity("u"): 1.0, Entity(None, "c"): 2.0})

    assert limits.find("v", "d") is None
    assert limits.find("v", "c") == Limit(2.0, CLIENT)


def test_an_empty_client_id_is_a_client_id() -> None:
    """The user's own limit does not stand for it."""
    limits = QuotaLimits({Entity("u"): 1.0, Entity("u", DEFAULT): 2.0})

    assert limits.find("u", "") == Limit(2.0, Entity("u", ""))


def test_clients_of_a_user_share_the_limit_of_the_user() -> None:
    """And other users have their own."""
    clock = FakeClock(0.0)
    quota = RateQuota(clock_ms=clock)
    quota.set_limits(QuotaLimits({Entity(DEFAULT): 100.0}))

    assert quota.record(session("u"), "first", 1000) == 0
    assert quota.record(session("u"), "second", 500) == 5000
    assert quota.record(session("v"), "first", 1000) == 0


def test_a_user_may_be_called_as_the_default_is() -> None:
    """Names are encoded, so nobody is taken for everybody."""
    quota = RateQuota(clock_ms=FakeClock(0.0))
    quota.set_limits(QuotaLimits({Entity(DEFAULT): 100.0, Entity("%3Cdefault%3E"): 1.0}))

    assert quota.record(session("<default>"), "c", 100) > 0
    assert quota.record(session("u"), "c", 100) == 0


def test_the_wait_has_a_longest_time_where_one_is_given() -> None:
    """As request_percentage has."""
    quota = RateQuota(clock_ms=FakeClock(0.0), throttle_ms_max=1000)
    quota.set_limits(QuotaLimits({Entity("u"): 1.0}))

    assert quota.record(session("u"), "c", 1e6) == 1000


def test_what_is_not_admitted_is_not_counted() -> None:
    """So that it fits when the time is over."""
    clock = FakeClock(0.0)
    quota = RateQuota(clock_ms=clock)
    quota.set_limits(QuotaLimits({Entity("u"): 100.0}))

    assert quota.admit(session("u"), "c", 900) == 0
    wait = quota.admit(session("u"), "c", 900)
    assert wait == 8000
    assert quota.admit(session("u"), "c", 100) == 0
    clock.now += 11_000
    assert quota.admit(session("u"), "c", 900) == 0


def test_one_amount_beyond_a_whole_window_is_admitted_when_nothing_came_before() -> None:
    """Or a large batch could never be read."""
    clock = FakeClock(0.0)
    quota = RateQuota(clock_ms=clock)
    quota.set_limits(QuotaLimits({Entity("u"): 100.0}))

    assert quota.admit(session("u"), "c", 5000) == 0
    assert quota.admit(session("u"), "c", 5000) > 0
    clock.now += 11_000
    assert quota.admit(session("u"), "c", 5000) == 0


def test_a_window_has_room_for_its_complete_samples() -> None:
    """Which is what one answer is cut down to."""
    quota = RateQuota(clock_ms=FakeClock(0.0))
    quota.set_limits(QuotaLimits({Entity("u"): 100.0}))

    assert quota.window_amount(session("u"), "c") == 1000
    assert quota.window_amount(session("v"), "c") is None


def test_clients_that_are_idle_for_an_hour_are_forgotten() -> None:
    """Those that are not are kept."""
    clock = FakeClock(0.0)
    quota = RateQuota(clock_ms=clock)
    quota.set_limits(QuotaLimits({Entity(None, DEFAULT): 100.0}))
    for client in range(10):
        quota.record(session("u"), f"client-{client}", 1)
    clock.now += HOUR_MS
    quota.record(session("u"), "client-3", 1)
    assert len(quota) == 10
    clock.now += 1
    quota.record(session("u"), "new", 1)

    assert len(quota) == 2


def test_client_ids_without_end_cost_no_memory_without_end() -> None:
    """The oldest make room."""
    quota = RateQuota(clock_ms=FakeClock(0.0))
    quota.set_limits(QuotaLimits({Entity(None, DEFAULT): 100.0}))
    for client in range(10_100):
        quota.record(session("u"), f"client-{client}", 1)

    assert len(quota) == 10_000


def test_limits_that_go_take_their_counters_along() -> None:
    """And nobody waits any more."""
    quota = RateQuota(clock_ms=FakeClock(0.0))
    quota.set_limits(QuotaLimits({Entity("u"): 1.0}))
    quota.record(session("u"), "c", 1000)
    quota.set_limits(QuotaLimits({}))

    assert not quota.is_set
    assert len(quota) == 0
    assert quota.record(session("u"), "c", 1000) == 0


def test_rows_show_rates_and_how_long_clients_were_made_to_wait() -> None:
    """On the average over the window."""
    clock = FakeClock(0.0)
    quota = RateQuota(clock_ms=clock)
    quota.set_limits(QuotaLimits({Entity("a%2Fb"): 100.0, Entity("v"): 100.0}))
    quota.record(session("a/b"), "c", 1500)
    quota.record(session("a/b"), "c", 500)
    quota.record(session("v"), "c", 10)

    assert list(quota.rows()) == [("v", "", 1.0, 0.0), ("a/b", "", 200.0, 7500.0)]


def test_strict_changes_of_topics_are_refused_while_something_is_owed() -> None:
    """One may be larger than what is there; then it is waited for."""
    clock = FakeClock(0.0)
    quota = MutationQuota(clock_ms=clock)
    quota.set_limits(QuotaLimits({Entity("u"): 1.0}))
    client = session("u")

    assert quota.take(client, "c", 5, strict=True) == (True, 0)
    assert quota.take(client, "c", 10, strict=True) == (True, 0)
    assert quota.take(client, "c", 1, strict=True) == (False, 4000)
    clock.now += 4000
    assert quota.take(client, "c", 1, strict=True) == (True, 0)
    assert quota.take(session("v"), "c", 1000, strict=True) == (True, 0)


def test_other_changes_of_topics_are_done_and_waited_for() -> None:
    """Clients of old versions know no code for it."""
    quota = MutationQuota(clock_ms=FakeClock(0.0))
    quota.set_limits(QuotaLimits({Entity("u"): 1.0}))

    assert quota.take(session("u"), "c", 11, strict=False) == (True, 0)
    assert quota.take(session("u"), "c", 2, strict=False) == (True, 2000)
    assert list(quota.rows()) == [("u", "", -2.0, 2000.0)]
