"""What a client sends is refused with the code that Kafka gives, or becomes a batch that may be appended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.storage.logs import NOW, make_batch, make_marker, topic_config
from tests.kit.examples import examples

from ottla.broker.storage.validation import AppendRules, InvalidRecordsError, validated
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import BATCH_HEADER_BYTES, RecordBatch, TimestampType, write_header

DAY_MS = 86_400_000


def rules(**overrides: object) -> AppendRules:
    return AppendRules.of(topic_config(segment_bytes=100_000, **overrides))


def refusal(data: bytes | bytearray, **overrides: object) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        validated(data, rules(**overrides), NOW)
    return refused.value


def header(**fields: int) -> bytearray:
    """A batch with fields that no builder writes; its CRC is right."""
    data = bytearray(make_batch(2))
    batch = RecordBatch(data)
    values = {
        "base_offset": 0,
        "partition_leader_epoch": -1,
        "attributes": 0,
        "last_offset_delta": 1,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 2,
    }
    write_header(data, **{**values, **fields})
    return data


def test_a_good_batch_is_a_view_of_what_was_sent() -> None:
    """Nothing is copied, and no record opened."""
    data = make_batch(3)
    batch = validated(memoryview(data), rules(), NOW)

    assert batch.view.obj is data
    assert batch.record_count == 3


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (make_batch()[:60], ErrorCode.CORRUPT_MESSAGE),
        (make_batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (make_batch()[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (make_batch()[:16] + b"\1" + make_batch()[17:], ErrorCode.INVALID_RECORD),
        (make_batch() * 2, ErrorCode.INVALID_RECORD),
        (make_batch(base_offset=1), ErrorCode.INVALID_RECORD),
        (make_marker(ControlType.COMMIT, 7), ErrorCode.INVALID_RECORD),
        (header(record_count=0), ErrorCode.INVALID_RECORD),
        (header(record_count=-1), ErrorCode.INVALID_RECORD),
        (header(last_offset_delta=5), ErrorCode.INVALID_RECORD),
        (header(attributes=5), ErrorCode.INVALID_RECORD),
        (header(attributes=0x20), ErrorCode.INVALID_RECORD),
        (header(attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (header(attributes=0x10), ErrorCode.INVALID_RECORD),
        (header(producer_id=7), ErrorCode.INVALID_RECORD),
        (header(producer_id=7, base_sequence=0), ErrorCode.INVALID_RECORD),
        (header(producer_id=7, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "nothing",
        "less than a header",
        "cut",
        "wrong CRC",
        "old format",
        "two batches",
        "offset",
        "marker",
        "no records",
        "negative count",
        "wrong delta",
        "unknown codec",
        "control bit",
        "append time",
        "transaction without producer",
        "no sequence or epoch",
        "no epoch",
        "no sequence",
    ],
)
def test_a_bad_batch_is_refused(data: bytes, code: ErrorCode) -> None:
    """With a code that tells the client what to do."""
    assert refusal(data).code is code


def test_a_piece_of_a_batch_behind_it_is_ignored() -> None:
    """As Kafka does; it is not part of what is appended."""
    batch = validated(make_batch() + make_batch()[:60], rules(), NOW)

    assert bytes(batch.view) == make_batch()


def test_a_batch_may_be_too_large_for_the_topic_or_for_a_segment() -> None:
    """Exactly at the limit it is not."""
    data = make_batch()

    assert validated(data, rules(max_message_bytes=len(data)), NOW).size == len(data)
    assert refusal(data, max_message_bytes=len(data) - 1).code is ErrorCode.MESSAGE_TOO_LARGE
    small = AppendRules.of(topic_config(segment_bytes=len(data) - 1))
    with pytest.raises(KafkaError) as refused:
        validated(data, small, NOW)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", Codec)
def test_keys_are_required_where_a_topic_is_compacted(codec: Codec) -> None:
    """Each record without one is named."""
    builder = RecordBatchBuilder()
    for key in (b"k", None, b"k", None):
        builder.append(NOW, key, b"v")
    refused = refusal(builder.build(codec=codec), cleanup_policy="compact")

    assert isinstance(refused, InvalidRecordsError)
    assert refused.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.record_errors] == [1, 3]


@pytest.mark.parametrize(
    ("delta", "is_taken"), [(-DAY_MS, True), (-DAY_MS - 1, False), (1000, True), (1001, False), (-NOW - 1, True)]
)
def test_timestamps_must_be_near_the_clock_where_the_topic_says_so(delta: int, is_taken: bool) -> None:
    """Before and after have limits of their own; no timestamp is near enough."""
    limits = {"message_timestamp_before_max_ms": DAY_MS, "message_timestamp_after_max_ms": 1000}
    data = make_batch(timestamps=[NOW + delta])
    if is_taken:
        assert validated(data, rules(**limits), NOW).record_count == 1
    else:
        assert refusal(data, **limits).code is ErrorCode.INVALID_TIMESTAMP
        assert validated(data, rules(message_timestamp_type="LogAppendTime", **limits), NOW).max_timestamp == NOW


@pytest.mark.parametrize("copied", [bytes, bytearray])
def test_append_time_replaces_the_producers(copied: Callable[[bytes], bytes | bytearray]) -> None:
    """The CRC is right again, in the buffer of the request or in a copy of it."""
    batch = validated(copied(make_batch(2, timestamps=[5, 6])), rules(message_timestamp_type="LogAppendTime"), NOW)
    batch.check()

    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW)
    assert {record.timestamp for record in batch.records()} == {NOW}


@pytest.mark.parametrize("theirs", Codec)
@pytest.mark.parametrize("ours", Codec)
def test_batches_are_recompressed_where_the_topic_has_another_codec(theirs: Codec, ours: Codec) -> None:
    """Records, producer and sequence stay."""
    data = make_batch(3, codec=theirs, producer_id=7, sequence=4, transactional=True)
    name = "uncompressed" if ours is Codec.NONE else ours.config_name
    batch = validated(data, rules(compression_type=name), NOW)
    batch.check()

    assert batch.codec is ours
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (7, 0, 4, True)
    assert list(batch.records()) == list(RecordBatch(data).records())


def test_a_batch_that_does_not_open_is_refused_where_it_must_be_opened() -> None:
    """Its CRC may be right all the same."""
    data = header(attributes=int(Codec.ZSTD))

    assert validated(data, rules(), NOW).record_count == 2
    assert refusal(data, cleanup_policy="compact").code is ErrorCode.INVALID_RECORD


@examples(200)
@given(at=st.integers(0, 10_000), byte=st.integers(1, 255), compact=st.booleans(), cut=st.integers(0, 3))
def test_hostile_bytes_give_a_kafka_error_or_a_batch(at: int, byte: int, compact: bool, cut: int) -> None:
    """And nothing else."""
    data = bytearray(make_batch(3, codec=Codec.GZIP))
    data[at % len(data)] ^= byte
    del data[len(data) - cut :]
    try:
        batch = validated(data, rules(cleanup_policy="compact" if compact else "delete"), NOW)
    except KafkaError:
        return
    batch.check()


def garbled() -> bytearray:
    """A batch with a good CRC whose second record says that it is longer than the batch."""
    data = bytearray(make_batch(2))
    begin = BATCH_HEADER_BYTES + 1 + (data[BATCH_HEADER_BYTES] >> 1)
    data[begin] = 0x7E
    batch = RecordBatch(data)
    batch.set_max_timestamp(TimestampType.CREATE_TIME, batch.max_timestamp)
    return data


def test_a_topic_may_have_the_contents_of_batches_checked() -> None:
    """What a CRC does not show is refused; without the option it is stored as it came, for speed."""
    assert validated(garbled(), rules(), NOW).record_count == 2
    assert refusal(garbled(), ottla_check_records="true").code is ErrorCode.INVALID_RECORD
    assert refusal(header(record_count=3, last_offset_delta=2), ottla_check_records="true").code is (
        ErrorCode.INVALID_RECORD
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("topic_codec", ["producer", "zstd"])
def test_a_header_that_claims_another_time_is_put_right_where_records_are_opened(
    codec: Codec, topic_codec: str
) -> None:
    """Retention and lookups by time believe it."""
    builder = RecordBatchBuilder()
    for timestamp in (NOW - 5, NOW, NOW - 7):
        builder.append(timestamp, b"k", b"v" * 100)
    data = bytearray(builder.build(codec=codec))
    RecordBatch(data).set_max_timestamp(TimestampType.CREATE_TIME, NOW + 365 * DAY_MS)

    batch = validated(data, rules(ottla_check_records="true", compression_type=topic_codec), NOW)

    assert batch.max_timestamp == NOW
    batch.check()
    assert [record.timestamp for record in batch.records()] == [NOW - 5, NOW, NOW - 7]
