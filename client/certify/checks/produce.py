"""Writing records: what is acknowledged, what is refused, and what is stored."""

from __future__ import annotations

import struct
from typing import Final

from ottla.client.certify.check import CheckFailed, Checks, expect, expect_error, expect_that
from ottla.client.certify.trial import (
    REQUEST_TIMEOUT_MS,
    Topic,
    Trial,
    batch_of,
    now_ms,
    produce_request,
    whole_batches,
)
from ottla.protocol.api import Api
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch, TimestampType
from ottla.protocol.requests import encode_request

CHECKS: Final = Checks("produce", "Writing records")

_PRODUCE: Final = {Api.PRODUCE: 3}
_BOTH: Final = {Api.PRODUCE: 3, Api.FETCH: 4}
_HOUR_MS: Final = 3_600_000
_MESSAGE_BYTES_MAX: Final = 1000
_QUIET_SECONDS: Final = 10.0
_ACKS_VERSION: Final = 7


async def _expect_unwritten(trial: Trial, topic: Topic, end: int = 0) -> None:
    expect("the end offset after a refused batch", await trial.end_offset(topic), end)


@CHECKS.check(_BOTH)
async def acks(trial: Trial) -> None:
    """Writes with acks=1 and acks=all are acknowledged with the offset of their first record, one after the other."""
    topic = await trial.topic()
    expected = 0
    for acks_, count in ((1, 1), (-1, 3), (1, 2), (-1, 1)):
        row = await trial.produce(topic, batch_of(*[b"value"] * count), acks=acks_)
        expect_error(f"Produce with acks={acks_}", row.error_code, ErrorCode.NONE)
        expect(f"the base offset with acks={acks_}", row.base_offset, expected)
        expected += count
    expect("the number of records", len(await trial.read(topic, expected)), expected)


@CHECKS.check(_BOTH)
async def acks_0(trial: Trial) -> None:
    """A write with acks=0 gets no answer; the next request on the connection does, and the record is written."""
    topic = await trial.topic()
    probe = await trial.probe(await trial.leader(topic))
    version = min(_ACKS_VERSION, trial.version(Api.PRODUCE))
    for correlation_id, (value, acks_) in enumerate(((b"silent", 0), (b"told", 1))):
        request = produce_request(topic.name, batch_of(value), acks=acks_)
        probe.send_frame(b"".join(encode_request(Api.PRODUCE, version, correlation_id, "certify", request)))
    answer = await probe.answer(_QUIET_SECONDS)
    if answer is None:
        raise CheckFailed("an answer to the write with acks=1", "the broker closed the connection")
    expect("the request that is answered first", struct.unpack_from(">i", answer)[0], 1)
    expect("the values", await trial.values(topic, 2), [b"silent", b"told"])


@CHECKS.check(_PRODUCE)
async def invalid_acks(trial: Trial) -> None:
    """A write with acks=2 is INVALID_REQUIRED_ACKS."""
    topic = await trial.topic()
    row = await trial.produce(topic, batch_of(b"value"), acks=2)
    expect_error("acks=2", row.error_code, ErrorCode.INVALID_REQUIRED_ACKS)
    await _expect_unwritten(trial, topic)


@CHECKS.check(_PRODUCE)
async def wrong_crc(trial: Trial) -> None:
    """A batch with a wrong CRC is refused with CORRUPT_MESSAGE, and is not written."""
    topic = await trial.topic()
    batch = batch_of(b"value")
    batch[-2] ^= 0xFF
    row = await trial.produce(topic, batch)
    expect_error("a wrong CRC", row.error_code, ErrorCode.CORRUPT_MESSAGE)
    await _expect_unwritten(trial, topic)


