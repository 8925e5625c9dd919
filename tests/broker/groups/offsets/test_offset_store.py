"""The offsets of one group: the later in the log wins, and transactions wait."""

from __future__ import annotations

from ottla.broker.groups.offsets.offset_store import CommittedOffset, OffsetStore
from ottla.protocol.identifiers import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(offset: int, log_offset: int = 0) -> CommittedOffset:
    """An offset from somewhere in the log."""
    return CommittedOffset(offset, -1, "", 0, log_offset=log_offset)


def test_the_commit_that_lies_later_in_the_log_wins() -> None:
    """Also when the earlier one gets here after it."""
    store = OffsetStore()
    store.put({A: committed(20, 7)})
    store.put({A: committed(10, 6), B: committed(1, 6)})
    assert store.committed == {A: committed(20, 7), B: committed(1, 6)}


def test_commits_of_a_transaction_count_when_it_is_committed() -> None:
    """Until then the partition is unstable, and what was committed before is still there."""
    store = OffsetStore({A: committed(5)})
    store.put_pending(9, {A: committed(10, 1)})
    assert (store.get(A), store.is_unstable(A), store.is_unstable(B)) == (committed(5), True, False)
    assert (store.is_pending(A), store.pending_producers) == (True, [9])
    store.end_transaction(9, is_committed=True)
    assert (store.get(A), store.is_unstable(A), store.has_pending) == (committed(10, 1), False, False)


def test_commits_of_an_aborted_transaction_are_forgotten() -> None:
    """And so are those of a producer that has none."""
    store = OffsetStore()
    store.put_pending(9, {A: committed(10, 1)})
    store.end_transaction(8, is_committed=True)
    store.end_transaction(9, is_committed=False)
    store.end_transaction(9, is_committed=True)
    assert (store.get(A), store.pending_producers) == (None, [])


def test_a_transaction_that_is_committed_late_does_not_undo_a_later_commit() -> None:
    """Its offsets were written before."""
    store = OffsetStore()
    store.put_pending(9, {A: committed(10, 1), B: committed(3, 1)})
    store.put({A: committed(20, 2)})
    store.end_transaction(9, is_committed=True)
    assert (store.get(A), store.get(B)) == (committed(20, 2), committed(3, 1))


def test_what_is_being_written_is_pending_until_all_of_it_is() -> None:
    """Two commits of one partition may be under way."""
    store = OffsetStore()
    store.begin([A, B], 7)
    store.begin([A], 8)
    store.end({A: committed(1), B: committed(1)}, 7, is_committed=False)
    assert (store.is_pending(A), store.is_pending(B), store.has_pending) == (True, False, True)
    assert store.all_partitions == [A]
    store.end({A: committed(2)}, 8, is_committed=True)
    assert (store.is_pending(A), store.has_pending, store.committed) == (False, False, {A: committed(2, 8)})


def test_what_was_under_way_when_it_was_removed_does_not_come_back() -> None:
    """Neither a plain commit nor one of a transaction; what is written afterwards counts."""
    store = OffsetStore()
    store.begin([A, B], 7)
    store.put_pending(9, {A: committed(4, 6), B: committed(4, 6)})
    assert store.of_partitions([A]) == [A]
    store.remove([A])
    store.begin([A], 9)
    store.end({A: committed(5), B: committed(5)}, 7, is_committed=True)
    store.end_transaction(9, is_committed=True)
    assert store.committed == {B: committed(5, 7)}
    store.end({A: committed(6)}, 9, is_committed=True)
    assert (store.get(A), store.has_pending) == (committed(6, 9), False)


def test_removed_offsets_are_gone() -> None:
    """Those that are not there do not matter."""
    store = OffsetStore({A: committed(5)})
    assert store.of_partitions([A, B]) == [A]
    store.remove([A, B])
    assert (len(store), store.get(A)) == (0, None)
