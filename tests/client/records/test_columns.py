"""Records as columns and as objects, held against the reference decoder of the protocol."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.records.record_batches import RECORDS, built_batch, simple_batch
from tests.kit.examples import examples

from ottla.client.records.columns import Columns, decode_columns
from ottla.client.records.fetched_batches import FetchedBatch, fetched_batches
from ottla.client.types import ConsumerRecord, TopicPartition
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.record import decode_records
from ottla.protocol.records import BATCH_HEADER_BYTES, RecordBatch

PARTITION = TopicPartition("t", 0)


def rows(columns: Columns) -> list[tuple[Any, ...]]:
    """Return columns as rows."""
    return list(zip(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers, strict=True))


@given(RECORDS, st.integers(0, 1 << 40))
@examples(60)
def test_columns_are_what_the_reference_decoder_reads(records: Any, base_offset: int) -> None:
    """Field by field, for any records that can be written."""
    batch = RecordBatch(built_batch(records, base_offset=base_offset))
    expected = [(*record[:4], tuple(record.headers)) for record in batch.records()]

    assert rows(FetchedBatch(PARTITION, batch, 0).columns()) == expected


@given(RECORDS, st.data())
@examples(100)
def test_what_is_malformed_is_refused_as_the_reference_refuses_it(records: Any, data: Any) -> None:
    """With any byte changed, or bytes missing, both read the same or both refuse."""
    good = built_batch(records)[BATCH_HEADER_BYTES:]
    position = data.draw(st.integers(0, len(good) - 1))
    bad = good[:position] + bytes([data.draw(st.integers(0, 255))]) + good[position + 1 :]
    bad = bad[: data.draw(st.sampled_from([len(bad), position]))]
    try:
        expected = [(*row[:4], tuple(row.headers)) for row in decode_records(bad, len(records), 5, 7, None)]
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            decode_columns(bad, len(records), 5, 7, None)
    else:
        assert rows(decode_columns(bad, len(records), 5, 7, None)) == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_records_have_all_fields(codec: Codec) -> None:
    """Objects are real ConsumerRecords, equal to those made by their constructor, whatever the codec."""
    data = built_batch([(3, b"k", None, [("h", b"1")]), (4, None, b"value", [])], base_offset=9, codec=codec)
    (batch,) = [batch for batch, *_ in fetched_batches(PARTITION, data, 0)]
    assert batch is not None

    assert batch.records() == [
        ConsumerRecord("t", 0, 9, 3, 0, b"k", None, (("h", b"1"),), 1, -1, None),
        ConsumerRecord("t", 0, 10, 4, 0, None, b"value", (), -1, 5, None),
    ]
    assert {type(record) for record in batch.records()} == {ConsumerRecord}


def test_records_before_the_wanted_offset_are_left_out() -> None:
    """A fetch begins with the batch that holds the offset, and may end inside another."""
    data = simple_batch(5) + simple_batch(5, base_offset=5) + simple_batch(5, base_offset=10)[:-1]
    found = list(fetched_batches(PARTITION, data, 7))

    assert [next_offset for _, next_offset, _ in found] == [10]
    assert found[0][0] is not None
    assert list(found[0][0].columns().offsets) == [7, 8, 9]


def test_a_bad_crc_is_found_where_it_is_checked() -> None:
    """The batches before it are handed out; without check_crcs it is not looked at."""
    bad = bytearray(simple_batch(5, base_offset=5))
    bad[17] ^= 1
    batches = fetched_batches(PARTITION, simple_batch(5) + bytes(bad), 0)

    assert next(batches)[1] == 5
    with pytest.raises(CorruptBatchError, match="CRC"):
        next(batches)
    assert len(list(fetched_batches(PARTITION, bytes(bad), 0, check_crcs=False))) == 1


def test_records_of_aborted_transactions_are_left_out() -> None:
    """From its first offset up to its marker; another producer's, and what the producer writes after, stay."""

    def written(base_offset: int, producer_id: int) -> bytes:
        return simple_batch(2, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, transactional=True)

    def marker(base_offset: int, kind: ControlType) -> bytes:
        end = EndTransactionMarker(kind, 0)
        return bytes(build_marker_batch(end, producer_id=1, producer_epoch=0, timestamp=0, base_offset=base_offset))

    data = b"".join(
        [written(0, 1), written(2, 2), marker(4, ControlType.ABORT), written(5, 1), marker(7, ControlType.COMMIT)]
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]

    def offsets(aborted: list[AbortedTransaction] | None) -> list[int]:
        found = (batch for batch, *_ in fetched_batches(PARTITION, data, 0, aborted))
        return [offset for batch in found if batch is not None for offset in batch.columns().offsets]

    assert offsets(aborted) == [2, 3, 5, 6]
    assert offsets(None) == [0, 1, 2, 3, 5, 6]


def test_columns_come_as_buffers() -> None:
    """Values in one piece, with their ends; joined columns are one behind the other."""
    parts = [decode_columns(simple_batch(2)[BATCH_HEADER_BYTES:], 2, 0, 0, 77)] * 2
    columns = Columns.joined(parts)

    assert columns.value_buffers() == ([0, 1, 2, 3, 4], b"0101")
    assert columns.key_buffers() == ([0, 0, 0, 0, 0], b"")
    assert list(columns.timestamps) == [77] * 4
    assert len(columns.sliced(1, 3)) == 2


def test_columns_become_an_arrow_batch() -> None:
    """With null where a key is null."""
    pytest.importorskip("pyarrow")
    table = decode_columns(simple_batch(2)[BATCH_HEADER_BYTES:], 2, 0, 0, None).to_arrow()

    assert table.to_pydict()["value"] == [b"0", b"1"]
    assert table.to_pydict()["key"] == [None, None]


@pytest.mark.parametrize(
    "cause",
    ["open_together([FetchedBatch(partition, batch, 0)])", "fetched_batches._LOAD_RECORDS_MIN = 1000"],
    ids=["columns", "many records"],
)
def test_numpy_is_loaded_for_columns_or_for_many_records(cause: str) -> None:
    """A program that reads a few records does not wait for it."""
    pytest.importorskip("pyarrow")
    code = f"""
import sys
from ottla.client.records import fetched_batches
from ottla.client.records.fetched_batches import FetchedBatch, open_together
from ottla.client.types import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

builder = RecordBatchBuilder()
for number in range(1000):
    builder.append(number, None, b"%d" % number)
batch = RecordBatch(builder.build())
partition = TopicPartition("t", 0)
first = FetchedBatch(partition, batch, 0).records()
print("numpy" in sys.modules)
{cause}
assert FetchedBatch(partition, batch, 0).records() == first
print("numpy" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert ran.stdout.split() == ["False", "True"]


def test_columns_need_neither_numpy_nor_arrow() -> None:
    """Without them, batches of any size are read, and only what is theirs cannot be had."""
    code = """
import sys
sys.modules["numpy"] = sys.modules["pyarrow"] = None
from ottla.client.records.fetched_batches import FetchedBatch, open_together
from ottla.client.types import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

builder = RecordBatchBuilder()
for number in range(5000):
    builder.append(number, None, b"%d" % number)
batch = FetchedBatch(TopicPartition("t", 0), RecordBatch(builder.build()), 10)
columns = open_together([batch])
assert list(columns.offsets) == [*range(10, 5000)]
assert columns.values[-1] == batch.records()[-1].value == b"4999"
try:
    columns.to_arrow()
except ImportError as error:
    print(error.name)
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert ran.stdout.strip() == "numpy"
