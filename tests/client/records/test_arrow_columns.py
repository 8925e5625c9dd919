"""Records as Arrow columns, held against the columns that are read without numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.records.record_batches import RECORDS, Written, built_batch, simple_batch
from tests.kit.examples import examples

from ottla.client.records import arrow_columns
from ottla.client.records.arrow_columns import ArrowColumns, decode_arrow, read_arrow, read_each
from ottla.client.records.columns import Columns, decode_columns
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import BATCH_HEADER_BYTES, RecordBatch

ALL = -(1 << 63), (1 << 63) - 1
BASES = st.sampled_from([0, 7, 1 << 40, -(1 << 63), (1 << 63) - 100])


def rows_of(*some: ArrowColumns) -> list[tuple[Any, ...]]:
    """Return columns as rows, and see that Arrow finds them whole."""
    rows: list[tuple[Any, ...]] = []
    for columns in some:
        for array in (columns.keys, columns.values, columns.headers):
            array.validate(full=True)
        headers = [tuple((each["key"], each["value"]) for each in row) for row in columns.headers.to_pylist()]
        rows += zip(
            columns.offsets.tolist(),
            columns.timestamps_ms.tolist(),
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            headers,
            strict=True,
        )
    return rows


def expected_rows(columns: Columns) -> list[tuple[Any, ...]]:
    """Return the rows that the reference has."""
    return list(zip(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers, strict=True))


def records_of(value_bytes: list[int]) -> list[Written]:
    """Return records whose values have these lengths."""
    return [(row * 3, b"%d" % row, b"v" * length, []) for row, length in enumerate(value_bytes)]


@given(RECORDS, BASES, BASES, st.none() | st.integers(-1, 1 << 45), st.integers(0, 5000))
@examples(100)
def test_arrow_columns_are_those_of_the_reference(
    records: list[Written], base_offset: int, base_timestamp: int, log_append_time: int | None, holes: int
) -> None:
    """Field by field, also where timestamps wrap around; or an offset is too large for both."""
    data = built_batch(records, holes=holes)[BATCH_HEADER_BYTES:]
    given_fields = data, len(records), base_offset, base_timestamp, log_append_time
    try:
        expected = expected_rows(decode_columns(*given_fields))
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            decode_arrow(*given_fields)
    else:
        assert rows_of(decode_arrow(*given_fields)) == expected


@given(RECORDS, st.data())
@examples(150)
def test_what_is_malformed_is_refused_as_the_reference_refuses_it(records: list[Written], data: Any) -> None:
    """With any bytes changed, or bytes missing, both read the same or both refuse."""
    bad = bytearray(built_batch(records)[BATCH_HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    given_bytes = bytes(bad[: data.draw(st.sampled_from([len(bad), len(bad) // 2, len(bad) - 1]))])
    count = len(records) + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    try:
        expected = expected_rows(decode_columns(given_bytes, count, 5, 7, None))
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            decode_arrow(given_bytes, count, 5, 7, None)
    else:
        assert rows_of(decode_arrow(given_bytes, count, 5, 7, None)) == expected


@given(st.binary(min_size=7, max_size=60), st.integers(-1, 9))
@examples(150)
def test_any_bytes_are_read_or_refused_as_the_reference_does(data: bytes, count: int) -> None:
    """Bytes that nobody wrote raise nothing but CorruptBatchError."""
    try:
        expected = expected_rows(decode_columns(data, count, 0, 0, None))
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            decode_arrow(data, count, 0, 0, None)
    else:
        assert rows_of(decode_arrow(data, count, 0, 0, None)) == expected


@pytest.mark.parametrize(
    "value_bytes",
    [
        [10] * 9000,
        [10] * 100 + [11] * 100 + [300] * 200 + [20_000] * 3,
        [row * 7919 % 300 for row in range(2000)],
        [row % 2 for row in range(500)] + [5] * 500,
        [],
    ],
    ids=["one length", "runs", "any length", "none, then a run", "none"],
)
def test_records_are_found_whatever_their_lengths(value_bytes: list[int]) -> None:
    """In runs of equal lengths, one by one, and in turns."""
    records = records_of(value_bytes)
    data = built_batch(records)[BATCH_HEADER_BYTES:] if records else b""

    found = decode_arrow(data, len(records), 0, 0, None)

    assert rows_of(found) == expected_rows(decode_columns(data, len(records), 0, 0, None))
    assert found.values.null_count == found.keys.null_count == 0
    assert found.offsets.dtype == found.timestamps_ms.dtype == np.int64


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_read_between_two_offsets(codec: Codec) -> None:
    """Those of control batches, those before and those behind are left out; codecs and kinds of time may change."""
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    written = [
        simple_batch(5),
        built_batch(records_of([3] * 10), base_offset=5, codec=codec, holes=1),
        bytes(build_marker_batch(marker, producer_id=1, producer_epoch=0, timestamp=0, base_offset=24)),
        built_batch([(9, None, b"x", [("h", b"1"), ("i", None)])] * 10, base_offset=25, log_append_time=77),
        simple_batch(5, base_offset=35),
    ]
    batches = [RecordBatch(each) for each in written]
    expected = [
        (*record[:4], tuple(record.headers)) for batch in batches if not batch.is_control for record in batch.records()
    ]

    assert rows_of(*read_arrow(batches, *ALL)) == expected
    assert rows_of(*read_arrow(batches, 7, 31)) == [row for row in expected if 7 <= row[0] < 31]
    assert read_arrow(batches, 24, 25) == []


@pytest.mark.parametrize(
    ("limit", "value", "pieces"),
    [
        ("_TOGETHER_BYTES_MAX", 100_000, [100] * 5),
        ("_TOGETHER_RECORDS_MAX", 150, [150, 150, 150, 50]),
        ("_AHEAD_BYTES_MAX", 100_000, [500]),
    ],
)
def test_batches_are_decoded_in_pieces_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, pieces: list[int]
) -> None:
    """Together up to so many bytes after decompression, or so many records; large values make few pieces."""
    monkeypatch.setattr(arrow_columns, limit, value)
    batches = fifty_each(10)

    found = read_arrow(batches, *ALL)

    assert [len(columns) for columns in found] == pieces
    assert [offset for columns in found for offset in columns.offsets.tolist()] == [*range(500)]


@pytest.mark.parametrize(
    ("limit", "value", "opened"), [("_AHEAD_BYTES_MAX", 100_000, 2), ("_TOGETHER_RECORDS_MAX", 150, 3)]
)
def test_few_batches_are_opened_ahead(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, opened: int) -> None:
    """Their columns wait in memory until the caller gets to them."""
    monkeypatch.setattr(arrow_columns, limit, value)

    found = read_each(fifty_each(10))

    assert [columns.offsets.tolist() for columns in found] == [
        [*range(50 * number, 50 * number + 50)] for number in range(opened)
    ]


def fifty_each(count: int) -> list[RecordBatch]:
    """Compressed batches of 50 records with values of 1000 bytes, which follow each other."""
    return [
        RecordBatch(built_batch(records_of([1000] * 50), base_offset=50 * number, codec=Codec.LZ4))
        for number in range(count)
    ]


def test_batches_are_read_from_wherever_they_lie() -> None:
    """Behind each other in one buffer, with other bytes in between, in any order, or in buffers of their own."""
    written = [built_batch(records_of([20] * 90), base_offset=90 * number) for number in range(4)]
    buffer = bytearray(b"".join(written))
    size = len(written[0])
    batches = [RecordBatch(buffer, size * number) for number in range(4)]
    alone = [RecordBatch(each) for each in written]
    rows = rows_of(*read_arrow(alone, *ALL))

    assert [row[0] for row in rows] == [*range(360)]
    assert rows_of(*read_arrow(batches, *ALL)) == rows
    assert rows_of(*read_arrow([batches[0], batches[3]], *ALL)) == rows[:90] + rows[270:]
    assert rows_of(*read_arrow([batches[2], batches[1]], *ALL)) == rows[180:270] + rows[90:180]
    assert rows_of(*read_arrow([alone[0], batches[1]], *ALL)) == rows[:180]


def test_a_bad_batch_is_refused_among_good_ones() -> None:
    """Also where its records would go on in the next batch; nothing of another format is read."""
    good = bytearray(built_batch(records_of([5] * 5)))
    longer = bytearray(good)
    longer[57:61] = (6).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        read_arrow([RecordBatch(good), RecordBatch(longer), RecordBatch(good)], *ALL)
    older = bytearray(good)
    older[16] = 1
    with pytest.raises(CorruptBatchError, match="magic 1"):
        read_arrow([RecordBatch(older)], *ALL)
    cut = bytearray(built_batch(records_of([500]), codec=Codec.LZ4))
    cut[-5] ^= 0xFF
    with pytest.raises(CorruptBatchError):
        read_arrow([RecordBatch(cut)], *ALL)
