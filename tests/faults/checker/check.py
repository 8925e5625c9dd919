"""Judge a history: `check(read_history(path)).verdict`, or `python -m tests.faults.checker.check FILE...`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.faults.checker.anomaly import Anomaly, Promises, Rule, RuleCheck, TransactionRuleCheck
from tests.faults.checker.atomicity import (
    aborted_transactions_read,
    circular_reads,
    lost_commits,
    reads_before_commit,
    torn_transactions,
)
from tests.faults.checker.availability import FaultReport, fault_reports
from tests.faults.checker.brokers import divergences, epochs_going_back, leaders_in_one_epoch, watermarks_going_back
from tests.faults.checker.exactly_once import disagreeing_offsets, inputs_taken_twice, last_positions
from tests.faults.checker.groups import commits_going_back, commits_of_what_nobody_read, owners_in_one_generation
from tests.faults.checker.history import History, read_history
from tests.faults.checker.polls import broken_polls, lost_positions, uncommitted_reads
from tests.faults.checker.sends import (
    aborted_reads,
    duplicates,
    inconsistent_offsets,
    is_sent_again,
    lost_acked_writes,
    lost_reads,
    offset_gaps,
    real_time_offsets,
    reorderings,
    unknown_values,
)
from tests.faults.checker.stability import stable_going_back, stable_staying_behind, unstable_reads
from tests.faults.checker.transactions import Ending, Transactions, transactions_of
from tests.faults.checker.truth import Outcome, Truth, truth_of

EXAMPLES_MAX = 8
# A run in which most sends ended in doubt proves nothing.
OK_SHARE_MIN = 0.6

RULES: tuple[RuleCheck, ...] = (
    lost_acked_writes,
    lost_reads,
    inconsistent_offsets,
    duplicates,
    aborted_reads,
    unknown_values,
    reorderings,
    real_time_offsets,
    offset_gaps,
    uncommitted_reads,
    broken_polls,
    lost_positions,
    commits_going_back,
    commits_of_what_nobody_read,
    owners_in_one_generation,
    watermarks_going_back,
    leaders_in_one_epoch,
    epochs_going_back,
    divergences,
    unstable_reads,
    stable_going_back,
    stable_staying_behind,
)
TRANSACTION_RULES: tuple[TransactionRuleCheck, ...] = (
    aborted_transactions_read,
    reads_before_commit,
    lost_commits,
    torn_transactions,
    circular_reads,
    disagreeing_offsets,
    inputs_taken_twice,
)


class Verdict(StrEnum):
    """Unknown is not green: the run does not show enough."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a run, and what it rests on."""

    verdict: Verdict
    anomalies: Sequence[Anomaly]
    doubts: Sequence[str]
    faults: Sequence[FaultReport]
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    endings: Counter[Ending] = field(default_factory=Counter)
    read_count: int = 0
    # Values that a client sent twice, in two epochs of its own.
    resent_count: int = 0
    is_drained: bool = False

    @property
    def broken_rules(self) -> set[Rule]:
        """Which rules were broken."""
        return {anomaly.rule for anomaly in self.anomalies}

    @property
    def stuck(self) -> list[str]:
        """What took too long."""
        slow = [str(fault) for fault in self.faults if fault.is_stuck]
        return slow if self.is_drained else [*slow, "the drain did not end"]

    def __str__(self) -> str:
        counts = Counter(anomaly.rule for anomaly in self.anomalies)
        lines = [
            f"verdict: {self.verdict}",
            "sends: " + ", ".join(f"{self.outcomes[outcome]} {outcome}" for outcome in Outcome),
            *(
                ["transactions: " + ", ".join(f"{self.endings[ending]} {ending}" for ending in Ending)]
                if self.endings
                else []
            ),
            f"records read: {self.read_count}",
            *([f"sent again by clients in a new epoch: {self.resent_count}"] if self.resent_count else []),
            *(f"fault: {fault}" for fault in self.faults),
            *(f"stuck: {what}" for what in self.stuck),
            *(f"in doubt: {doubt}" for doubt in self.doubts),
            *(f"broken: {rule}, {count} times" for rule, count in counts.most_common()),
            *(f"  {anomaly}" for anomaly in _examples(self.anomalies)),
        ]
        return "\n".join(lines)


