"""What the builder writes is what Kafka writes, and reads back as what was appended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol.record_samples import ONE_RECORD, TIMESTAMP, builder_of, numbered, record_lists

from ottla.protocol.compression import Codec
from ottla.protocol.errors import EncodeError
from ottla.protocol.record import Record
from ottla.protocol.record_batch_builder import RecordBatchBuilder, record_size_max
from ottla.protocol.records import RecordBatch, TimestampType


def test_the_known_batch_byte_for_byte() -> None:
    """One record with key k and value v takes 70 known bytes."""
    builder = RecordBatchBuilder()
    builder.append(TIMESTAMP, b"k", b"v")

    assert builder.build() == ONE_RECORD


@examples(60)
@given(record_lists, st.sampled_from(Codec), st.integers(0, 1 << 62))
def test_records_come_back_as_they_were_appended(records: list[Record], codec: Codec, base_offset: int) -> None:
    """Through every codec, at every offset."""
    batch = RecordBatch(builder_of(records).build(base_offset=base_offset, codec=codec))

    batch.check()
    assert batch.codec is codec
    assert batch.record_count == len(records)
    assert batch.last_offset == base_offset + len(records) - 1
    assert batch.base_timestamp == records[0].timestamp
    assert batch.max_timestamp == max(record.timestamp for record in records)
    expected = [record._replace(offset=base_offset + record.offset) for record in records]
    assert list(batch.records()) == expected


@pytest.mark.parametrize("size", [62, 63, 64, 8190, 8191, 8192, 8193, 1 << 20, (1 << 20) - 1])
def test_lengths_around_every_varint_boundary(size: int) -> None:
    """Keys, values, header keys and header values of each varint length survive."""
    record = Record(0, TIMESTAMP, b"k" * size, b"v" * size, [("h" * size, b"w" * size)])

    assert list(RecordBatch(builder_of([record]).build()).records()) == [record]


def test_many_records_take_longer_offset_deltas() -> None:
    """Offset deltas of one, two and three bytes."""
    count = 8300
    batch = RecordBatch(builder_of(numbered(count, 0)).build())

    assert [record.offset for record in batch.records()] == list(range(count))


def test_header_fields_are_written_as_given() -> None:
    """Each argument of `build` arrives in its field."""
    batch = RecordBatch(
        builder_of(numbered(3)).build(
            base_offset=7,
            last_offset_delta=5,
            partition_leader_epoch=9,
            producer_id=11,
            producer_epoch=13,
            base_sequence=17,
            transactional=True,
            control=True,
        )
    )

    batch.check()
    assert (batch.base_offset, batch.last_offset_delta, batch.partition_leader_epoch) == (7, 5, 9)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (11, 13, 17)
    assert (batch.is_transactional, batch.is_control, batch.record_count) == (True, True, 3)
    assert batch.timestamp_type is TimestampType.CREATE_TIME


def test_log_append_time_replaces_the_max_timestamp() -> None:
    """The base timestamp stays that of the first record, as Java has it."""
    batch = RecordBatch(builder_of(numbered(3)).build(log_append_time=TIMESTAMP + 77))

    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (batch.base_timestamp, batch.max_timestamp) == (TIMESTAMP, TIMESTAMP + 77)
    assert {record.timestamp for record in batch.records()} == {TIMESTAMP + 77}


def test_a_builder_can_build_again() -> None:
    """A batch is rebuilt with another sequence, or continued, without harm to the one built before."""
    builder = builder_of(numbered(2))
    first = builder.build(producer_id=1, producer_epoch=0, base_sequence=0)
    again = builder.build(producer_id=1, producer_epoch=1, base_sequence=0)
    builder.append(TIMESTAMP, b"k", b"v")

    assert RecordBatch(first).producer_epoch == 0
    assert RecordBatch(again).producer_epoch == 1
    assert first[61:] == again[61:]
    assert RecordBatch(builder.build()).record_count == 3


@examples(60)
@given(record_lists)
def test_size_is_known_at_every_moment(records: list[Record]) -> None:
    """The size is that of the uncompressed batch, and no record adds more than its bound."""
    builder = RecordBatchBuilder()
    assert builder.size == 61
    for record in records:
        before = builder.size
        bound = record_size_max(record.key, record.value, record.headers)
        builder.append(record.timestamp, record.key, record.value, record.headers)
        assert before < builder.size <= before + bound
        assert builder.size == len(builder.build())


def test_append_answers_the_offset_delta() -> None:
    """A producer learns where in the batch its record is; an explicit delta leaves a hole."""
    builder = RecordBatchBuilder()

    assert builder.append(TIMESTAMP, None, b"a") == 0
    assert builder.append(TIMESTAMP, None, b"b") == 1
    assert builder.append(TIMESTAMP, None, b"c", offset_delta=9) == 9
    assert builder.append(TIMESTAMP, None, b"d") == 10
    assert [record.offset for record in RecordBatch(builder.build(base_offset=100)).records()] == [100, 101, 109, 110]
    assert (builder.record_count, builder.max_timestamp) == (4, TIMESTAMP)


def test_offsets_never_go_back() -> None:
    """Neither between records nor from the last record to the end of the batch."""
    builder = RecordBatchBuilder()
    builder.append(TIMESTAMP, None, None, offset_delta=5)

    for offset_delta in (5, 4, -1):
        with pytest.raises(EncodeError, match="after 5"):
            builder.append(TIMESTAMP, None, None, offset_delta=offset_delta)
    with pytest.raises(EncodeError, match="last offset delta 4"):
        builder.build(last_offset_delta=4)


def test_a_refused_record_leaves_no_trace() -> None:
    """After an append that failed the builder is as it was before."""
    builder = builder_of(numbered(1))
    built = builder.build()

    with pytest.raises(EncodeError):
        builder.append(TIMESTAMP, None, b"v", offset_delta=1 << 31)
    with pytest.raises(EncodeError, match="UTF-8"):
        builder.append(TIMESTAMP, None, None, [("\ud800", b"")])
    with pytest.raises(TypeError):
        builder.append(TIMESTAMP, None, "text")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        builder.append(TIMESTAMP, None, None, [(b"bytes", b"")])  # type: ignore[list-item]
    assert builder.build() == built


def test_a_batch_needs_a_record() -> None:
    """Only the cleaner writes empty batches, and not with a builder."""
    with pytest.raises(EncodeError, match="has no records"):
        RecordBatchBuilder().build()
    with pytest.raises(EncodeError, match="has no records"):
        RecordBatchBuilder(delete_horizon=TIMESTAMP).build()


def test_timestamps_outside_64_bits_are_refused() -> None:
    """At the latest when the batch is built."""
    for timestamp in (1 << 63, -(1 << 63) - 1):
        builder = RecordBatchBuilder()
        builder.append(timestamp, None, None)
        with pytest.raises(EncodeError):
            builder.build()


def test_a_compression_level_changes_the_size_only() -> None:
    """Levels are handed to the codec; one that the codec does not know is refused."""
    builder = builder_of(numbered(200, 200))
    fast = builder.build(codec=Codec.ZSTD, level=1)
    small = builder.build(codec=Codec.ZSTD, level=19)

    assert len(small) < len(fast)
    assert list(RecordBatch(small).records()) == list(RecordBatch(fast).records())
    with pytest.raises(EncodeError, match="level 23"):
        builder.build(codec=Codec.ZSTD, level=23)
