"""Checks of a batch from a client before it is appended to a log.

All of this happens before the log's lock is taken. A batch stays opaque: its header and CRC are checked, and its
records are opened only where an option of the topic asks about them (keys of compacted topics, limits on
timestamps, another codec than the producer's, `ottla.check.records`). Kafka opens all of them; here that would cost
several times what an append does (docs/GUARANTEES.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from ottla.broker.config import TopicConfig
from ottla.protocol.compression import Codec
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.record import Record
from ottla.protocol.record_batch_rewrite import rewrite_batch
from ottla.protocol.records import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    MAGIC,
    NO_TIMESTAMP,
    RECORDS_BYTES_MAX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    RecordBatch,
    TimestampType,
)

_NO_LIMIT_MS = 2**63 - 1
_NEVER_MS = -(2**63)
# A few hundred bytes can decompress to gigabytes. Honest batches stay far below this ratio to the largest batch.
_OPENED_RATIO = 16
_OPENED_BYTES = 16 * 1024 * 1024
# Bounds the errors for single records in a response.
_RECORD_ERRORS_MAX = 1000
_CODEC_LAST = int(max(Codec))
_LEVELS = {
    Codec.GZIP: "compression_gzip_level",
    Codec.LZ4: "compression_lz4_level",
    Codec.ZSTD: "compression_zstd_level",
}


class AppendRules(NamedTuple):
    """The options of a topic that apply to batches, computed once and not per batch."""

    max_message_bytes: int
    segment_bytes: int
    sets_append_time: bool
    # None: that of the producer.
    codec: Codec | None
    level: int | None
    keys_required: bool
    timestamp_before_limit_ms: int
    timestamp_after_limit_ms: int
    # Whether the records of every batch must be opened.
    opens_batches: bool
    # How many bytes the records of a batch may decompress to.
    opened_bytes_max: int
    # Whether the time of the append matters: most topics ask for nothing that depends on it.
    needs_time: bool

    @classmethod
    def of(cls, config: TopicConfig) -> AppendRules:
        """Return the rules of a topic."""
        codec = None if config.compression_type == "producer" else Codec.from_config_name(config.compression_type)
        sets_append_time = config.message_timestamp_type == "LogAppendTime"
        keys_required = "compact" in config.cleanup_policy
        before, after = config.timestamp_before_limit_ms, config.timestamp_after_limit_ms
        opens_batches = (
            keys_required or config.ottla_check_records or (min(before, after) < _NO_LIMIT_MS and not sets_append_time)
        )
        return cls(
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
            sets_append_time=sets_append_time,
            codec=codec,
            level=getattr(config, _LEVELS[codec]) if codec in _LEVELS else None,
            keys_required=keys_required,
            timestamp_before_limit_ms=before,
            timestamp_after_limit_ms=after,
            opens_batches=opens_batches,
            opened_bytes_max=min(max(_OPENED_RATIO * config.max_message_bytes, _OPENED_BYTES), RECORDS_BYTES_MAX),
            needs_time=sets_append_time or opens_batches or codec is not None,
        )


class Flaw(Enum):
    """The kinds of invalid batches that Kafka's metrics count."""

    MAGIC = "magic"
    CRC = "crc"
    OFFSET_OR_SEQUENCE = "offset or sequence"
    NO_KEY = "no key"


class InvalidBatchError(KafkaError):
    """An invalid batch; `flaw` is None if its kind is not counted."""

    def __init__(self, flaw: Flaw | None, code: ErrorCode, detail: str) -> None:
        super().__init__(code, detail)
        self.flaw = flaw


class InvalidRecordsError(InvalidBatchError):
    """Records that the topic does not accept, each with its index in the batch and the reason."""

    def __init__(self, flaw: Flaw | None, code: ErrorCode, record_errors: list[tuple[int, str]]) -> None:
        index, reason = record_errors[0]
        super().__init__(flaw, code, f"record {index} {reason}; {len(record_errors)} such records")
        self.record_errors = record_errors


