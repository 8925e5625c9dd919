"""A cluster in memory with transactions, which keeps every promise, or breaks one on demand.

Everybody in it is a generator that yields between any two steps in which others may do something. Who goes on next is
left to chance, so each seed is another schedule.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from typing import Literal

from tests.faults.checker.history import (
    NO_TRANSACTION,
    Assign,
    BeginTransaction,
    Commit,
    Drain,
    EndTransaction,
    Event,
    History,
    Info,
    Invoke,
    Ok,
    Poll,
    PolledMarker,
    PolledRecord,
    StageOffsets,
    TransactionEnded,
    Watermark,
    in_order,
)

INPUTS = ("in-0", "in-1")
OUTPUTS = ("out-0", "out-1")
PARTITIONS = (*INPUTS, *OUTPUTS)
GROUP = "transformers"
WRITERS = ("w0", "w1", "w2")
TRANSFORMERS = ("t0", "t1")
TRANSACTIONS = 8
STEP_NS = 1_000_000
# The marker of a transaction that has staged offsets goes to the group, too.
OFFSETS = "offsets"

Steps = Iterator[None]
Outcome = Literal["commit", "abort", "doubt", "crash"]
_OUTCOMES: tuple[Outcome, ...] = (*("commit",) * 8, "abort", "abort", "doubt", "crash")
_OVER = object()


class TransactionBug(Enum):
    """The promises that it can break."""

    SHOW_AN_ABORTED_TRANSACTION = auto()
    SHOW_WHAT_WAS_HIDDEN_ONCE = auto()
    HIDE_A_COMMITTED_TRANSACTION = auto()
    HIDE_A_PLAIN_RECORD = auto()
    ABORT_IN_ONE_PARTITION = auto()
    ABORT_IN_ONE_PARTITION_IN_DOUBT = auto()
    LATE_ABORT_ENDS_THE_NEXT = auto()
    LATE_COMMIT_ENDS_THE_NEXT = auto()
    STORE_A_RETRY = auto()
    SHOW_WHAT_IS_NOT_REPLICATED = auto()
    SHOW_OPEN_TO_OTHERS = auto()
    SHOW_OPEN_TO_ITSELF = auto()
    READ_PAST_THE_STABLE_OFFSET = auto()
    SHOW_OPEN_TO_EACH_OTHER = auto()
    SKIP_A_COMMITTED_RECORD = auto()
    APPLY_OFFSETS_OF_AN_ABORT = auto()
    DROP_OFFSETS_OF_A_COMMIT = auto()
    TAKE_OFFSETS_OF_AN_OLD_MEMBER = auto()
    TELL_AN_OLD_OFFSET = auto()
    STABLE_OFFSET_BACK = auto()
    STABLE_OFFSET_BACK_AFTER_FAILOVER = auto()
    LOSE_THE_LAST_MARKER = auto()


@dataclass(eq=False, slots=True)
class _Transaction:
    """What the coordinator knows of one."""

    worker: str
    number: int
    producer_id: int
    partitions: set[str] = field(default_factory=set)
    staged: dict[str, int] = field(default_factory=dict)
    # Who still has to hear how it ended.
    waiting: set[str] = field(default_factory=set)
    is_committed: bool | None = None
    # Bugs: a partition that hears the opposite, and readers that take it for the opposite.
    torn_in: str | None = None
    is_mistaken: bool = False

    @property
    def is_over(self) -> bool:
        """Whether everybody knows how it ended."""
        return self.is_committed is not None and not self.waiting


@dataclass(slots=True)
class _Stored:
    """What a log holds at an offset: a value, or a marker."""

    value: str
    transaction: _Transaction | None
    is_marker: bool = False
    is_commit: bool = False
    # The offset of the marker that ended it here.
    ended_at: int | None = None
    is_hidden: bool = False


@dataclass(slots=True)
class _Log:
    """One partition; it is led by one broker after the other, and a new leader learns late what is replicated."""

    name: str
    stored: list[_Stored] = field(default_factory=list)
    high_watermark: int = 0
    leader_epoch: int = 0

    @property
    def leader(self) -> int:
        """Who leads in this epoch."""
        return self.leader_epoch % 3 + 1

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction without a marker below the high watermark."""
        for offset, one in enumerate(self.stored[: self.high_watermark]):
            is_plain = one.transaction is None or one.is_marker
            if not is_plain and (one.ended_at is None or one.ended_at >= self.high_watermark):
                return offset
        return self.high_watermark

    def append(self, value: str, transaction: _Transaction | None) -> int:
        """Store a value; return its offset."""
        self.stored.append(_Stored(value, transaction))
        return len(self.stored) - 1

    def mark(self, transaction: _Transaction, *, is_commit: bool) -> None:
        """End a transaction here."""
        offset = len(self.stored)
        self.stored.append(_Stored("", transaction, is_marker=True, is_commit=is_commit, ended_at=offset))
        for one in self.stored[:offset]:
            if one.transaction is transaction and one.ended_at is None:
                one.ended_at, one.is_hidden = offset, is_commit == transaction.is_mistaken


