"""Records of a topic as a stream: from an offset or a time on, filtered and decoded, to the end or for ever.

The stream is as fast as its reader: while a part of it cannot be sent, nothing is fetched. What is fetched at a time is
bounded, so a stream takes the same memory whatever it reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from ottla.client.admin.admin import Admin
from ottla.client.cli.records.offsets import partitions_of, resolve
from ottla.client.cli.records.reading import PartitionReader, ReadRecord
from ottla.client.schema.decoding import DecodeAs, Decoder, Payload
from ottla.console.numbers import Long, long
from ottla.console.records.filters import Filter
from ottla.console.records.internal_topics import internal_record
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import Record

_FETCH_BYTES_MAX: Final = 2 * 1024 * 1024
_PARTITION_BYTES_MAX: Final = 512 * 1024
# A reader without a match hears this often how far the search has come.
_PROGRESS_EVERY_S: Final = 1.0
_SCAN_S_MAX: Final = 30.0
_SCAN_BYTES_MAX: Final = 64 * 1024 * 1024
_LAST_BYTES_MAX: Final = 8 * 1024 * 1024
_AT_ONCE: Final = 100
_HEADERS_MAX: Final = 64


class HeaderRow(msgspec.Struct, kw_only=True):
    """A header of a record."""

    name: str
    value: Payload


class RecordLine(msgspec.Struct, kw_only=True, tag="record", tag_field="type"):
    """A record."""

    topic: str
    partition: int
    offset: Long
    timestamp_ms: Long
    key: Payload
    value: Payload
    headers: list[HeaderRow]


class ProgressLine(msgspec.Struct, kw_only=True, tag="progress", tag_field="type"):
    """How far a stream is; at least one a second."""

    read: Long
    """Records that were looked at."""
    matched: Long
    skipped: Long
    """Records that matched, but were too many to show."""
    positions: dict[str, Long]
    """The next offset to read in each partition."""
    ends: dict[str, Long]
    """The end of each partition, as far as it is known."""


class EndLine(msgspec.Struct, kw_only=True, tag="end", tag_field="type"):
    """The last line of a stream that ends; continue with its positions."""

    reason: Literal["limit", "end", "time", "bytes"]
    """Enough records, the end of all partitions, or enough work for one request."""
    read: Long
    matched: Long
    positions: dict[str, Long]
    ends: dict[str, Long]


Line = RecordLine | ProgressLine | EndLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read, and how to show it."""

    topic: str
    partitions: Sequence[int] = ()
    start: str = "end"
    positions: Mapping[int, int] | None = None
    limit: int = 100
    follow: bool = False
    filter: Filter | None = None
    decode_key: DecodeAs = "auto"
    decode_value: DecodeAs = "auto"
    read_committed: bool = True
    per_second: int = 200


