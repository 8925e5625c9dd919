"""Records are read exactly, and bytes that are not records are refused without cost."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol.record_samples import TIMESTAMP, batch_around, builder_of, numbered, peak_bytes

from ottla.protocol.compression import Codec, compress
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.record import Record
from ottla.protocol.records import RecordBatch

# attributes, timestamp delta 0, offset delta 0, key k, value v, no headers
BODY = bytes.fromhex("00 00 00 026b 0276 00")


def record(body: bytes) -> bytes:
    """A record of this body, behind its right length (up to 63 bytes)."""
    assert len(body) < 64
    return bytes((2 * len(body),)) + body


def read(data: bytes, count: int = 1) -> list[Record]:
    """The records of a batch with a right CRC around these bytes."""
    return list(RecordBatch(batch_around(data, count=count)).records())


def refused(data: bytes, count: int = 1) -> str:
    """Why a batch around these bytes is refused."""
    with pytest.raises(CorruptBatchError) as caught:
        read(data, count)
    return str(caught.value)


def test_the_smallest_and_the_plain_record() -> None:
    """Seven bytes are a record without key and value; null and empty are different things."""
    assert read(record(bytes.fromhex("00 00 00 01 01 00"))) == [Record(0, TIMESTAMP, None, None, [])]
    assert read(record(bytes.fromhex("00 00 00 00 00 00"))) == [Record(0, TIMESTAMP, b"", b"", [])]
    assert read(record(BODY)) == [Record(0, TIMESTAMP, b"k", b"v", [])]


def test_headers_keep_order_duplicates_and_null_values() -> None:
    """Headers are a list of pairs, not a mapping."""
    body = BODY[:-1] + bytes.fromhex("06 0261 0278 00 01 0261 00")

    assert read(record(body)) == [Record(0, TIMESTAMP, b"k", b"v", [("a", b"x"), ("", None), ("a", b"")])]


def test_unused_record_attributes_are_ignored() -> None:
    """A later Kafka may use them; today nobody does."""
    assert read(record(b"\x7f" + BODY[1:])) == read(record(BODY))


@pytest.mark.parametrize(
    ("varlong", "delta"),
    [
        ("01", -1),
        ("7e", 63),
        ("7f", -64),
        ("8001", 64),
        ("8101", -65),
        ("d804", 300),
        ("feffffff0f", 2147483647),
        ("ffffffff0f", -2147483648),
        ("8080808010", 1 << 31),
    ],
)
def test_timestamp_deltas_of_every_length(varlong: str, delta: int) -> None:
    """The zigzag vectors, in the one field that may be negative and longer than 32 bits."""
    (only,) = read(record(b"\x00" + bytes.fromhex(varlong) + BODY[2:]))

    assert only.timestamp == TIMESTAMP + delta


@pytest.mark.parametrize("base", [-(1 << 63), -1, 0, TIMESTAMP, (1 << 63) - 1])
@pytest.mark.parametrize("timestamp", [-(1 << 63), -1, 0, TIMESTAMP, (1 << 63) - 1])
def test_timestamps_wrap_around_as_in_java(base: int, timestamp: int) -> None:
    """Any two timestamps may share a batch, though their difference may need 65 bits."""
    builder = builder_of([Record(0, base, None, None, []), Record(1, timestamp, None, None, [])])

    assert [read.timestamp for read in RecordBatch(builder.build()).records()] == [base, timestamp]


def test_a_delete_horizon_is_only_a_base_for_timestamps() -> None:
    """With bit 6 set the base timestamp is the horizon, and deltas are still relative to it."""
    batch = batch_around(record(b"\x00\x01" + BODY[2:]), count=1, attributes=0x40, base_timestamp=5000)

    assert [record.timestamp for record in RecordBatch(batch).records()] == [4999]


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    """With bit 3 set the max timestamp holds for all, whatever the deltas say."""
    batch = batch_around(record(BODY) * 3, count=3, attributes=0x08, base_timestamp=5000)

    assert [record.timestamp for record in RecordBatch(batch).records()] == [TIMESTAMP] * 3


def test_records_may_have_holes_between_their_offsets() -> None:
    """Compaction removes records, so offsets rise by more than one."""
    data = record(BODY) + record(b"\x00\x00\x08" + BODY[3:]) + record(b"\x00\x00\xd8\x04" + BODY[3:])

    assert [record.offset for record in read(data, 3)] == [0, 4, 300]


def test_an_emptied_batch_has_no_records_whatever_its_codec() -> None:
    """The cleaner leaves bare headers behind."""
    for codec in Codec:
        assert list(RecordBatch(batch_around(b"", count=0, attributes=codec)).records()) == []


def test_every_cut_inside_the_records_is_refused() -> None:
    """Records that end early are corrupt even when the CRC is right."""
    data = bytes(builder_of([*numbered(3), Record(3, TIMESTAMP, b"k", b"v", [("a", b"x"), ("b", None)])]).build()[61:])

    assert len(read(data, 4)) == 4
    for length in range(len(data)):
        refused(data[:length], 4)


def test_a_record_length_must_be_consumed_exactly() -> None:
    """Neither a longer nor a shorter record than announced is taken."""
    for length in (*range(8), *range(9, 64)):
        refused(bytes((2 * length,)) + BODY + b"\x00" * 64)
    assert "-1 bytes longer" in refused(record(BODY + b"\x00"))


def test_bytes_after_the_last_record_are_refused() -> None:
    """The records fill the batch."""
    assert "after the last record" in refused(record(BODY) * 2, 1)


def test_more_records_than_bytes_are_refused_at_once() -> None:
    """A count is held against the bytes left before the first record is read."""
    for count in (-(1 << 31), -1, 2, (1 << 31) - 1):
        batch = RecordBatch(batch_around(record(BODY), count=count))
        with pytest.raises(CorruptBatchError, match="announced"):
            batch.records()


@pytest.mark.parametrize("at", [3, 4])
@pytest.mark.parametrize("length", ["03", "7f", "8101", "ffffffff0f"])
def test_negative_lengths_below_null_are_refused(at: int, length: str) -> None:
    """-1 is null; nothing else below zero means anything."""
    body = bytes.fromhex("00 00 00 01 01 00")

    assert "of length -" in refused(record(body[:at] + bytes.fromhex(length) + body[at + 1 :]))


@pytest.mark.parametrize("headers", ["03", "ffffffff0f", "feffffff0f", "08 0261 0278", "02 01 00", "02 0261 03"])
def test_bad_header_counts_and_lengths_are_refused(headers: str) -> None:
    """A count above the bytes left, a key that is null, a length below null."""
    refused(record(BODY[:-1] + bytes.fromhex(headers)))


def test_a_header_value_that_runs_out_of_the_batch_is_refused() -> None:
    """Even where the record's own length makes the same false claim."""
    data = record(BODY[:-1] + bytes.fromhex("02 0261 14 78") + bytes(9))

    assert len(read(data)) == 1
    refused(data[:-9])


