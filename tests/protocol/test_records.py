"""A batch shows its header, refuses damage, and takes the fields that the leader assigns."""

from __future__ import annotations

import mmap
import struct
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol.record_samples import ONE_RECORD, TIMESTAMP, batch_around, builder_of, numbered, peak_bytes

from ottla.protocol.compression import Codec
from ottla.protocol.errors import CorruptBatchError, EncodeError
from ottla.protocol.records import RecordBatch, TimestampType, batches

OUTSIDE_CRC = {*range(8), *range(12, 16)}


def produced(producer_id: int, base_sequence: int) -> RecordBatch:
    """A batch of two records from this producer."""
    return RecordBatch(
        builder_of(numbered(2)).build(producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence)
    )


def test_crc_is_castagnoli() -> None:
    """The checksum of the classic nine digits tells CRC-32C from its namesakes."""
    assert crc32c(b"123456789") == 0xE3069283


def test_header_fields_of_the_known_batch() -> None:
    """Each field is read from its place."""
    batch = RecordBatch(ONE_RECORD)

    batch.check()
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 0, 1)
    assert (batch.batch_length, batch.size) == (58, 70)
    assert batch.partition_leader_epoch == -1
    assert batch.magic == 2
    assert batch.crc == 0xE99B8DD8
    assert batch.attributes == 0
    assert (batch.base_timestamp, batch.max_timestamp) == (TIMESTAMP, TIMESTAMP)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.last_sequence == -1
    assert batch.record_count == 1
    assert bytes(batch.view) == ONE_RECORD


def test_attribute_bits_have_their_meaning() -> None:
    """Every flag answers for its own bit alone."""
    names = ["is_compressed", "is_transactional", "is_control", "has_delete_horizon"]

    def flags(attributes: int) -> list[str]:
        batch = RecordBatch(batch_around(b"", count=0, attributes=attributes))
        set_flags = [name for name in names if getattr(batch, name)]
        return set_flags + ["append_time"] * (batch.timestamp_type is TimestampType.LOG_APPEND_TIME)

    assert flags(0) == []
    assert flags(0x03) == ["is_compressed"]
    assert flags(0x08) == ["append_time"]
    assert flags(0x10) == ["is_transactional"]
    assert flags(0x20) == ["is_control"]
    assert flags(0x40) == ["has_delete_horizon"]


def test_codec_is_named_and_unknown_ones_are_refused() -> None:
    """Five codecs exist; the numbers 5 to 7 are damage."""
    for number in range(5):
        assert RecordBatch(batch_around(b"", count=0, attributes=number)).codec == Codec(number)
    for number in range(5, 8):
        batch = RecordBatch(batch_around(b"", count=0, attributes=number))
        with pytest.raises(CorruptBatchError, match="codec"):
            _ = batch.codec


def test_sequence_numbers_wrap_to_zero() -> None:
    """The sequence after 2147483647 is 0, and a batch without a producer has none."""
    assert produced(1, 5).last_sequence == 6
    assert produced(1, 2147483646).last_sequence == 2147483647
    assert produced(1, 2147483647).last_sequence == 0
    assert produced(-1, -1).last_sequence == -1


def test_producer_id_zero_is_a_producer() -> None:
    """Only -1 means none."""
    assert produced(0, 0).has_producer
    assert not produced(-1, -1).has_producer


def test_repr_shows_where_the_batch_stands() -> None:
    """Logs and failed assertions are readable."""
    assert "offsets=7..8" in repr(RecordBatch(builder_of(numbered(2)).build(base_offset=7)))


def test_any_buffer_is_read_at_any_position_without_a_copy() -> None:
    """A batch inside a larger buffer is a window on it."""
    buffer = bytearray(b"before" + ONE_RECORD + b"after")

    for batch in (RecordBatch(buffer, 6), RecordBatch(memoryview(buffer), 6), RecordBatch(memoryview(buffer)[6:])):
        batch.check()
        assert batch.view.obj is buffer
        assert bytes(batch.view) == ONE_RECORD


def test_a_mapped_file_is_read_and_patched_in_place() -> None:
    """What the leader assigns is written through to the map."""
    with mmap.mmap(-1, 4096) as mapped:
        mapped[100:170] = ONE_RECORD
        batch = RecordBatch(mapped, 100)
        batch.check()
        batch.patch(42, 3)
        written = mapped[100:170]
        del batch

    assert RecordBatch(written).base_offset == 42
    assert RecordBatch(written).partition_leader_epoch == 3


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1))
def test_patch_leaves_everything_else_alone(base_offset: int, leader_epoch: int) -> None:
    """Base offset and leader epoch change, the CRC still holds, and so does the rest."""
    buffer = bytearray(ONE_RECORD)
    batch = RecordBatch(buffer)
    batch.patch(base_offset, leader_epoch)

    assert (batch.base_offset, batch.partition_leader_epoch) == (base_offset, leader_epoch)
    again = RecordBatch(buffer)
    again.check()
    assert (again.base_offset, again.partition_leader_epoch) == (base_offset, leader_epoch)
    assert {at for at in range(70) if buffer[at] != ONE_RECORD[at]} <= OUTSIDE_CRC


