"""The checker is trusted because it turns red for each bug that was put in, by the right rule, and only then."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.faults.checker.anomaly import Rule
from tests.faults.checker.check import Verdict, check
from tests.faults.checker.fake_cluster import Bug, FakeCluster
from tests.faults.checker.fake_transactions import FakeTransactions, TransactionBug
from tests.faults.checker.transactions import Ending
from tests.faults.checker.truth import Outcome
from tests.kit.examples import examples

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
EXPECTED_OF_TRANSACTIONS = {
    TransactionBug.SHOW_AN_ABORTED_TRANSACTION: {Rule.ABORTED_READ},
    TransactionBug.SHOW_WHAT_WAS_HIDDEN_ONCE: {Rule.ABORTED_READ, Rule.LOST_READ},
    TransactionBug.HIDE_A_COMMITTED_TRANSACTION: {Rule.LOST_COMMITTED_WRITE},
    TransactionBug.HIDE_A_PLAIN_RECORD: {Rule.LOST_ACKED_WRITE},
    TransactionBug.ABORT_IN_ONE_PARTITION: {Rule.TORN_TRANSACTION},
    TransactionBug.ABORT_IN_ONE_PARTITION_IN_DOUBT: {Rule.TORN_TRANSACTION},
    # The two sides of a request that comes late and means the next transaction.
    TransactionBug.LATE_ABORT_ENDS_THE_NEXT: {Rule.TORN_TRANSACTION},
    TransactionBug.LATE_COMMIT_ENDS_THE_NEXT: {Rule.ABORTED_READ},
    TransactionBug.STORE_A_RETRY: {Rule.DUPLICATE},
    TransactionBug.SHOW_WHAT_IS_NOT_REPLICATED: {Rule.INCONSISTENT_OFFSET, Rule.LOST_READ, Rule.REAL_TIME_OFFSET},
    TransactionBug.SHOW_OPEN_TO_OTHERS: {Rule.PRECOMMITTED_READ},
    TransactionBug.SHOW_OPEN_TO_ITSELF: {Rule.PRECOMMITTED_READ},
    TransactionBug.READ_PAST_THE_STABLE_OFFSET: {Rule.PRECOMMITTED_READ, Rule.UNSTABLE_READ},
    TransactionBug.SHOW_OPEN_TO_EACH_OTHER: {Rule.PRECOMMITTED_READ, Rule.CIRCULAR_READS},
    TransactionBug.SKIP_A_COMMITTED_RECORD: {Rule.POLL_SKIP},
    TransactionBug.APPLY_OFFSETS_OF_AN_ABORT: {Rule.OFFSET_WITHOUT_OUTPUT},
    TransactionBug.DROP_OFFSETS_OF_A_COMMIT: {Rule.OUTPUT_WITHOUT_OFFSET, Rule.COMMITTED_BACK},
    TransactionBug.TAKE_OFFSETS_OF_AN_OLD_MEMBER: {Rule.TAKEN_TWICE, Rule.COMMITTED_BACK},
    TransactionBug.TELL_AN_OLD_OFFSET: {Rule.COMMITTED_BACK},
    TransactionBug.STABLE_OFFSET_BACK: {Rule.STABLE_BACK},
    TransactionBug.STABLE_OFFSET_BACK_AFTER_FAILOVER: {Rule.STABLE_BACK},
    TransactionBug.LOSE_THE_LAST_MARKER: {Rule.STABLE_BEHIND},
}
schedules = given(seed=st.integers(0, 2**32))


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


@examples(40)
@schedules
def test_transactions_without_a_bug_are_valid(seed: int) -> None:
    """Green whatever the schedule is, with outcomes of each kind: also writes that alternate, and commits in doubt."""
    report = check(FakeTransactions(seed).run())

    assert report.verdict is Verdict.VALID, report
    assert report.endings[Ending.COMMITTED] > 5


@pytest.mark.parametrize("bug", TransactionBug, ids=lambda bug: bug.name.lower())
@examples(5)
@schedules
def test_each_bug_of_transactions_breaks_exactly_its_rules(bug: TransactionBug, seed: int) -> None:
    """Red in every schedule that gives it an opportunity."""
    cluster = FakeTransactions(seed, bug)
    report = check(cluster.run())
    assume(cluster.has_misbehaved)

    assert report.verdict is Verdict.INVALID
    assert report.broken_rules == EXPECTED_OF_TRANSACTIONS[bug], report


def test_every_rule_is_broken_by_some_bug() -> None:
    """No rule is trusted that has never been seen red."""
    assert set(Rule) == set().union(*EXPECTED.values(), *EXPECTED_OF_TRANSACTIONS.values())