def check(history: History, *, is_idempotent: bool = True, are_answers_exact: bool = True) -> Report:
    """Hold a history against all rules."""
    truth = truth_of(history)
    transactions = transactions_of(history, truth)
    promises = Promises(
        is_idempotent=is_idempotent,
        is_drained=bool(truth.drains),
        is_committed_drained=any(drain.is_committed for drain in truth.drains),
        are_answers_exact=are_answers_exact,
    )
    anomalies = [
        anomaly for partition in truth.partitions.values() for rule in RULES for anomaly in rule(partition, promises)
    ]
    anomalies += [anomaly for rule in TRANSACTION_RULES for anomaly in rule(transactions, promises)]
    faults = fault_reports(truth)
    outcomes = Counter(send.outcome for send in truth.sends())
    doubts = _doubts(history, truth, faults, outcomes) + _doubts_of_transactions(transactions, promises)
    return Report(
        verdict=Verdict.INVALID if anomalies else Verdict.UNKNOWN if doubts else Verdict.VALID,
        anomalies=anomalies,
        doubts=doubts,
        faults=faults,
        outcomes=outcomes,
        endings=Counter(transaction.ending for transaction in transactions),
        read_count=sum(len(partition.reads) for partition in truth.partitions.values()),
        resent_count=sum(
            is_sent_again(partition, value, producers.values())
            for partition in truth.partitions.values()
            for value, producers in partition.repeats().items()
        ),
        is_drained=truth.is_drained,
    )


def _doubts(history: History, truth: Truth, faults: list[FaultReport], outcomes: Counter[Outcome]) -> list[str]:
    doubts = list(truth.contradictions)
    if history.unreadable_lines:
        doubts.append(f"{history.unreadable_lines} lines of the history cannot be read")
    if not truth.is_drained:
        details = "; ".join(drain.detail for drain in truth.drains if not drain.is_complete)
        doubts.append(f"not everything was read in the end {details}".rstrip())
    share = (outcomes[Outcome.OK] + outcomes[Outcome.EXCUSED]) / max(1, outcomes.total())
    if share < OK_SHARE_MIN:
        doubts.append(f"only {share:.0%} of {outcomes.total()} sends were acknowledged")
    doubts += [f"no proof that there was {fault.name} of {fault.target}" for fault in faults if not fault.proof]
    return doubts


def _doubts_of_transactions(transactions: Transactions, promises: Promises) -> list[str]:
    if not len(transactions):
        return []
    doubts = []
    if not promises.is_committed_drained:
        doubts.append("nobody read everything with read_committed in the end")
    asked = [transaction.ending for transaction in transactions if transaction.commit_asked_ns is not None]
    share = asked.count(Ending.COMMITTED) / max(1, len(asked))
    if share < OK_SHARE_MIN:
        doubts.append(f"only {share:.0%} of {len(asked)} transactions that were to be committed were")
    doubts += [
        f"nobody asked for the position of {group} in {partition} after all transactions"
        for (group, partition), commit in last_positions(transactions).items()
        if commit is None
    ]
    return doubts


def _examples(anomalies: Sequence[Anomaly]) -> list[Anomaly]:
    """Choose the first few, of every broken rule before more of one."""
    ranked: list[tuple[int, Anomaly]] = []
    seen: Counter[Rule] = Counter()
    for anomaly in anomalies:
        ranked.append((seen[anomaly.rule], anomaly))
        seen[anomaly.rule] += 1
    ranked.sort(key=lambda pair: pair[0])
    return [anomaly for _, anomaly in ranked[:EXAMPLES_MAX]]


def main(paths: Sequence[str]) -> int:
    """Check the histories of one run; exit code 0 only for a valid one."""
    report = check(read_history(*map(Path, paths)))
    sys.stdout.write(f"{report}\n")
    return 0 if report.verdict is Verdict.VALID else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
