"""The table that benches print."""

from __future__ import annotations

from bench.support.report import MET, OUT_OF_REACH, SHORT, Results
from bench.support.rows import Row, at_least


def verdict_of(ottla: float, bare: float, kafka: float) -> list[str]:
    """The cells of a row whose goal is 1.2 times Kafka's speed."""
    row = Row("row", lambda _: {}, {"MB/s": at_least(1.2)})
    results = Results(["ottla", "bare", "kafka"], "bare")
    for contender, value in (("ottla", ottla), ("bare", bare), ("kafka", kafka)):
        results.add(row, contender, {"MB/s": value})
    return [cell.strip() for cell in results.table().splitlines()[1].split("  ") if cell.strip()]


def test_a_goal_that_the_limit_misses_is_out_of_reach() -> None:
    """No broker could meet it."""
    assert verdict_of(ottla=105, bare=110, kafka=100)[-1] == OUT_OF_REACH


def test_a_goal_that_the_limit_meets_is_ours_to_meet() -> None:
    """Then being short of it is our fault."""
    assert verdict_of(ottla=105, bare=130, kafka=100)[-1] == SHORT
    assert verdict_of(ottla=125, bare=130, kafka=100)[-1] == MET


def test_both_rivals_are_shown_beside_the_limit() -> None:
    """And then beside each other."""
    cells = verdict_of(ottla=120, bare=200, kafka=100)
    assert cells == ["row", "MB/s", "120", "200", "100", "0.60", "0.50", "1.20", ">= 1.2", MET]


def test_two_contenders_are_compared_without_a_limit() -> None:
    """One that is the limit is not a rival: there is nothing to judge then."""
    row = Row("row", lambda _: {}, {"MB/s": at_least(1.2)})
    compared, limited = Results(["ottla", "kafka"]), Results(["ottla", "bare"], "bare")
    for results, other in ((compared, "kafka"), (limited, "bare")):
        results.add(row, "ottla", {"MB/s": 110.0})
        results.add(row, other, {"MB/s": 100.0})

    assert compared.table().splitlines()[1].split() == ["row", "MB/s", "110", "100", "1.10", ">=", "1.2", SHORT]
    assert limited.table().splitlines()[1].split() == ["row", "MB/s", "110", "100", "1.10"]
