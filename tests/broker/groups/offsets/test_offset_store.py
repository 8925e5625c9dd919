"""The offsets of one group: the commit that is later in the log wins, and transactions take effect when they end."""

from __future__ import annotations

from ottla.broker.groups.offsets.offset_store import CommittedOffset, OffsetStore
from ottla.protocol.identifiers import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(offset: int, log_offset: int = 0) -> CommittedOffset:
    """Return an offset from a batch at `log_offset`."""
    return CommittedOffset(offset, -1, "", 0, log_offset=log_offset)


def test_the_commit_that_is_later_in_the_log_wins() -> None:
    """This holds even if the earlier commit arrives last."""
    store = OffsetStore()
    store.put({A: committed(20, 7)})
    store.put({A: committed(10, 6), B: committed(1, 6)})
    assert store.committed == {A: committed(20, 7), B: committed(1, 6)}


def test_offsets_of_a_transaction_take_effect_when_it_is_committed() -> None:
    """Until then the partition is unstable, and the previous offset stays."""
    store = OffsetStore({A: committed(5)})
    store.put_pending(9, {A: committed(10, 1)})
    assert (store.get(A), store.is_unstable(A), store.is_unstable(B)) == (committed(5), True, False)
    assert (store.is_pending(A), store.pending_producers) == (True, [9])
    store.end_transaction(9, is_committed=True)
    assert (store.get(A), store.is_unstable(A), store.has_pending) == (committed(10, 1), False, False)


def test_offsets_of_an_aborted_transaction_are_dropped() -> None:
    """The end of a transaction without offsets changes nothing."""
    store = OffsetStore()
    store.put_pending(9, {A: committed(10, 1)})
    store.end_transaction(8, is_committed=True)
    store.end_transaction(9, is_committed=False)
    store.end_transaction(9, is_committed=True)
    assert (store.get(A), store.pending_producers) == (None, [])


def test_offsets_that_could_not_be_written_are_dropped_unless_they_were_staged_again() -> None:
    """The same producer may have begun its next transaction by then."""
    store = OffsetStore()
    store.put_pending(9, {A: committed(10, 1), B: committed(3, 1)})
    store.put_pending(9, {A: committed(11, 2)})
    store.drop_pending(9, {A: committed(10, 1), B: committed(3, 1)})
    assert (store.is_unstable(A), store.is_unstable(B), store.has_transactions) == (True, False, True)
    store.drop_pending(9, {A: committed(11, 2)})
    assert (store.has_transactions, store.pending_producers) == (False, [])
    store.drop_pending(9, {A: committed(11, 2)})


def test_a_transaction_that_is_committed_late_does_not_undo_a_later_commit() -> None:
    """The offsets of the transaction are earlier in the log."""
    store = OffsetStore()
    store.put_pending(9, {A: committed(10, 1), B: committed(3, 1)})
    store.put({A: committed(20, 2)})
    store.end_transaction(9, is_committed=True)
    assert (store.get(A), store.get(B)) == (committed(20, 2), committed(3, 1))


def test_a_partition_is_pending_until_all_its_writes_end() -> None:
    """Two commits of a partition may be under way at the same time."""
    store = OffsetStore()
    store.begin([A, B], 7)
    store.begin([A], 8)
    store.end({A: committed(1), B: committed(1)}, 7, is_committed=False)
    assert (store.is_pending(A), store.is_pending(B), store.has_pending) == (True, False, True)
    assert store.all_partitions == [A]
    store.end({A: committed(2)}, 8, is_committed=True)
    assert (store.is_pending(A), store.has_pending, store.committed) == (False, False, {A: committed(2, 8)})


def test_a_removal_drops_earlier_commits_under_way() -> None:
    """This holds for plain and transactional commits. Later commits take effect."""
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


def test_offsets_can_be_removed() -> None:
    """Partitions without an offset are ignored."""
    store = OffsetStore({A: committed(5)})
    assert store.of_partitions([A, B]) == [A]
    store.remove([A, B])
    assert (len(store), store.get(A)) == (0, None)