def validated(data: memoryview | bytes | bytearray, rules: AppendRules, now_ms: int) -> RecordBatch:
    """Return the one batch that `data` holds, ready to be appended; raise KafkaError with the code that Kafka gives.

    The batch is a view of `data`, unless the topic changes it.
    """
    try:
        batch = RecordBatch(data)
        _check_header(batch, len(data), rules)
    except CorruptBatchError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    try:
        batch.check()
    except CorruptBatchError as error:
        raise InvalidBatchError(Flaw.CRC, ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    other_codec = rules.codec is not None and rules.codec != batch.attributes & CODEC_MASK
    if other_codec or rules.opens_batches:
        records = _checked_records(batch, rules, now_ms)
        if other_codec:
            batch = _recompressed(batch, records, rules)
        else:
            latest = max((record.timestamp for record in records), default=NO_TIMESTAMP)
            if latest != batch.max_timestamp and not rules.sets_append_time:
                # Lookups by time and retention trust the header.
                batch = _writable(batch)
                batch.set_max_timestamp(TimestampType.CREATE_TIME, latest)
    if rules.sets_append_time:
        batch = _writable(batch)
        batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, now_ms)
    return batch


def _writable(batch: RecordBatch) -> RecordBatch:
    return RecordBatch(bytearray(batch.view)) if batch.view.readonly else batch


def _check_header(batch: RecordBatch, data_size: int, rules: AppendRules) -> None:
    size = batch.size
    if batch.magic != MAGIC:
        raise InvalidBatchError(
            Flaw.MAGIC, ErrorCode.INVALID_RECORD, f"magic {batch.magic}; only batches of magic {MAGIC} are accepted"
        )
    if data_size - size >= BATCH_HEADER_BYTES:
        raise KafkaError(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    if size > rules.max_message_bytes:
        raise _too_large(size, rules)
    if size > rules.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes are more than segment.bytes = {rules.segment_bytes}"
        )
    if batch.base_offset != 0:
        raise _misnumbered(f"base offset {batch.base_offset} in a batch from a producer")
    if batch.record_count <= 0 or batch.last_offset_delta + 1 != batch.record_count:
        raise _misnumbered(f"{batch.record_count} records with a last offset delta of {batch.last_offset_delta}")
    # The attributes of most batches are just a codec.
    if not 0 <= batch.attributes <= _CODEC_LAST:
        _check_attributes(batch)
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise _misnumbered(f"producer {batch.producer_id} without a sequence or epoch")


def _check_attributes(batch: RecordBatch) -> None:
    if batch.attributes & CODEC_MASK > _CODEC_LAST:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"no codec has the number {batch.attributes & CODEC_MASK}")
    if batch.attributes & CONTROL_BIT:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a control batch from a producer")
    if batch.attributes & TIMESTAMP_TYPE_BIT:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "the batch claims LogAppendTime, which only a broker may set")
    if batch.attributes & TRANSACTIONAL_BIT and batch.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")


def _checked_records(batch: RecordBatch, rules: AppendRules, now_ms: int) -> Iterator[Record]:
    """Yield the records of a batch one by one, never all at once; raise KafkaError at the end at the latest."""
    keyless: list[tuple[int, str]] = []
    untimely: list[tuple[int, str]] = []
    earliest_ms, latest_ms = _NEVER_MS, _NO_LIMIT_MS
    if not rules.sets_append_time:
        earliest_ms = now_ms - rules.timestamp_before_limit_ms
        latest_ms = now_ms + rules.timestamp_after_limit_ms
    try:
        for index, record in enumerate(batch.records(rules.opened_bytes_max)):
            if record.offset != index:
                raise _misnumbered("the records of the batch are not numbered 0, 1, 2, ...")
            if record.key is None and rules.keys_required and len(keyless) < _RECORD_ERRORS_MAX:
                keyless.append((index, "has no key"))
            timestamp = record.timestamp
            is_timely = timestamp < 0 or earliest_ms <= timestamp <= latest_ms
            if not is_timely and len(untimely) < _RECORD_ERRORS_MAX:
                untimely.append((index, f"has timestamp {timestamp}, too far from the broker's {now_ms}"))
            yield record
    except CorruptBatchError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    if keyless:
        raise InvalidRecordsError(Flaw.NO_KEY, ErrorCode.INVALID_RECORD, keyless)
    if untimely:
        raise InvalidRecordsError(None, ErrorCode.INVALID_TIMESTAMP, untimely)


def _recompressed(batch: RecordBatch, records: Iterator[Record], rules: AppendRules) -> RecordBatch:
    rewritten = RecordBatch(rewrite_batch(batch, records, codec=rules.codec, level=rules.level))
    if rewritten.size > rules.max_message_bytes:
        raise _too_large(rewritten.size, rules)
    return rewritten


def _misnumbered(detail: str) -> KafkaError:
    return InvalidBatchError(Flaw.OFFSET_OR_SEQUENCE, ErrorCode.INVALID_RECORD, detail)


def _too_large(size: int, rules: AppendRules) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes are more than max.message.bytes = {rules.max_message_bytes}"
    )
