"""Loading a partition of `__consumer_offsets`: the newest record of each key, and transactions."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.coordination.stored_records import StoredRecord, TransactionalProducer, batch_of
from ottla.broker.groups.classic.messages import GroupSnapshot
from ottla.broker.groups.loading import LoadedGroup, Replay
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.broker.groups.records import group_record, group_tombstone, offset_record
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = GroupSnapshot("g", "consumer", 3, None, None, 1_000, ())


def offset(value: int, log_offset: int = -1) -> CommittedOffset:
    """Return an offset from a batch at `log_offset`."""
    return CommittedOffset(value, -1, "", 1_000, log_offset=log_offset)


class Written:
    """A log in memory: a list of batches."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []

    def append(self, records: Sequence[StoredRecord], producer_id: int = -1) -> int:
        """Append records as one batch; return its base offset."""
        producer = TransactionalProducer(producer_id, 0) if producer_id >= 0 else None
        return self._append(batch_of(records, 1_000, producer=producer))

    def mark(self, producer_id: int, control_type: ControlType) -> None:
        """Append the marker that ends a transaction."""
        marker = EndTransactionMarker(control_type, 0)
        self._append(RecordBatch(build_marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=0)))

    def _append(self, batch: RecordBatch) -> int:
        base_offset = self.batches[-1].next_offset if self.batches else 0
        batch.patch(base_offset, 0)
        self.batches.append(batch)
        return base_offset

    def loaded(self) -> dict[str, LoadedGroup]:
        """Load the groups."""
        replay = Replay()
        for batch in self.batches:
            replay.take(batch)
        return replay.groups()


def test_the_newest_record_of_each_key_counts() -> None:
    """This holds for offsets and groups. A tombstone deletes the key."""
    log = Written()
    log.append([offset_record("g", A, offset(1)), offset_record("g", B, offset(1)), group_record(GROUP)])
    log.append([offset_record("g", B, None), group_record(GROUP._replace(generation=4))])
    last = log.append([offset_record("g", A, offset(5)), offset_record("h", A, offset(7))])
    loaded = log.loaded()
    assert loaded["g"].snapshot == GROUP._replace(generation=4)
    assert loaded["g"].offsets.committed == {A: offset(5, last)}
    assert (loaded["h"].snapshot, loaded["h"].offsets.committed) == (None, {A: offset(7, last)})


def test_a_deleted_group_leaves_nothing() -> None:
    """Both the group and its offsets are deleted."""
    log = Written()
    log.append([offset_record("g", A, offset(1)), group_record(GROUP)])
    log.append([offset_record("g", A, None), group_tombstone("g")])
    assert log.loaded() == {}


def test_versions_0_and_1_of_an_offset_key_are_equal() -> None:
    """Both have the same fields."""
    log = Written()
    key, value = offset_record("g", A, offset(1))
    log.append([StoredRecord(b"\x00\x00" + key[2:], value)])
    last = log.append([offset_record("g", A, offset(2))])
    assert log.loaded()["g"].offsets.committed == {A: offset(2, last)}


def test_a_committed_transaction_counts_unless_there_is_a_later_commit() -> None:
    """The position of its offsets in the log decides, not the position of its marker."""
    log = Written()
    first = log.append([offset_record("g", A, offset(1)), offset_record("g", B, offset(1))], producer_id=9)
    later = log.append([offset_record("g", A, offset(5))])
    log.mark(9, ControlType.COMMIT)
    assert log.loaded()["g"].offsets.committed == {A: offset(5, later), B: offset(1, first)}


def test_a_committed_transaction_does_not_undo_a_later_deletion() -> None:
    """The tombstone comes after the offset in the log, even if the marker comes last."""
    log = Written()
    first = log.append([offset_record("g", A, offset(1)), offset_record("g", B, offset(1))], producer_id=9)
    log.append([offset_record("g", A, None)])
    log.mark(9, ControlType.COMMIT)
    assert log.loaded()["g"].offsets.committed == {B: offset(1, first)}


def test_an_aborted_transaction_does_not_count() -> None:
    """Its offsets are dropped."""
    log = Written()
    log.append([offset_record("g", A, offset(1))], producer_id=9)
    log.mark(9, ControlType.ABORT)
    log.mark(8, ControlType.COMMIT)
    assert log.loaded() == {}


def test_an_open_transaction_is_pending() -> None:
    """The partition has no stable offset until the transaction ends."""
    log = Written()
    log.append([offset_record("g", A, offset(1))], producer_id=9)
    store = log.loaded()["g"].offsets
    assert (store.committed, store.is_unstable(A), store.pending_producers) == ({}, True, [9])


def test_records_of_other_kinds_are_passed_on() -> None:
    """They are grouped by group id and key version."""
    log = Written()
    other = StoredRecord(b"\x00\x03\x00\x01g", b"\x00\x00rest")
    log.append([other])
    loaded = log.loaded()["g"]
    assert (loaded.snapshot, loaded.others) == (None, {3: [other]})


def test_unreadable_records_are_skipped() -> None:
    """One damaged record must not prevent a coordinator from loading its groups."""
    log = Written()
    key, value = offset_record("g", A, offset(1))
    last = log.append(
        [
            StoredRecord(key, value),
            StoredRecord(key + b"x", value),
            StoredRecord(b"\x00\x01\x00", value),
            StoredRecord(b"", value),
            StoredRecord(b"\x00\x02\x00\x09g", value),
            StoredRecord(offset_record("h", A, None).key, b"\x00\x03\x00"),
        ]
    )
    loaded = log.loaded()
    assert loaded["g"].offsets.committed == {A: offset(1, last)}
    assert "h" not in loaded or not loaded["h"].offsets.committed
