"""What must have become of each transaction, and of the positions that groups committed in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults.checker.history import (
    NO_TRANSACTION,
    BeginTransaction,
    Commit,
    EndTransaction,
    History,
    Invoke,
    Poll,
    PolledRecord,
    StageOffsets,
    TransactionEnded,
)
from tests.faults.checker.truth import Outcome, PartitionTruth, Read, Send, Truth


class Ending(StrEnum):
    """How a transaction ended, as far as its worker can know."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    # A commit was asked for, and may have happened.
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Transaction:
    """One transaction of a worker."""

    worker: str
    number: int
    begun_ns: int | None = None
    sends: list[Send] = field(default_factory=list)
    reads: list[PolledRecord] = field(default_factory=list)
    staged: list[StageOffsets] = field(default_factory=list)
    commit_asked_ns: int | None = None
    # The first request to end it counts: whoever asks for a commit after an abort must be refused.
    end: EndTransaction | None = None
    answer: TransactionEnded | None = None

    @property
    def ending(self) -> Ending:
        """Tell what is known; nothing is committed that nobody asked to commit."""
        if self.commit_asked_ns is None:
            return Ending.ABORTED
        match self.answer:
            case TransactionEnded(outcome="ok"):
                return Ending.COMMITTED
            case TransactionEnded(outcome="fail"):
                return Ending.ABORTED
            case _:
                return Ending.UNKNOWN

    @property
    def written(self) -> list[Send]:
        """The sends that are part of it for certain."""
        return [send for send in self.sends if send.outcome is Outcome.OK]

    def __str__(self) -> str:
        told = f", {self.answer.error}" if self.answer is not None and self.answer.error else ""
        return f"transaction {self.number} of {self.worker} ({self.ending}{told})"


@dataclass(slots=True)
class Transactions:
    """All transactions of a run, and the partitions that they wrote to."""

    truth: Truth
    by_name: dict[tuple[str, int], Transaction] = field(default_factory=dict)
    # Which transaction sent a value.
    writers: dict[str, Transaction] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def partition_of(self, send: Send) -> PartitionTruth:
        """Return the partition that a value was sent to."""
        return self.truth.partition(send.invoked.partition)

    def committed_reads(self, send: Send) -> list[Read]:
        """Return the reads of a value by readers that asked for read_committed."""
        return [read for read in self.partition_of(send).reads_of.get(send.value, []) if read.is_committed]

    def is_visible(self, send: Send) -> bool:
        """Whether readers with read_committed see a value in the end."""
        return send.value in self.partition_of(send).committed_in_the_end

    def is_excused(self, transaction: Transaction) -> bool:
        """Whether the power went after it began: its records, its markers or the decision may have gone with it."""
        lost_ns = self.truth.power_lost_ns
        return lost_ns is not None and (transaction.begun_ns or 0) < lost_ns

    def offset_commits(self) -> Iterator[Commit]:
        """Go through the positions of groups that were committed for certain, as of the answer to the commit.

        The coordinator of the group has each of them since before the commit was asked for. It tells no other position
        from then on, to those who want stable ones.
        """
        for transaction in self:
            if transaction.ending is not Ending.COMMITTED or self.is_excused(transaction):
                continue
            assert transaction.answer is not None
            for staged in transaction.staged:
                for partition, offset in staged.offsets:
                    yield Commit(
                        time_ns=transaction.answer.time_ns,
                        worker=transaction.worker,
                        group=staged.group,
                        partition=partition,
                        offset=offset,
                        invoked_ns=staged.time_ns,
                    )


def transactions_of(history: History, truth: Truth) -> Transactions:
    """Collect the transactions of a history, of which the partitions are known already.

    What they commit for their groups joins what is known of the partitions. A transaction that nobody began, and a
    second answer, are contradictions of the history.
    """
    transactions = Transactions(truth)
    by_name = transactions.by_name

    def named(worker: str, number: int) -> Transaction:
        return by_name.setdefault((worker, number), Transaction(worker, number))

    sends = {send.value: send for send in truth.sends()}
    for event in history.events:
        match event:
            case BeginTransaction():
                transaction = named(event.worker, event.transaction)
                if transaction.begun_ns is not None:
                    truth.contradictions.append(f"{event.worker} begins {event.transaction} twice")
                transaction.begun_ns = event.time_ns
            case Invoke() if event.transaction != NO_TRANSACTION:
                transaction = named(event.worker, event.transaction)
                transaction.sends.append(sends[event.value])
                transactions.writers[event.value] = transaction
            case Poll() if event.transaction != NO_TRANSACTION:
                named(event.worker, event.transaction).reads.extend(event.records)
            case StageOffsets():
                named(event.worker, event.transaction).staged.append(event)
            case EndTransaction():
                transaction = named(event.worker, event.transaction)
                if transaction.end is None:
                    transaction.end = event
                    transaction.commit_asked_ns = event.time_ns if event.is_commit else None
            case TransactionEnded():
                transaction = named(event.worker, event.transaction)
                if transaction.end is None or transaction.answer is not None:
                    truth.contradictions.append(f"an answer to {transaction}, which waits for none")
                transaction.answer = event
            case _:
                pass
    truth.contradictions += [
        f"{transaction} writes, and never began"
        for transaction in transactions
        if transaction.begun_ns is None and (transaction.sends or transaction.staged or transaction.end)
    ]
    for commit in transactions.offset_commits():
        truth.partition(commit.partition).commits.append(commit)
    return transactions
