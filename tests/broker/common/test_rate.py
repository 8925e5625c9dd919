"""Rates and buckets, by a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.common.rate import Rate, TokenBucket

SAMPLES, SAMPLE_MS = 11, 1000.0


def rate() -> Rate:
    """A rate over Kafka's windows."""
    return Rate(SAMPLES, SAMPLE_MS)


def test_a_first_amount_is_spread_over_all_complete_samples() -> None:
    """Or it would look like an endless rate."""
    used = rate()
    used.record(1000, 0)

    assert used.window_ms(0) == 10_000
    assert used.per_second(0) == 100
    assert used.window_ms(500) == 10_500


def test_the_window_grows_with_the_sample_that_is_being_filled() -> None:
    """Ten complete ones, and what there is of the eleventh."""
    used = rate()
    for second in range(11):
        used.record(100, second * 1000)

    assert used.window_ms(10_400) == 10_400
    assert used.per_second(10_400) == pytest.approx(1100 / 10.4)


def test_what_is_older_than_the_window_counts_no_more() -> None:
    """Sample by sample."""
    used = rate()
    used.record(700, 0)
    used.record(300, 5000)

    assert used.total(10_999) == 1000
    assert used.total(11_000) == 300
    assert used.total(16_000) == 0
    assert used.per_second(16_000) == 0


def test_the_excess_is_how_long_to_wait_until_the_rate_is_right() -> None:
    """(rate - limit) / limit times the window, as Kafka works it out."""
    used = rate()
    used.record(2000, 0)

    assert used.excess_ms(100, 0) == pytest.approx(10_000)
    assert used.excess_ms(200, 0) == 0
    assert used.excess_ms(200, 0, more=1000) == pytest.approx(5000)
    assert used.total(0) == 2000


def test_a_limit_of_nothing_has_everybody_wait_for_a_window() -> None:
    """And not for ever."""
    used = rate()
    used.record(1, 0)

    assert used.excess_ms(0, 0) == 10_000


@examples(100)
@given(
    st.floats(1, 1e6),
    st.lists(st.tuples(st.floats(0, 3000), st.floats(0, 1e7)), min_size=1, max_size=60),
)
def test_whoever_waits_as_told_stays_within_the_limit(limit: float, steps: list[tuple[float, float]]) -> None:
    """Roughly: after a wait that is longer than the window a new one begins, which is twice the limit at worst."""
    used = rate()
    now = total = 0.0
    largest = max(amount for _, amount in steps)
    for pause, amount in steps:
        now += pause
        used.record(amount, now)
        total += amount
        now += used.excess_ms(limit, now)

    assert total <= 2 * limit * (now + 11_000) / 1000 + largest + 1


def test_a_bucket_begins_full_and_fills_at_the_limit() -> None:
    """It holds no more than a burst."""
    bucket = TokenBucket(burst_seconds=11)

    assert bucket.tokens(2, 0) == 22
    bucket.take(30, 2, 0)
    assert bucket.tokens(2, 0) == -8
    assert bucket.debt_ms(2, 0) == 4000
    assert bucket.debt_ms(2, 4000) == 0
    assert bucket.tokens(2, 5000) == 2
    assert bucket.tokens(2, 60_000) == 22
