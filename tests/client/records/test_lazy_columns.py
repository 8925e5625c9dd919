"""What the consumer hands out where numpy and Arrow are installed: the same as without them."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.client.records.record_batches import RECORDS, Written, built_batch, simple_batch
from tests.kit.examples import examples

from ottla.client.consumer.assigned_partitions import AssignedPartition
from ottla.client.errors import CorruptRecordError
from ottla.client.records import fetched_batches
from ottla.client.records.columns import Columns
from ottla.client.records.fetched_batches import FetchedBatch, open_together
from ottla.client.records.lazy_columns import LazyColumns, read_columns
from ottla.client.types import TopicPartition
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import RecordBatch

PARTITION = TopicPartition("t", 0)
COLUMNS = "offsets", "timestamps", "keys", "values", "headers"


def lists(columns: Columns) -> dict[str, list[Any]]:
    """Return the lists of columns by name."""
    return {name: list(getattr(columns, name)) for name in COLUMNS}


@given(RECORDS, st.integers(0, 210), st.integers(0, 210))
@examples(60)
def test_lists_are_those_of_columns_without_numpy(records: list[Written], begin: int, end: int) -> None:
    """All of them, and some of the rows; with the same bytes in one piece."""
    batch = RecordBatch(built_batch(records))
    plain = FetchedBatch(PARTITION, batch, 0).columns()
    lazy = read_columns([batch], 0)

    assert (type(plain), type(lazy)) == (Columns, LazyColumns)
    for ours, theirs in ((lazy, plain), (lazy.sliced(begin, end), plain.sliced(begin, end))):
        assert lists(ours) == lists(theirs)
        assert len(ours) == len(theirs)
        for buffers, expected in (
            (ours.value_buffers(), theirs.value_buffers()),
            (ours.key_buffers(), theirs.key_buffers()),
        ):
            assert (list(buffers[0]), bytes(buffers[1])) == expected
        assert ours.to_arrow().equals(theirs.to_arrow())


def test_batches_are_opened_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the offset where the first begins, over more bytes than are decoded at once."""
    records: list[Written] = [(5, b"k", bytes(1000), [("h", b"%d" % row)]) for row in range(700)]
    batches = [
        FetchedBatch(PARTITION, RecordBatch(built_batch(records, base_offset=700 * number)), 10) for number in range(5)
    ]
    monkeypatch.setattr("ottla.client.records.arrow_columns._TOGETHER_BYTES_MAX", 1_000_000)

    columns = open_together(batches)

    assert isinstance(columns, LazyColumns)
    assert lists(columns) == lists(Columns.joined(batch._decoded() for batch in batches))
    assert columns.arrow().headers_by_row[3] == (("h", b"13"),)
    columns.to_arrow().validate(full=True)


def test_columns_beyond_what_arrow_can_count_are_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """As batches may become far larger when they are decompressed."""
    monkeypatch.setattr("ottla.client.records.lazy_columns._BINARY_BYTES_MAX", 1_000_000)
    monkeypatch.setattr("ottla.client.records.arrow_columns._TOGETHER_BYTES_MAX", 1_000_000)
    batches = [RecordBatch(built_batch([(5, None, bytes(1_500_000), [])], base_offset=number)) for number in range(3)]

    columns = read_columns(batches, 1)

    assert type(columns) is Columns
    assert [*columns.offsets] == [1, 2]


def test_records_are_the_same_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field by field, with plain integers, whether the batch is large enough for it or not."""
    records: list[Written] = [(row, b"k" if row % 3 else None, b"v" * row, []) for row in range(500)]
    batch = RecordBatch(built_batch(records, base_offset=7))
    with_numpy = FetchedBatch(PARTITION, batch, 20).records()
    monkeypatch.setattr(fetched_batches, "_NUMPY_RECORDS_MIN", 1 << 31)
    without = FetchedBatch(PARTITION, batch, 20)

    assert with_numpy == without.records()
    assert type(without.columns()) is Columns
    assert type(with_numpy[0].offset) is type(with_numpy[0].timestamp) is int
    assert [record.offset for record in with_numpy] == [*range(20, 507)]


def test_a_bad_batch_is_refused() -> None:
    """With the error that it has without numpy."""
    bad = bytearray(simple_batch(500))
    bad[-1] = 2
    with pytest.raises(CorruptBatchError):
        FetchedBatch(PARTITION, RecordBatch(bad), 0).columns()


def test_nothing_to_read_is_no_rows() -> None:
    """Where all records of the batches lie before the offset."""
    columns = read_columns([RecordBatch(simple_batch(5, last_offset_delta=9))], 7)

    assert len(columns) == 0
    assert columns.value_buffers() == ([0], b"")


def partition_state(batches: list[bytes], fetch_offset: int = 0) -> AssignedPartition:
    """Return a partition with these batches in store."""
    state = AssignedPartition(PARTITION, None)
    state.seek(fetch_offset)
    for batch, next_offset, epoch in fetched_batches.fetched_batches(
        PARTITION, memoryview(b"".join(batches)), fetch_offset
    ):
        state.add(batch, next_offset, epoch)
    return state


def test_small_batches_are_opened_ahead() -> None:
    """With the first of them that is read, and each gives its own records; the first from where the reader is."""
    state = partition_state([simple_batch(90, base_offset=90 * number) for number in range(5)], fetch_offset=7)

    assert [record.offset for record in state.take_records(1, None, None)] == [7]
    batches = state.take_batches()

    assert [type(batch.columns()) for batch in batches] == [LazyColumns] * 5
    assert [offset for batch in batches for offset in batch.columns().offsets] == [*range(8, 450)]
    assert [value for batch in batches for value in batch.columns().values] == [
        b"%d" % (offset % 90) for offset in range(8, 450)
    ]


def test_a_bad_batch_fails_in_its_turn_although_it_was_opened_ahead() -> None:
    """Those before it are handed out first, with numpy or without."""
    bad = bytearray(simple_batch(90, base_offset=180))
    bad[-1] = 2
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    state = partition_state(
        [simple_batch(90), simple_batch(90, base_offset=90), bytes(bad), simple_batch(400, base_offset=270)]
    )

    assert [record.offset for record in state.take_records(1000, None, None)] == [*range(180)]
    with pytest.raises(CorruptRecordError):
        state.take_records(1000, None, None)
    assert state.position == 180