class FakeTransactions:
    """Writers, workers that transform, plain producers and readers, on four partitions."""

    def __init__(self, seed: int, bug: TransactionBug | None = None) -> None:
        self._chance = random.Random(seed)
        self._bug = bug
        self.has_misbehaved = False
        self._events: list[Event] = []
        self._now_ns = 0
        self._ops: dict[str, Iterator[int]] = {}
        self._numbers: dict[str, Iterator[int]] = {}
        self._producer_ids = count(100)
        self._logs = {name: _Log(name) for name in PARTITIONS}
        self._open: list[_Transaction] = []
        self._positions: dict[tuple[str, str], int] = {}
        # The group: who owns what in which generation, and how far it is.
        self._generation = 0
        self._owners = dict(zip(INPUTS, TRANSFORMERS, strict=True))
        self._committed = dict.fromkeys(INPUTS, 0)
        self._is_transforming = True

    def run(self) -> History:
        """Let all work until the writers and the plain producer are done, then end and read everything."""
        writers = [self._write(worker) for worker in WRITERS]
        others = [self._produce(), *map(self._transform, TRANSFORMERS)]
        if self._bug is TransactionBug.SHOW_OPEN_TO_EACH_OTHER:
            writers.append(self._read_from_each_other())
        if self._bug is TransactionBug.TAKE_OFFSETS_OF_AN_OLD_MEMBER:
            others.append(self._transform_as_a_zombie())
        background = [self._replicate(), self._send_markers(), self._rebalance(), self._observe(), self._fail_over()]
        self._run(writers, [*others, *background])
        self._is_transforming = False
        self._run(others, background)
        self._end()
        return in_order(self._events)

    # Time and chance

    def _run(self, awaited: list[Steps], others: list[Steps]) -> None:
        """Let one after the other go on, by chance, until those that are awaited have ended."""
        running = [*awaited, *others]
        while any(one in awaited for one in running):
            chosen = self._chance.choice(running)
            if next(chosen, _OVER) is _OVER:
                running.remove(chosen)

    def _tick(self) -> int:
        self._now_ns += STEP_NS
        return self._now_ns

    def _write_down(self, event: Event) -> None:
        self._events.append(event)

    def _misbehaves(self, *bugs: TransactionBug) -> bool:
        """Whether it is time for the bug, which comes once."""
        if self.has_misbehaved or self._bug not in bugs:
            return False
        self.has_misbehaved = True
        return True

    def _number(self, worker: str) -> int:
        return next(self._numbers.setdefault(worker, count()))

    # Transactions

    def _begin(self, worker: str, number: int) -> _Transaction:
        self._write_down(BeginTransaction(time_ns=self._tick(), worker=worker, transaction=number))
        transaction = _Transaction(worker, number, next(self._producer_ids))
        self._open.append(transaction)
        return transaction

    def _send(
        self, worker: str, partition: str, transaction: _Transaction | None, source: tuple[str, int] | None = None
    ) -> Steps:
        """Send a value and wait until it is acknowledged."""
        op = next(self._ops.setdefault(worker, count()))
        value = f"{worker}-{op}"
        log = self._logs[partition]
        self._write_down(
            Invoke(
                time_ns=self._tick(),
                worker=worker,
                op=op,
                partition=partition,
                value=value,
                source=source,
                transaction=NO_TRANSACTION if transaction is None else transaction.number,
            )
        )
        if transaction is not None:
            transaction.partitions.add(partition)
        yield
        offset = log.append(value, transaction)
        if transaction is None:
            log.stored[offset].is_hidden = self._misbehaves(TransactionBug.HIDE_A_PLAIN_RECORD)
        elif self._misbehaves(TransactionBug.STORE_A_RETRY):
            offset = log.append(value, transaction)
        while log.high_watermark <= offset:
            yield
        self._write_down(Ok(time_ns=self._tick(), worker=worker, op=op, offset=offset))

    def _stage(self, transaction: _Transaction, offsets: dict[str, int], generation: int) -> bool:
        """Give positions to a transaction; return whether the member is still one."""
        self._write_down(
            StageOffsets(
                time_ns=self._tick(),
                worker=transaction.worker,
                transaction=transaction.number,
                group=GROUP,
                offsets=tuple(offsets.items()),
            )
        )
        if generation != self._generation:
            return False
        transaction.staged.update(offsets)
        return True

    def _end_transaction(self, transaction: _Transaction, outcome: Outcome) -> Steps:
        """Commit, abort, do one of both in doubt, or go away; yields until the coordinator has decided."""
        worker, number = transaction.worker, transaction.number
        if outcome != "crash":
            is_commit = outcome != "abort"
            self._write_down(
                EndTransaction(time_ns=self._tick(), worker=worker, transaction=number, is_commit=is_commit)
            )
        yield
        is_committed = outcome == "commit" or (outcome == "doubt" and self._chance.random() < 0.5)
        self._decide(transaction, outcome, is_committed=is_committed)
        yield
        if outcome in ("commit", "abort"):
            self._write_down(TransactionEnded(time_ns=self._tick(), worker=worker, transaction=number, outcome="ok"))
        elif outcome == "doubt":
            self._write_down(
                TransactionEnded(
                    time_ns=self._tick(), worker=worker, transaction=number, outcome="info", error="timed out"
                )
            )

    def _decide(self, transaction: _Transaction, outcome: Outcome, *, is_committed: bool) -> None:
        transaction.is_committed = is_committed
        transaction.waiting = set(transaction.partitions) | ({OFFSETS} if transaction.staged else set())
        self._break_the_decision(transaction, outcome)

    def _break_the_decision(self, transaction: _Transaction, outcome: Outcome) -> None:
        values = {
            name: [one for one in self._logs[name].stored if one.transaction is transaction and not one.is_marker]
            for name in transaction.partitions
        }
        written = [name for name in sorted(values) if values[name]]
        match outcome:
            case "abort" if transaction.worker in WRITERS and written:
                if self._misbehaves(TransactionBug.SHOW_AN_ABORTED_TRANSACTION):
                    transaction.is_mistaken = True
                elif self._misbehaves(TransactionBug.LATE_COMMIT_ENDS_THE_NEXT):
                    transaction.is_committed = True
                elif self._misbehaves(TransactionBug.SHOW_WHAT_WAS_HIDDEN_ONCE):
                    self._peek(written[0], values[written[0]][0].value)
            case "commit" if transaction.worker in WRITERS and written:
                if self._misbehaves(TransactionBug.HIDE_A_COMMITTED_TRANSACTION):
                    transaction.is_mistaken = True
                elif len(written) > 1 and self._misbehaves(TransactionBug.ABORT_IN_ONE_PARTITION):
                    transaction.torn_in = written[0]
            case "doubt" if transaction.worker in WRITERS and len(written) > 1:
                if self._misbehaves(TransactionBug.ABORT_IN_ONE_PARTITION_IN_DOUBT):
                    transaction.torn_in = written[0]
            case "abort" if transaction.worker in TRANSFORMERS and transaction.staged:
                if self._misbehaves(TransactionBug.APPLY_OFFSETS_OF_AN_ABORT):
                    self._committed.update(transaction.staged)
            case "commit" if transaction.worker in TRANSFORMERS and transaction.staged:
                if self._misbehaves(TransactionBug.DROP_OFFSETS_OF_A_COMMIT):
                    transaction.staged.clear()
                    transaction.waiting.discard(OFFSETS)
                    # What comes later would hide it.
                    self._is_transforming = False
            case _:
                pass

    def _send_markers(self) -> Steps:
        """Tell partitions and the group how transactions ended, in any order."""
        while True:
            ended = [transaction for transaction in self._open if transaction.waiting]
            if ended:
                transaction = self._chance.choice(ended)
                self._mark(transaction, self._chance.choice(sorted(transaction.waiting)))
            yield

    def _mark(self, transaction: _Transaction, where: str) -> None:
        transaction.waiting.remove(where)
        is_commit = bool(transaction.is_committed) is not (where == transaction.torn_in)
        if where == OFFSETS:
            if is_commit:
                self._committed.update(transaction.staged)
        else:
            self._logs[where].mark(transaction, is_commit=is_commit)

    # The workers

    def _write(self, worker: str) -> Steps:
        """Transactions over several partitions, some with a look at what others have committed."""
        self._assign(worker, INPUTS)
        for _ in range(TRANSACTIONS):
            transaction = self._begin(worker, self._number(worker))
            outcome = self._chance.choice(_OUTCOMES)
            for turn in range(self._chance.randint(1, 5)):
                partition = self._chance.choice(INPUTS)
                yield from self._send(worker, partition, transaction)
                if turn == 0 and outcome == "commit" and self._misbehaves(TransactionBug.LATE_ABORT_ENDS_THE_NEXT):
                    self._logs[partition].mark(transaction, is_commit=False)
                    yield from self._send(worker, partition, transaction)
                if self._chance.random() < 0.3:
                    self._poll(worker, self._chance.choice(INPUTS), is_committed=True, transaction=transaction.number)
                yield
            if outcome == "commit":
                self._show_what_is_open(transaction)
            yield from self._end_transaction(transaction, outcome)
            while not transaction.is_over:
                yield

    def _show_what_is_open(self, transaction: _Transaction) -> None:
        for log in self._logs.values():
            for one in log.stored[: log.high_watermark]:
                if one.transaction is not transaction or one.is_marker:
                    continue
                if self._misbehaves(TransactionBug.SHOW_OPEN_TO_OTHERS):
                    self._peek(log.name, one.value)
                elif self._misbehaves(TransactionBug.READ_PAST_THE_STABLE_OFFSET):
                    self._peek(log.name, one.value, is_stable_shown=True)
                elif self._misbehaves(TransactionBug.SHOW_OPEN_TO_ITSELF):
                    self._peek(log.name, one.value, transaction.worker, transaction.number)
                    self._assign(transaction.worker, INPUTS)

    def _peek(
        self, partition: str, value: str, worker: str = "peek", transaction: int = -1, *, is_stable_shown: bool = False
    ) -> None:
        """Show one record to a reader with read_committed, whatever became of it."""
        log = self._logs[partition]
        offset = next(offset for offset, one in enumerate(log.stored) if one.value == value)
        self._write_down(Assign(time_ns=self._tick(), worker=worker, partitions=(partition,)))
        self._write_down(
            Poll(
                time_ns=self._tick(),
                worker=worker,
                records=(PolledRecord(partition, offset, value),),
                watermarks=(self._watermark(log),) if is_stable_shown else (),
                is_committed=True,
                transaction=transaction,
            )
        )

    def _read_from_each_other(self) -> Steps:
        """Two transactions that are open together; each gets to see what the other has sent."""
        pair = [self._begin(worker, 0) for worker in ("x", "y")]
        for transaction in pair:
            yield from self._send(transaction.worker, OUTPUTS[0], transaction)
        self.has_misbehaved = True
        for transaction, other in zip(pair, reversed(pair), strict=True):
            self._peek(OUTPUTS[0], f"{other.worker}-0", transaction.worker, transaction.number)
        for transaction in pair:
            yield from self._end_transaction(transaction, "commit")

    def _produce(self) -> Steps:
        """Records outside of any transaction."""
        for _ in range(10):
            yield from self._send("plain", self._chance.choice(INPUTS), None)

    def _transform(self, worker: str) -> Steps:
        """Read what is committed in the partitions that it owns, write it to others, and commit both together."""
        while self._is_transforming:
            generation = self._generation
            owned = [name for name, owner in self._owners.items() if owner == worker]
            # Nobody begins at a position that may still change.
            while any(self._is_staged(name) for name in owned):
                yield
            self._assign(worker, tuple(owned))
            for name in owned:
                self._positions[worker, name] = self._committed[name]
            yield from self._read_on(worker, owned, generation)

    def _read_on(self, worker: str, owned: list[str], generation: int) -> Steps:
        """One transaction after the other, until one is not committed or somebody else may own the partitions."""
        is_going_on = True
        while is_going_on and self._is_transforming and generation == self._generation:
            number = self._number(worker)
            records = [record for name in owned for record in self._poll(worker, name, transaction=number)]
            yield
            if records:
                is_going_on = yield from self._transform_records(worker, number, records, generation)

    def _transform_records(
        self, worker: str, number: int, records: list[PolledRecord], generation: int
    ) -> Generator[None, None, bool]:
        """One transaction; returns whether its worker knows that it was committed."""
        transaction = self._begin(worker, number)
        for record in records:
            source = (record.partition, record.offset)
            yield from self._send(worker, self._chance.choice(OUTPUTS), transaction, source)
        offsets = {record.partition: record.offset + 1 for record in records}
        is_member = self._stage(transaction, offsets, generation)
        outcome = self._chance.choice(_OUTCOMES) if is_member else "abort"
        yield from self._end_transaction(transaction, outcome)
        while not transaction.is_over:
            yield
        return outcome == "commit"

    def _transform_as_a_zombie(self) -> Steps:
        """A member that the group has forgotten, and whose commit is taken all the same."""
        name, worker = INPUTS[0], "t2"
        while True:
            self._positions[worker, name] = self._committed[name]
            self._assign(worker, (name,))
            records = self._poll(worker, name, transaction=0)
            if records:
                break
            if not self._is_transforming:
                return
            yield
        transaction = self._begin(worker, 0)
        for record in records:
            yield from self._send(worker, OUTPUTS[0], transaction, (name, record.offset))
        while self._committed[name] <= records[-1].offset + 1:
            if not self._is_transforming:
                yield from self._end_transaction(transaction, "abort")
                return
            yield
        while self._is_staged(name):
            yield
        self._tell_offset(name, self._committed[name])
        self.has_misbehaved = True
        self._stage(transaction, {name: records[-1].offset + 1}, self._generation)
        transaction.staged.clear()
        yield from self._end_transaction(transaction, "commit")

    def _is_staged(self, partition: str) -> bool:
        return any(
            partition in transaction.staged and (transaction.is_committed is None or OFFSETS in transaction.waiting)
            for transaction in self._open
        )

    # What happens around them

    def _replicate(self) -> Steps:
        while True:
            log = self._chance.choice(list(self._logs.values()))
            log.high_watermark = self._chance.randint(log.high_watermark, len(log.stored))
            yield

    def _rebalance(self) -> Steps:
        while True:
            if self._chance.random() < 0.005:
                self._generation += 1
                self._owners = {name: self._chance.choice(TRANSFORMERS) for name in INPUTS}
            yield

    def _fail_over(self) -> Steps:
        """Let a new leader take over, which has all that is replicated and does not know it yet."""
        while True:
            if self._chance.random() < 0.05:
                log = self._chance.choice(list(self._logs.values()))
                log.leader_epoch += 1
                log.high_watermark = self._chance.randint(max(0, log.high_watermark - 3), log.high_watermark)
            yield

    # Readers

    def _observe(self) -> Steps:
        """One reader of each isolation level, and somebody who asks for the group's positions."""
        self._assign("raw", PARTITIONS)
        self._assign("committed", PARTITIONS)
        told = dict.fromkeys(INPUTS, 0)
        while True:
            name = self._chance.choice(PARTITIONS)
            self._poll("raw", name, is_committed=False, is_observer=True)
            yield
            self._poll("committed", self._chance.choice(PARTITIONS), is_observer=True)
            yield
            name = self._chance.choice(INPUTS)
            if not self._is_staged(name):
                if told[name] > 3 and self._misbehaves(TransactionBug.TELL_AN_OLD_OFFSET):
                    self._tell_offset(name, told[name] - 1)
                else:
                    told[name] = self._committed[name]
                    self._tell_offset(name, told[name])

    def _tell_offset(self, partition: str, offset: int) -> None:
        invoked_ns = self._tick()
        self._write_down(
            Commit(
                time_ns=self._tick(),
                worker="coordinator",
                group=GROUP,
                partition=partition,
                offset=offset,
                invoked_ns=invoked_ns,
            )
        )

    def _assign(self, worker: str, partitions: tuple[str, ...]) -> None:
        self._write_down(Assign(time_ns=self._tick(), worker=worker, partitions=partitions))

    def _watermark(self, log: _Log, stable: int | None = None) -> Watermark:
        known = log.last_stable_offset if stable is None else stable
        return Watermark(log.name, log.leader, log.leader_epoch, log.high_watermark, known)

    def _poll(
        self,
        worker: str,
        partition: str,
        *,
        is_committed: bool = True,
        is_observer: bool = False,
        transaction: int = -1,
    ) -> list[PolledRecord]:
        """Read on from the reader's position; only observers see watermarks and markers."""
        log = self._logs[partition]
        position = self._positions.setdefault((worker, partition), 0)
        end = log.last_stable_offset if is_committed else log.high_watermark
        stable: int | None = None
        if is_observer and is_committed and self._is_stable_wrong(log):
            stable, end = log.last_stable_offset - 1, position
        # A new leader may know less than its reader.
        found = list(enumerate(log.stored[position:end], position))
        self._positions[worker, partition] = max(position, end)
        records = [
            PolledRecord(partition, offset, one.value)
            for offset, one in found
            if not one.is_marker and not (is_committed and one.is_hidden)
        ]
        is_reading_on = worker == "committed" and len(records) > 1 and self._has_read(worker, partition)
        if is_reading_on and self._misbehaves(TransactionBug.SKIP_A_COMMITTED_RECORD):
            del records[0]
        markers = [
            PolledMarker(partition, offset, one.transaction.producer_id, 0, one.is_commit)
            for offset, one in found
            if one.is_marker and one.transaction is not None
        ]
        if records or is_observer:
            self._write_down(
                Poll(
                    time_ns=self._tick(),
                    worker=worker,
                    records=tuple(records),
                    watermarks=(self._watermark(log, stable),) if is_observer else (),
                    markers=tuple(markers) if is_observer else (),
                    is_committed=is_committed,
                    transaction=transaction,
                )
            )
        return records

    def _has_read(self, worker: str, partition: str) -> bool:
        return any(
            record.partition == partition
            for event in self._events
            if isinstance(event, Poll) and event.worker == worker
            for record in event.records
        )

    def _is_stable_wrong(self, log: _Log) -> bool:
        """Whether to show less than what was shown, with the same high watermark, in the same epoch or another."""
        if self._bug not in (
            TransactionBug.STABLE_OFFSET_BACK,
            TransactionBug.STABLE_OFFSET_BACK_AFTER_FAILOVER,
        ):
            return False
        shown = [
            seen
            for event in self._events
            if isinstance(event, Poll)
            for seen in event.watermarks
            if seen.partition == log.name and seen.last_stable_offset == log.last_stable_offset > 0
        ]
        if any(seen.leader_epoch == log.leader_epoch for seen in shown):
            return self._misbehaves(TransactionBug.STABLE_OFFSET_BACK)
        if any(seen.high_watermark <= log.high_watermark for seen in shown):
            return self._misbehaves(TransactionBug.STABLE_OFFSET_BACK_AFTER_FAILOVER)
        return False

    def _reuse_an_offset(self, log: _Log) -> None:
        """Show a record of an open transaction that goes with its leader; the next record takes its place."""
        self._begin("w9", 0)
        for op, transaction in ((0, 0), (1, NO_TRANSACTION)):
            value = f"w9-{op}"
            self._write_down(
                Invoke(
                    time_ns=self._tick(),
                    worker="w9",
                    op=op,
                    partition=log.name,
                    value=value,
                    transaction=transaction,
                )
            )
            if op == 0:
                self._assign("tail", (log.name,))
                record = PolledRecord(log.name, len(log.stored), value)
                self._write_down(Poll(time_ns=self._tick(), worker="tail", records=(record,)))
                self._write_down(Info(time_ns=self._tick(), worker="w9", op=op, error="timed out"))
            else:
                offset = log.append(value, None)
                self._write_down(Ok(time_ns=self._tick(), worker="w9", op=op, offset=offset))
        log.high_watermark = len(log.stored)

    def _end(self) -> None:
        """End all transactions, replicate everything, and read it with both isolation levels."""
        for transaction in self._open:
            if transaction.is_committed is None:
                self._decide(transaction, "crash", is_committed=False)
        for transaction in self._open:
            for where in sorted(transaction.waiting):
                self._mark(transaction, where)
        if self._misbehaves(TransactionBug.LOSE_THE_LAST_MARKER):
            last = self._begin("w9", 0)
            self._write_down(
                Invoke(time_ns=self._tick(), worker="w9", op=0, partition=INPUTS[0], value="w9-0", transaction=0)
            )
            self._logs[INPUTS[0]].append("w9-0", last)
        for log in self._logs.values():
            log.high_watermark = len(log.stored)
        if self._misbehaves(TransactionBug.SHOW_WHAT_IS_NOT_REPLICATED):
            self._reuse_an_offset(self._logs[INPUTS[0]])
        for name in INPUTS:
            self._tell_offset(name, self._committed[name])
        for worker, is_committed in (("drain", False), ("drain-committed", True)):
            self._assign(worker, PARTITIONS)
            for name in PARTITIONS:
                self._poll(worker, name, is_committed=is_committed, is_observer=True)
            self._write_down(Drain(time_ns=self._tick(), worker=worker, is_complete=True, is_committed=is_committed))
