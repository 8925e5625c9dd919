"""The ways in which a run can break a promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tests.faults.checker.transactions import Transactions
from tests.faults.checker.truth import PartitionTruth


class Rule(StrEnum):
    """The names of the rules."""

    LOST_ACKED_WRITE = "lost acked write"
    LOST_READ = "lost read"
    INCONSISTENT_OFFSET = "inconsistent offset"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted read"
    UNKNOWN_VALUE = "unknown value"
    UNCOMMITTED_READ = "read of uncommitted"
    REORDERING = "reordering"
    REAL_TIME_OFFSET = "real-time offset"
    NON_MONOTONIC_POLL = "non-monotonic poll"
    POLL_SKIP = "poll skip"
    INTERNAL_INVERSION = "inversion inside a poll"
    INTERNAL_SKIP = "skip inside a poll"
    LOST_POSITION = "lost position"
    COMMITTED_BACK = "committed offset goes back"
    COMMITTED_UNREAD = "committed but not read"
    TWO_OWNERS = "two owners in one generation"
    OFFSET_GAP = "offset gap"
    WATERMARK_BACK = "high watermark goes back"
    TWO_LEADERS = "two leaders in one epoch"
    EPOCH_BACK = "epoch goes back"
    DIVERGENCE = "divergence of replicas"
    LOST_COMMITTED_WRITE = "lost committed write"
    TORN_TRANSACTION = "torn transaction"
    PRECOMMITTED_READ = "read before the commit"
    CIRCULAR_READS = "circular information flow"
    OFFSET_WITHOUT_OUTPUT = "committed offset without its output"
    OUTPUT_WITHOUT_OFFSET = "output without its committed offset"
    TAKEN_TWICE = "input taken twice"
    UNSTABLE_READ = "read above the last stable offset"
    STABLE_BACK = "last stable offset goes back"
    STABLE_BEHIND = "last stable offset stays behind"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One break of a rule, with what surrounds it."""

    rule: Rule
    partition: str
    detail: str
    surroundings: str = ""

    def __str__(self) -> str:
        around = f"\n      around it: {self.surroundings}" if self.surroundings else ""
        return f"{self.rule} in {self.partition}: {self.detail}{around}"


@dataclass(frozen=True, slots=True)
class Promises:
    """What this run was promised. Without idempotence, a retry may store a record twice, and change the order.

    An exact answer has the watermarks up to which its broker read. Those in an answer of Apache Kafka are from just
    before the read, which may go further.
    """

    is_idempotent: bool = True
    is_drained: bool = True
    # Also by a reader with read_committed.
    is_committed_drained: bool = False
    are_answers_exact: bool = True


RuleCheck: TypeAlias = Callable[[PartitionTruth, Promises], Iterator[Anomaly]]
TransactionRuleCheck: TypeAlias = Callable[[Transactions, Promises], Iterator[Anomaly]]
