"""Rules about transactions: all of one is read, or nothing of it, and nothing before it is committed.

Not a rule: that the writes of two transactions do not alternate in a partition (G0). Kafka does not isolate writes.
Nor that all partitions show a transaction at the same moment: each gets its marker at a time of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from tests.faults.checker.anomaly import Anomaly, Promises, Rule
from tests.faults.checker.transactions import Ending, Transaction, Transactions

VALUES_SHOWN_MAX = 3
_Name: TypeAlias = tuple[str, int]


def aborted_transactions_read(transactions: Transactions, promises: Promises) -> Iterator[Anomaly]:
    """A value of a transaction that surely was not committed, read with read_committed (G1a)."""
    for transaction in transactions:
        if transaction.ending is not Ending.ABORTED:
            continue
        for send in transaction.sends:
            for read in transactions.committed_reads(send)[:1]:
                partition = transactions.partition_of(send)
                detail = f"{transaction}: {read} with read_committed"
                yield Anomaly(Rule.ABORTED_READ, partition.name, detail, partition.surroundings(read.offset))


def reads_before_commit(transactions: Transactions, promises: Promises) -> Iterator[Anomaly]:
    """A value that a reader with read_committed had before its transaction was asked to commit, be it its own."""
    for transaction in transactions:
        asked_ns = transaction.commit_asked_ns
        if asked_ns is None:
            continue
        for send in transaction.sends:
            early = [read for read in transactions.committed_reads(send) if read.time_ns < asked_ns]
            for read in early[:1]:
                partition = transactions.partition_of(send)
                whose = "its own " if read.worker == transaction.worker else ""
                detail = f"{transaction}: {whose}{read} with read_committed, before the commit was asked for"
                yield Anomaly(Rule.PRECOMMITTED_READ, partition.name, detail, partition.surroundings(read.offset))


def lost_commits(transactions: Transactions, promises: Promises) -> Iterator[Anomaly]:
    """A committed transaction of which readers with read_committed see nothing in the end."""
    if not promises.is_committed_drained:
        return
    for transaction in transactions:
        if transaction.ending is not Ending.COMMITTED or transactions.is_excused(transaction):
            continue
        if not any(map(transactions.is_visible, transaction.written)):
            for send in transaction.written:
                partition = transactions.partition_of(send)
                detail = f"{transaction}: {send}, and is not there in the end"
                around = partition.surroundings(max(0, send.offset))
                yield Anomaly(Rule.LOST_COMMITTED_WRITE, partition.name, detail, around)


def torn_transactions(transactions: Transactions, promises: Promises) -> Iterator[Anomaly]:
    """A transaction of which readers with read_committed see one part in the end, and another part not."""
    if not promises.is_committed_drained:
        return
    for transaction in transactions:
        if transaction.ending is Ending.ABORTED or transactions.is_excused(transaction):
            continue
        there = [send for send in transaction.written if transactions.is_visible(send)]
        missing = [send for send in transaction.written if not transactions.is_visible(send)]
        if there and missing:
            partition = transactions.partition_of(missing[0])
            detail = (
                f"{transaction}: there in the end "
                f"{[f'{send.value} in {send.invoked.partition}' for send in there[:VALUES_SHOWN_MAX]]}, missing "
                f"{[f'{send.value} in {send.invoked.partition}' for send in missing[:VALUES_SHOWN_MAX]]}"
            )
            around = partition.surroundings(max(0, missing[0].offset))
            yield Anomaly(Rule.TORN_TRANSACTION, partition.name, detail, around)


def circular_reads(transactions: Transactions, promises: Promises) -> Iterator[Anomaly]:
    """Transactions that have read from each other, in a circle (G1c): none of them can have come first.

    Only reads count. Writes of others that lie between one's own are no information.
    """
    # Who read from whom, with one of the values.
    sources: dict[_Name, dict[_Name, str]] = defaultdict(dict)
    for reader in transactions:
        for record in reader.reads:
            writer = transactions.writers.get(record.value)
            if writer is not None and writer is not reader and Ending.ABORTED not in (writer.ending, reader.ending):
                sources[_name(reader)].setdefault(_name(writer), record.value)
    for circle in _circles(sources):
        told = "; ".join(
            f"{transactions.by_name[reader]} read {sources[reader][writer]} of {transactions.by_name[writer]}"
            for reader, writer in zip(circle, (*circle[1:], circle[0]), strict=True)
        )
        value = sources[circle[0]][circle[1]]
        send = next(send for send in transactions.writers[value].sends if send.value == value)
        yield Anomaly(Rule.CIRCULAR_READS, send.invoked.partition, told)


def _name(transaction: Transaction) -> _Name:
    return transaction.worker, transaction.number


def _circles(sources: dict[_Name, dict[_Name, str]]) -> Iterator[list[_Name]]:
    """Walk from reader to writer, each transaction once; yield the circle of each step that comes back to the way."""
    done: set[_Name] = set()
    for start in list(sources):
        # The way from the start, in order, and for each transaction on it the writers that are still to be looked at.
        way: dict[_Name, None] = {}
        steps = [iter([start])]
        while steps:
            following = next(steps[-1], None)
            if following is None:
                steps.pop()
                if way:
                    done.add(way.popitem()[0])
            elif following in way:
                names = list(way)
                yield names[names.index(following) :]
            elif following not in done:
                way[following] = None
                steps.append(iter(sources.get(following, {})))