def test_log_append_time_is_written_under_a_new_crc() -> None:
    """All records get the append time, and their own bytes stay as they were."""
    buffer = builder_of(numbered(12)).build()
    records_before = buffer[61:]
    batch = RecordBatch(buffer)
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, TIMESTAMP + 999)

    again = RecordBatch(buffer)
    again.check()
    assert batch.crc == again.crc
    assert again.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in again.records()} == {TIMESTAMP + 999}
    assert buffer[61:] == records_before

    again.set_max_timestamp(TimestampType.CREATE_TIME, TIMESTAMP + 1)
    again.check()
    assert again.max_timestamp == TIMESTAMP + 1
    assert [record.timestamp for record in again.records()] == [record.timestamp for record in numbered(12)]


def test_every_damaged_byte_is_found() -> None:
    """Whichever byte changes, in whichever bit, the check fails, unless the leader may write that byte anyway."""
    for at in range(len(ONE_RECORD)):
        for bit in range(8):
            damaged = bytearray(ONE_RECORD)
            damaged[at] ^= 1 << bit
            if at in OUTSIDE_CRC:
                RecordBatch(damaged).check()
            else:
                with pytest.raises(CorruptBatchError):
                    RecordBatch(damaged).check()


def test_every_cut_is_found() -> None:
    """A batch that lacks bytes at its end is never taken for a whole one."""
    for length in range(len(ONE_RECORD)):
        with pytest.raises(CorruptBatchError):
            RecordBatch(ONE_RECORD[:length])


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, 59, 1 << 20, (1 << 31) - 1])
def test_a_length_that_does_not_fit_is_refused_before_anything_is_allocated(length: int) -> None:
    """A length field is held against the bytes left, and costs nothing when it lies."""
    batch = bytearray(ONE_RECORD)
    struct.pack_into(">i", batch, 8, length)

    def read() -> None:
        with pytest.raises(CorruptBatchError):
            RecordBatch(batch)

    assert peak_bytes(read) < 100_000


def test_older_magic_is_refused() -> None:
    """Message sets of magic 0 and 1 are not read as batches, neither checked nor opened."""
    batch = bytearray(ONE_RECORD)
    batch[16] = 1

    with pytest.raises(CorruptBatchError, match="magic 1"):
        RecordBatch(batch).check()
    with pytest.raises(CorruptBatchError, match="magic 1"):
        RecordBatch(batch).records()


def test_batches_are_found_one_after_another() -> None:
    """A buffer with several batches gives each of them, in order."""
    sizes = [1, 5, 300]
    buffer = b"".join(bytes(builder_of(numbered(count)).build(base_offset=1000 * count)) for count in sizes)

    assert [batch.record_count for batch in batches(buffer, strict=True)] == sizes
    assert [batch.base_offset for batch in batches(memoryview(buffer))] == [1000, 5000, 300_000]
    assert list(batches(b"", strict=True)) == []


def test_a_partial_last_batch_ends_a_fetch_but_is_an_error_when_strict() -> None:
    """A fetch response may be cut anywhere; a produced payload may not."""
    for length in range(len(ONE_RECORD), 2 * len(ONE_RECORD)):
        cut = (ONE_RECORD * 2)[:length]
        assert len(list(batches(cut))) == 1
        if length > len(ONE_RECORD):
            with pytest.raises(CorruptBatchError, match="cut short"):
                list(batches(cut, strict=True))


@pytest.mark.parametrize("length", [-(1 << 31), -12, -1, 0, 48])
def test_a_length_below_the_header_stops_the_walk(length: int) -> None:
    """Walking on from such a length would loop, or read a batch out of the middle of another."""
    buffer = bytearray(ONE_RECORD * 2)
    struct.pack_into(">i", buffer, 70 + 8, length)
    walk = batches(buffer)

    assert next(walk).size == 70
    with pytest.raises(CorruptBatchError, match="less than a header"):
        next(walk)


def test_header_fields_out_of_range_are_not_written() -> None:
    """A field that the header has no room for is our mistake, and is named as such."""
    builder = builder_of(numbered(1))

    with pytest.raises(EncodeError, match="out of range"):
        builder.build(base_offset=1 << 63)
    with pytest.raises(EncodeError, match="out of range"):
        builder.build(producer_epoch=1 << 15)
    with pytest.raises(EncodeError, match="out of range"):
        builder.build(base_sequence=-(1 << 31) - 1)


@examples(300)
@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_raise_nothing_but_our_errors(noise: bytes, strict: bool) -> None:
    """Whatever lies in a buffer, walking and opening it ends in batches or in CorruptBatchError."""
    with suppress(CorruptBatchError):
        for batch in batches(noise, strict=strict):
            batch.check()


@examples(400)
@given(st.data())
def test_random_headers_raise_nothing_but_our_errors(data: st.DataObject) -> None:
    """Plausible sizes around random fields: every property answers, or says that the batch is corrupt."""
    noise = bytearray(data.draw(st.binary(min_size=61, max_size=300)))
    struct.pack_into(">i", noise, 8, len(noise) - 12)
    noise[16] = 2
    (batch,) = batches(noise, strict=True)
    assert repr(batch)
    with suppress(CorruptBatchError):
        assert batch.codec in Codec
        for _ in batch.records(max_size=10_000):
            pass
