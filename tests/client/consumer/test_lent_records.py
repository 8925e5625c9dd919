"""Records that another thread takes, and what the state of the partition says of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.client.records.record_batches import simple_batch

from ottla.client.consumer.assigned_partitions import AssignedPartition, AssignedPartitions, LentRecords
from ottla.client.records.fetched_batches import fetched_batches
from ottla.client.types import TopicPartition

PARTITION = TopicPartition("t", 0)


def partition_with(count: int) -> tuple[AssignedPartitions, AssignedPartition]:
    """Return a partition with a batch of so many records, of which the first is handed out."""
    partitions = AssignedPartitions()
    partitions.add([PARTITION], None)
    state = partitions.get(PARTITION)
    assert state is not None
    state.seek(0)
    for batch, next_offset, leader_epoch in fetched_batches(PARTITION, memoryview(simple_batch(count)), 0):
        state.add(batch, next_offset, leader_epoch)
    assert [record.offset for record in state.take_records(1, None, None)] == [0]
    return partitions, state


def lend(partitions: AssignedPartitions, state: AssignedPartition) -> LentRecords:
    """Lend what there is, which must be something."""
    lent = partitions.lend(state, lambda: None)
    assert lent is not None
    return lent


def offsets(lent: LentRecords, count: int) -> list[int | None]:
    """Take so many records, None where there is none."""
    taken = [lent.take() for _ in range(count)]
    return [None if record is None else record.offset for record in taken]


def test_what_was_taken_is_handed_out_once_somebody_looks() -> None:
    """The last of it is what the caller may not be done with; nothing is taken after that."""
    partitions, state = partition_with(10)
    lent = lend(partitions, state)
    assert offsets(lent, 3) == [1, 2, 3]

    assert partitions.get(PARTITION) is state
    assert (state.position, state.processed) == (4, 3)
    assert offsets(lent, 1) == [None]
    assert [record.offset for record in state.take_records(2, None, None)] == [4, 5]


def test_the_last_record_of_a_batch_is_not_lent() -> None:
    """It comes by the event loop, which drops the batch."""
    partitions, state = partition_with(4)
    lent = lend(partitions, state)

    assert offsets(lent, 3) == [1, 2, None]
    assert partitions.lend(state, lambda: None) is None
    assert [record.offset for record in state.take_records(9, None, None)] == [3]
    assert not state.has_records


@pytest.mark.parametrize(
    "change",
    [
        lambda partitions, _: partitions.hold([PARTITION]),
        lambda partitions, _: partitions.remove([PARTITION]),
        lambda partitions, _: partitions.mark_processed(),
        lambda _, state: state.seek(7),
        lambda _, state: state.seek_by("earliest"),
    ],
    ids=["hold", "remove", "mark_processed", "seek", "seek_by"],
)
def test_nothing_is_taken_after_a_change(change: Callable[[AssignedPartitions, AssignedPartition], None]) -> None:
    """Of what was lent before it."""
    partitions, state = partition_with(10)
    lent = lend(partitions, state)
    assert offsets(lent, 1) == [1]

    change(partitions, state)

    assert offsets(lent, 1) == [None]


def test_a_seek_is_not_undone_by_what_was_taken_before() -> None:
    """What is given back of an older session changes nothing."""
    partitions, state = partition_with(10)
    offsets(lend(partitions, state), 3)
    state.seek(7)
    partitions.settle()

    assert (state.position, state.processed) == (7, 7)


def test_threads_take_each_record_once() -> None:
    """And the caller of each counts as alive."""
    polls: list[None] = []
    partitions, state = partition_with(5000)
    lent = partitions.lend(state, lambda: polls.append(None))
    assert lent is not None
    taken: list[list[int]] = [[], []]

    def take(into: list[int]) -> None:
        while (record := lent.take()) is not None:
            into.append(record.offset)

    threads = [threading.Thread(target=take, args=(into,)) for into in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken[0] + taken[1]) == [*range(1, 4999)]
    assert all(some == sorted(some) for some in taken)
    assert len(polls) == 4998