class RecordStream:
    """Reads a topic with a client of its own, because a fetch that waits would hold up other requests."""

    def __init__(self, client: Mapping[str, Any], decoder: Decoder, reading: Reading) -> None:
        self._client = client
        self._decoder = decoder
        self._reading = reading
        self._read = self._matched = self._skipped = self._bytes = 0

    async def lines(self) -> AsyncGenerator[list[Line]]:
        """Yield records and progress; raises KafkaError if the topic cannot be read."""
        reading = self._reading
        async with Admin(**{**self._client, "client_id": "ottla-console-records"}) as admin:
            partitions = await partitions_of(admin, reading.topic, reading.partitions or None)
            level: Any = "read_committed" if reading.read_committed else "read_uncommitted"
            starts = await resolve(admin, partitions, reading.start, level)
            for number, offset in (reading.positions or {}).items():
                if TopicPartition(reading.topic, number) in starts:
                    starts[TopicPartition(reading.topic, number)] = offset
            reader = PartitionReader(
                admin,
                starts,
                read_committed=reading.read_committed,
                fetch_bytes_max=_FETCH_BYTES_MAX,
                partition_bytes_max=_PARTITION_BYTES_MAX,
            )
            if not reading.follow:
                # A fetch at the end of a partition would wait for new records.
                reader.ends = await resolve(admin, partitions, "end", level)
            if reading.follow:
                async for lines in self._followed(reader):
                    yield lines
            elif reading.start.startswith("-") and not reading.positions:
                async for lines in self._last(reader):
                    yield lines
            else:
                async for lines in self._scanned(reader):
                    yield lines

    async def _scanned(self, reader: PartitionReader) -> AsyncIterator[list[Line]]:
        """Yield records in the order of fetching, up to the limit or to the current ends."""
        started_at = told_at = time.monotonic()
        async for reads in reader.fetches(until_end=True):
            for at in range(0, len(reads), _AT_ONCE):
                part = reads[at : at + _AT_ONCE]
                lines: list[Line] = []
                for number, read in enumerate(part):
                    line = await self._line(read)
                    if line is None:
                        continue
                    lines.append(line)
                    if self._matched >= self._reading.limit:
                        self._rewind(reader, reads[at + number + 1 :])
                        yield [*lines, self._end(reader, "limit")]
                        return
                if lines:
                    yield lines
                await asyncio.sleep(0)
            now = time.monotonic()
            if now - started_at > _SCAN_S_MAX or self._bytes > _SCAN_BYTES_MAX:
                yield [self._end(reader, "bytes" if self._bytes > _SCAN_BYTES_MAX else "time")]
                return
            if now - told_at > _PROGRESS_EVERY_S:
                told_at = now
                yield [self._progress(reader)]
        yield [self._end(reader, "end")]

    async def _last(self, reader: PartitionReader) -> AsyncIterator[list[Line]]:
        """Yield the newest records of all partitions together, oldest first."""
        limit = self._reading.limit
        found: list[tuple[int, ReadRecord]] = []
        async for reads in reader.fetches(until_end=True):
            for read in reads:
                if self._reading.filter is None or await self._line(read) is not None:
                    found.append((read.record.timestamp, read))
            # Only the newest are kept, so that memory stays bounded.
            found.sort(key=lambda each: each[0])
            del found[:-limit]
            kept = 0
            for number in range(len(found) - 1, -1, -1):
                kept += _size(found[number][1].record)
                if kept > _LAST_BYTES_MAX:
                    del found[: number + 1]
                    break
            self._bytes += sum(_size(read.record) for read in reads)
            await asyncio.sleep(0)
            if self._bytes > _SCAN_BYTES_MAX:
                break
        read_so_far, self._matched = self._read, 0
        for at in range(0, len(found), _AT_ONCE):
            lines = [await self._line(read) for _, read in found[at : at + _AT_ONCE]]
            yield [line for line in lines if line is not None]
        self._read = max(read_so_far, self._matched)
        yield [self._end(reader, "end" if self._bytes <= _SCAN_BYTES_MAX else "bytes")]

    async def _followed(self, reader: PartitionReader) -> AsyncIterator[list[Line]]:
        """Yield new records for ever, and what was left out."""
        told_at = second = time.monotonic()
        shown = 0
        yield [self._progress(reader)]
        async for reads in reader.fetches(until_end=False):
            lines: list[Line] = []
            for read in reads:
                now = time.monotonic()
                if now - second >= 1.0:
                    second, shown = now, 0
                if shown >= self._reading.per_second and self._reading.filter is None:
                    self._read += 1
                    self._matched += 1
                    self._skipped += 1
                    continue
                line = await self._line(read)
                if line is None:
                    continue
                if shown >= self._reading.per_second:
                    self._skipped += 1
                    continue
                shown += 1
                lines.append(line)
                if len(lines) >= _AT_ONCE:
                    yield lines
                    lines = []
            if lines:
                yield lines
            now = time.monotonic()
            if now - told_at >= _PROGRESS_EVERY_S:
                told_at = now
                yield [self._progress(reader)]

    async def _line(self, read: ReadRecord) -> RecordLine | None:
        """Return a record for the reader; None if the filter does not match."""
        partition, record = read
        reading = self._reading
        self._read += 1
        self._bytes += _size(record)
        wanted = reading.filter.names if reading.filter is not None else frozenset()
        is_auto = reading.decode_key == reading.decode_value == "auto"
        internal = internal_record(partition.topic, record.key, record.value) if is_auto else None
        if internal is not None:
            key = self._decoder.internal(record.key, internal[0])
            value = self._decoder.internal(record.value, internal[1])
        else:
            value = await self._decoder.decode(record.value, reading.decode_value, needs_value="value" in wanted)
            key = await self._decoder.decode(record.key, reading.decode_key, needs_value="key" in wanted)
        if reading.filter is not None and not reading.filter.matches(
            {
                "key": key.value,
                "value": value.value,
                "headers": {name: _header_text(data) for name, data in record.headers} if "headers" in wanted else {},
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
            }
        ):
            return None
        self._matched += 1
        headers = [
            HeaderRow(name=name, value=(await self._decoder.decode(data)).payload)
            for name, data in record.headers[:_HEADERS_MAX]
        ]
        return RecordLine(
            topic=partition.topic,
            partition=partition.partition,
            offset=long(record.offset),
            timestamp_ms=long(record.timestamp),
            key=key.payload,
            value=value.payload,
            headers=headers,
        )

    @staticmethod
    def _rewind(reader: PartitionReader, unread: Sequence[ReadRecord]) -> None:
        """Set the positions back to the records that were fetched, but not looked at."""
        for read in reversed(unread):
            reader.positions[read.partition] = read.record.offset

    def _progress(self, reader: PartitionReader) -> ProgressLine:
        return ProgressLine(
            read=long(self._read),
            matched=long(self._matched),
            skipped=long(self._skipped),
            positions=_by_number(reader.positions),
            ends=_by_number(reader.ends),
        )

    def _end(self, reader: PartitionReader, reason: Literal["limit", "end", "time", "bytes"]) -> EndLine:
        return EndLine(
            reason=reason,
            read=long(self._read),
            matched=long(self._matched),
            positions=_by_number(reader.positions),
            ends=_by_number(reader.ends),
        )


def _by_number(offsets: Mapping[TopicPartition, int]) -> dict[str, str]:
    return {str(partition.partition): long(offset) for partition, offset in sorted(offsets.items())}


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _header_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
