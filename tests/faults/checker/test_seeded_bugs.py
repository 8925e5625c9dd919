"""The checker is trusted because it turns red for each bug that was put in, by the right rule, and only then."""

from __future__ import annotations

import pytest
from tests.faults.checker.anomaly import Rule
from tests.faults.checker.check import Verdict, check
from tests.faults.checker.fake_cluster import Bug, FakeCluster
from tests.faults.checker.truth import Outcome

EXPECTED = {
    Bug.DROP_ACKED_RECORD: {Rule.LOST_ACKED_WRITE},
    # The next record takes the offset of the one that went with its leader.
    Bug.ACK_BEFORE_REPLICATION: {Rule.LOST_ACKED_WRITE, Rule.INCONSISTENT_OFFSET, Rule.REAL_TIME_OFFSET},
    Bug.DUPLICATE_ON_RETRY: {Rule.DUPLICATE},
    Bug.WATERMARK_BACK: {Rule.WATERMARK_BACK},
    Bug.TWO_LEADERS: {Rule.TWO_LEADERS},
    Bug.SERVE_ABOVE_WATERMARK: {Rule.UNCOMMITTED_READ},
    Bug.REUSE_OFFSET_AFTER_TRUNCATION: {Rule.INCONSISTENT_OFFSET, Rule.REAL_TIME_OFFSET, Rule.LOST_READ},
    Bug.SWAP_TWO_RECORDS: {Rule.REORDERING},
    Bug.LOSE_TAIL: {Rule.LOST_ACKED_WRITE, Rule.LOST_READ, Rule.WATERMARK_BACK},
    Bug.SKIP_ON_POLL: {Rule.POLL_SKIP},
    Bug.SKIP_INSIDE_POLL: {Rule.INTERNAL_SKIP},
    Bug.DELIVER_TWICE: {Rule.NON_MONOTONIC_POLL},
    Bug.LOSE_POSITION: {Rule.LOST_POSITION},
    Bug.INVERT_INSIDE_POLL: {Rule.INTERNAL_INVERSION},
    Bug.APPEND_WHAT_FAILED: {Rule.ABORTED_READ},
    Bug.SKIP_AN_OFFSET: {Rule.OFFSET_GAP},
    Bug.INVENT_A_VALUE: {Rule.UNKNOWN_VALUE},
    Bug.EPOCH_BACK: {Rule.EPOCH_BACK, Rule.TWO_LEADERS},
    Bug.DAMAGE_ONE_REPLICA: {Rule.DIVERGENCE},
    Bug.LOSE_A_COMMIT: {Rule.COMMITTED_BACK},
    Bug.TAKE_A_COMMIT_OF_AN_OLD_MEMBER: {Rule.COMMITTED_BACK},
    Bug.SKIP_WHAT_IS_NOT_COMMITTED: {Rule.COMMITTED_UNREAD},
    Bug.TWO_OWNERS: {Rule.TWO_OWNERS},
}


def test_a_cluster_without_a_bug_is_valid() -> None:
    """Green, with all that a run should have: acks, refusals, faults with proofs, reads."""
    report = check(FakeCluster().run())

    assert report.verdict is Verdict.VALID, report
    assert report.outcomes[Outcome.OK] > 100
    assert report.outcomes[Outcome.FAIL] == 3
    assert len(report.faults) == 3
    assert not report.stuck


@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.name.lower())
def test_each_bug_breaks_exactly_its_rules(bug: Bug) -> None:
    """Red, by the rules that say what went wrong and by no other."""
    report = check(FakeCluster(bug).run())

    assert report.verdict is Verdict.INVALID
    assert report.broken_rules == EXPECTED[bug], report


def test_every_rule_is_broken_by_some_bug() -> None:
    """No rule is trusted that has never been seen red."""
    assert set(Rule) == set().union(*EXPECTED.values())