def test_header_keys_must_be_utf8() -> None:
    """A key of other bytes is corrupt, as the protocol says string."""
    assert "UTF-8" in refused(record(BODY[:-1] + bytes.fromhex("02 02ff 00")))


@pytest.mark.parametrize("varint", ["8080808080 00", "8080808010", "ffffffffff"])
def test_varints_of_more_than_32_bits_are_refused(varint: str) -> None:
    """In the length of a record, an offset delta, a key length and a header count alike."""
    long = bytes.fromhex(varint)

    for data in (long + BODY, *(record(BODY[:at] + long + BODY[at:]) for at in (2, 3, 7))):
        refused(data + bytes(64))


def test_a_varlong_of_more_than_64_bits_is_refused() -> None:
    """Ten bytes hold 70 bits, of which the last six must be zero."""
    for varlong in ("80808080808080808002", "8080808080808080808000"):
        assert "64 bits" in refused(record(b"\x00" + bytes.fromhex(varlong) + BODY[2:]))


def test_damaged_blobs_are_corrupt_batches() -> None:
    """A caller that reads records has one error to handle, also where a codec finds the damage."""
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        blob = compress(codec, record(BODY))
        for broken in (blob[:-1], blob[:5], b"\xff" + blob[1:], b"\x00"):
            batch = RecordBatch(batch_around(broken, count=1, attributes=codec))
            with pytest.raises(CorruptBatchError):
                list(batch.records(max_size=1000))


def test_records_beyond_the_cap_are_refused() -> None:
    """The cap holds for what the records decompress to."""
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        batch = RecordBatch(builder_of(numbered(100, 400)).build(codec=codec))
        size = len(builder_of(numbered(100, 400)).build()) - 61
        assert len(list(batch.records(max_size=size))) == 100
        with pytest.raises(CorruptBatchError):
            batch.records(max_size=size - 1)


@examples(400)
@given(st.data())
def test_random_changes_raise_nothing_but_our_errors(data: st.DataObject) -> None:
    """A valid batch with a few bytes changed under a right CRC reads as something, or is corrupt."""
    codec = data.draw(st.sampled_from(Codec))
    records = [*numbered(2), Record(2, TIMESTAMP, None, b"v", [("a", b"x")])]
    blob = bytearray(builder_of(records).build(codec=codec)[61:])
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptBatchError):
        for read in RecordBatch(batch_around(bytes(blob), count=3, attributes=codec)).records(max_size=100_000):
            assert isinstance(read.offset, int)


@examples(60)
@given(st.binary(min_size=7, max_size=2000), st.sampled_from(Codec), st.integers(-1, 300))
def test_hostile_records_cost_little_memory(noise: bytes, codec: Codec, count: int) -> None:
    """However the bytes lie about counts and lengths, memory stays near their own size and the cap."""
    batch = batch_around(noise, count=count, attributes=codec)
    cap = 20_000

    def consume() -> None:
        with suppress(CorruptBatchError):
            for _ in RecordBatch(batch).records(max_size=cap):
                pass

    assert peak_bytes(consume) < 10 * len(noise) + cap + 50_000


def test_a_huge_header_count_costs_nothing() -> None:
    """The count is refused before a list of that size could be made."""
    body = BODY[:-1] + bytes.fromhex("feffffff0f")
    batch = batch_around(record(body), count=1)

    def consume() -> None:
        with pytest.raises(CorruptBatchError, match="headers announced"):
            list(RecordBatch(batch).records())

    assert peak_bytes(consume) < 100_000


def test_only_the_true_count_opens_a_batch() -> None:
    """One record more or less than the header says is corruption."""
    data = record(BODY) * 3

    assert len(read(data, 3)) == 3
    for count in (-1, 0, 1, 2, 4, 5):
        refused(data, count)
