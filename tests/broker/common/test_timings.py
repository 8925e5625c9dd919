"""What is counted, and how it is shown."""

from __future__ import annotations

import pytest

from ottla.broker.common.timings import BUCKETS, RequestMetrics, Timing
from ottla.protocol.api import Api


def test_a_quantile_is_the_upper_end_of_its_bucket() -> None:
    """Half of the requests took no longer than the median says."""
    timing = Timing()
    for seconds in (0.001, 0.001, 0.002, 0.1):
        timing.add(seconds)

    assert 0.001 <= timing.quantile(0.5, 4) < 0.0016
    assert 0.1 <= timing.quantile(0.99, 4) < 0.16


def test_requests_without_a_phase_took_no_time_in_it() -> None:
    """Most requests never wait in purgatory."""
    timing = Timing()
    timing.add(0.5)

    assert timing.quantile(0.5, 10) == 0.0
    assert timing.quantile(0.99, 10) >= 0.5
    assert Timing().quantile(0.5, 0) == 0.0


def test_a_time_beyond_all_buckets_is_the_last_one() -> None:
    """Nothing is lost."""
    timing = Timing()
    timing.add(10_000.0)

    assert timing.quantile(0.5, 1) == BUCKETS[-1]


def test_requests_are_counted_by_api() -> None:
    """With the sum of their phases as total."""
    metrics = RequestMetrics()
    metrics.observe(Api.FETCH, 0.001, 0.002, 0.5, 0.001)

    timings = metrics.by_api[Api.FETCH]
    assert timings.requests == 1
    assert timings.total.total_seconds == pytest.approx(0.504)