@CHECKS.check(_PRODUCE)
async def wrong_record_count(trial: Trial) -> None:
    """A batch whose header counts more records than it has is refused, and is not written."""
    topic = await trial.topic()
    builder = RecordBatchBuilder()
    builder.append(now_ms(), None, b"value")
    row = await trial.produce(topic, builder.build(last_offset_delta=4))
    expect_error("a wrong record count", row.error_code, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    await _expect_unwritten(trial, topic)


@CHECKS.check(_PRODUCE)
async def two_batches(trial: Trial) -> None:
    """Two batches for one partition in one request are refused with INVALID_RECORD."""
    topic = await trial.topic()
    row = await trial.produce(topic, batch_of(b"one") + batch_of(b"two"))
    expect_error("two batches at once", row.error_code, ErrorCode.INVALID_RECORD)
    await _expect_unwritten(trial, topic)


@CHECKS.check(_PRODUCE)
async def control_batch(trial: Trial) -> None:
    """A client cannot write a control batch: INVALID_RECORD."""
    topic = await trial.topic()
    row = await trial.produce(topic, batch_of(b"value", control=True))
    expect_error("a control batch", row.error_code, ErrorCode.INVALID_RECORD)
    await _expect_unwritten(trial, topic)


@CHECKS.check(_BOTH)
async def too_large(trial: Trial) -> None:
    """A batch above max.message.bytes of its topic is MESSAGE_TOO_LARGE; one below is written."""
    topic = await trial.topic(configs={"max.message.bytes": str(_MESSAGE_BYTES_MAX)})
    row = await trial.produce(topic, batch_of(bytes(_MESSAGE_BYTES_MAX)))
    expect_error("a batch that is too large", row.error_code, ErrorCode.MESSAGE_TOO_LARGE)
    expect("the offset of a batch that fits", await trial.write(topic, bytes(_MESSAGE_BYTES_MAX // 2)), 0)


@CHECKS.check(_PRODUCE)
async def unknown_partition(trial: Trial) -> None:
    """A write to an unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION."""
    topic = await trial.topic()
    for name, partition in ((trial.name("unknown"), 0), (topic.name, 1)):
        request = produce_request(name, batch_of(b"value"), partition=partition)
        response = await trial.ask(Api.PRODUCE, request, final=True)
        row = response.responses[0].partition_responses[0]
        expect_error(f"{name}-{partition}", row.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@CHECKS.check(_PRODUCE, brokers=2)
async def not_the_leader(trial: Trial) -> None:
    """A broker that does not lead the partition refuses the write with NOT_LEADER_OR_FOLLOWER."""
    topic = await trial.topic()
    leader = await trial.leader(topic)
    other = next(node for node in trial.brokers if node != leader)
    request = produce_request(topic.name, batch_of(b"value"))
    response = await trial.ask(Api.PRODUCE, request, node=other, final=True)
    row = response.responses[0].partition_responses[0]
    expect_error("a write to a follower", row.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await _expect_unwritten(trial, topic)


@CHECKS.check(_BOTH)
async def partitions_are_apart(trial: Trial) -> None:
    """In one request, a partition that is refused does not affect the others, and each is answered."""
    topic = await trial.topic(partitions=3)
    corrupt = batch_of(b"value")
    corrupt[-2] ^= 0xFF
    # All partitions that one broker leads.
    leader = await trial.leader(topic)
    mine = [number for number in range(3) if trial.client.leader(TopicPartition(topic.name, number)) == leader]
    rows = [PartitionProduceData(index=mine[0], records=corrupt)]
    rows += [PartitionProduceData(index=number, records=batch_of(b"value")) for number in mine[1:]]
    data = [TopicProduceData(name=topic.name, partition_data=rows)]
    request = ProduceRequest(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=data)
    response = await trial.ask(Api.PRODUCE, request, node=leader, final=True)
    codes = {row.index: row.error_code for each in response.responses for row in each.partition_responses}
    expect("the partitions in the answer", set(codes), set(mine))
    for number in mine:
        wanted = ErrorCode.CORRUPT_MESSAGE if number == mine[0] else ErrorCode.NONE
        expect_error(f"partition {number}", codes[number], wanted)


async def _round_trip(trial: Trial, codec: Codec) -> None:
    topic = await trial.topic(codec.name.lower())
    values = [b"%d " % number * 50 for number in range(20)]
    base = await trial.write(topic, *values, codec=codec)
    expect("the base offset", base, 0)
    row = await trial.fetch(topic, 0)
    stored = whole_batches(row)[0]
    expect("the codec of the stored batch", stored.codec.name.lower(), codec.name.lower())
    expect("the values that are read", await trial.values(topic, len(values)), values)


@CHECKS.check({Api.PRODUCE: 7, Api.FETCH: 10})
async def compression(trial: Trial) -> None:
    """Batches in gzip, snappy, lz4 and zstd are stored as they were sent, and read back."""
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        await _round_trip(trial, codec)


@CHECKS.check({Api.PRODUCE: 7, Api.FETCH: 10})
async def broken_compression(trial: Trial) -> None:
    """A compressed batch that cannot be decompressed is refused, and is not written."""
    topic = await trial.topic()
    broken = batch_of(b"value" * 100)
    batch = RecordBatch(broken)
    # The header says gzip, with a correct CRC, and the bytes are not.
    batch.attributes |= Codec.GZIP
    batch.set_max_timestamp(TimestampType.CREATE_TIME, batch.max_timestamp)
    row = await trial.produce(topic, broken)
    expect_that(row.error_code != ErrorCode.NONE, "an error for bytes that are no gzip", "no error")
    await _expect_unwritten(trial, topic)


@CHECKS.check(_BOTH)
async def contents(trial: Trial) -> None:
    """Keys, values and headers come back byte for byte; null and empty are different."""
    topic = await trial.topic()
    values, keys = [b"", None, b"\x00\xff", "č".encode()], [None, b"", b"\x00", b"key"]
    headers = [("name", b"\x00value"), ("name", None), ("", b"")]
    await trial.write(topic, *values, keys=keys, headers=headers)  # type: ignore[arg-type]
    records = await trial.read(topic, 4)
    expect("the values", [each.value for each in records], values)
    expect("the keys", [each.key for each in records], keys)
    for each in records:
        expect("the headers", [(key, value) for key, value in each.headers], headers)


@CHECKS.check(_BOTH)
async def create_time(trial: Trial) -> None:
    """By default a record keeps the timestamp that its producer has set."""
    topic = await trial.topic(configs={"message.timestamp.type": "CreateTime"})
    then = now_ms() - _HOUR_MS
    row = await trial.produce(topic, batch_of(b"one", b"two", timestamp=then))
    expect_error("Produce", row.error_code, ErrorCode.NONE)
    expect("the append time in the answer", row.log_append_time_ms, -1)
    expect("the timestamps", [each.timestamp for each in await trial.read(topic, 2)], [then, then + 1])


@CHECKS.check(_BOTH)
async def log_append_time(trial: Trial) -> None:
    """With message.timestamp.type=LogAppendTime, records have the time of the broker, which the answer names."""
    topic = await trial.topic(configs={"message.timestamp.type": "LogAppendTime"})
    then = now_ms() - _HOUR_MS
    row = await trial.produce(topic, batch_of(b"one", b"two", timestamp=then))
    expect_error("Produce", row.error_code, ErrorCode.NONE)
    expect_that(row.log_append_time_ms > then + 1, "the broker's time in the answer", row.log_append_time_ms)
    (batch,) = whole_batches(await trial.fetch(topic, 0))
    expect("the timestamp type", batch.timestamp_type, TimestampType.LOG_APPEND_TIME)
    stamps = {each.timestamp for each in batch.records()}
    expect("the timestamps", stamps, {row.log_append_time_ms})


@CHECKS.check(_PRODUCE)
async def old_timestamp(trial: Trial) -> None:
    """A timestamp beyond the limit of the topic is INVALID_TIMESTAMP."""
    topic = await trial.topic(configs={"message.timestamp.before.max.ms": "60000"})
    row = await trial.produce(topic, batch_of(b"value", timestamp=now_ms() - _HOUR_MS))
    expect_error("a timestamp of an hour ago", row.error_code, ErrorCode.INVALID_TIMESTAMP)
    await _expect_unwritten(trial, topic)


@CHECKS.check(_BOTH)
async def compacted_topic_needs_keys(trial: Trial) -> None:
    """A compacted topic refuses a record without a key with INVALID_RECORD, and takes one with a key."""
    topic = await trial.topic(configs={"cleanup.policy": "compact"})
    row = await trial.produce(topic, batch_of(b"value"))
    expect_error("a record without a key", row.error_code, ErrorCode.INVALID_RECORD)
    expect("the offset of a record with a key", await trial.write(topic, b"value", keys=[b"key"]), 0)
