"""Records: read, followed, exported, written, sent again, and moved from a dead-letter topic back."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from ottla.client.cli.records.offsets import partitions_of, resolve
from ottla.client.cli.records.reading import PartitionReader
from ottla.console.api.changes import Change, ChangeRow, command_line
from ottla.console.numbers import Long, long
from ottla.console.problems import Problem
from ottla.console.records.decoding import DecodeAs, Decoder
from ottla.console.records.filters import LENGTH_MAX, Filter, FilterError
from ottla.console.records.reading import EndLine, ProgressLine, Reading, RecordLine, RecordStream
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import Record

if TYPE_CHECKING:
    from ottla.client.producer.producer import Producer

_Filter = Annotated[str, Meta(max_length=LENGTH_MAX, description='Such as value["user"] == "alice" and offset > 10.')]
_From = Annotated[
    str,
    Meta(max_length=64, description="start, end, an offset, -N (the last N), @TIME: ISO 8601, milliseconds or -5m."),
]
_EXPORT_MAX = 1_000_000
_REDRIVE_MAX = 10_000
# Between key and value, when records go from one command to another.
_DELIMITER = ":::"
_KEY_AND_VALUE = f"%k{_DELIMITER}%s\\n"


class RecordsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """Which records to read, and how to show them."""

    start: _From = "-50"
    partition: Annotated[list[int], Meta(description="Only these partitions.")] = []
    positions: Annotated[
        str, Meta(max_length=20_000, description="Go on from these offsets instead: 0:17,1:4 (partition:offset).")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 50
    follow: Annotated[bool, Meta(description="Go on with new records until the client goes away.")] = False
    filter: _Filter = ""
    decode_key: DecodeAs = "auto"
    decode_value: DecodeAs = "auto"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    per_second: Annotated[int, Meta(ge=1, le=5_000, description="How many to show a second with follow.")] = 200
    value_bytes: Annotated[int, Meta(ge=0, le=8_388_608, description="How much of a value to return.")] = 65_536


class ExportQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """Which records to export."""

    start: _From = "start"
    partition: list[int] = []
    limit: Annotated[int, Meta(ge=1, le=_EXPORT_MAX)] = 10_000
    filter: _Filter = ""
    decode_key: DecodeAs = "auto"
    decode_value: DecodeAs = "auto"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"


class PayloadIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Bytes to write; give one of the two, or none for null."""

    text: str | None = None
    base64: str | None = None


class HeaderIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A header to write."""

    name: str
    value: PayloadIn = msgspec.field(default_factory=PayloadIn)


class NewRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A record to write; without a partition, the key decides."""

    key: PayloadIn = msgspec.field(default_factory=PayloadIn)
    value: PayloadIn = msgspec.field(default_factory=PayloadIn)
    headers: Annotated[list[HeaderIn], Meta(max_length=100)] = []
    partition: Annotated[int, Meta(ge=0)] | None = None
    timestamp_ms: Long | None = None


class Resend(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A record to send again, byte for byte; without a target, to the same topic."""

    partition: Annotated[int, Meta(ge=0)]
    offset: Long
    target_topic: str | None = None


class Redrive(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Send the records of a dead-letter topic where they came from: to a topic, or to the one that a header names."""

    target_topic: str | None = None
    target_header: str | None = None
    start: _From = "start"
    filter: _Filter = ""
    limit: Annotated[int, Meta(ge=1, le=_REDRIVE_MAX)] = 1_000
    dry_run: bool = True


class Written(msgspec.Struct, kw_only=True):
    """Where a record was written, and the command that does the same."""

    topic: str
    partition: int
    offset: Long
    timestamp_ms: Long | None
    command: str


async def read_records(
    call: Call, topic: str, query: RecordsQuery
) -> AsyncIterator[list[RecordLine | ProgressLine | EndLine]]:
    """Read records from an offset or a time on, or follow new ones; one JSON object per line."""
    reading = Reading(
        topic=topic,
        partitions=query.partition,
        start=query.start,
        positions=_positions(query.positions),
        limit=query.limit,
        follow=query.follow,
        filter=_filter(query.filter),
        decode_key=query.decode_key,
        decode_value=query.decode_value,
        read_committed=query.isolation == "read_committed",
        per_second=query.per_second,
    )
    decoder = Decoder(call.sessions.registry, query.value_bytes)
    async with contextlib.aclosing(RecordStream(call.user.client, decoder, reading).lines()) as parts:
        async for lines in parts:
            yield lines


async def export_records(call: Call, topic: str, query: ExportQuery) -> AsyncIterator[list[RecordLine | EndLine]]:
    """Export records as a file with one JSON object per line; the last line says whether that was all."""
    call.reply.filename = f"{topic}.ndjson"
    positions = None
    left = query.limit
    while left > 0:
        reading = Reading(
            topic=topic,
            partitions=query.partition,
            start=query.start,
            positions=positions,
            limit=left,
            filter=_filter(query.filter),
            decode_key=query.decode_key,
            decode_value=query.decode_value,
            read_committed=query.isolation == "read_committed",
        )
        decoder = Decoder(call.sessions.registry, 8 * 1024 * 1024)
        end: EndLine | None = None
        async with contextlib.aclosing(RecordStream(call.user.client, decoder, reading).lines()) as parts:
            async for lines in parts:
                records = [line for line in lines if isinstance(line, RecordLine)]
                left -= len(records)
                if records:
                    yield list(records)
                end = next((line for line in lines if isinstance(line, EndLine)), end)
        if end is None or end.reason in ("end", "limit"):
            yield [end] if end is not None else []
            return
        positions = {int(number): int(offset) for number, offset in end.positions.items()}


async def write_record(call: Call, topic: str, body: NewRecord) -> Written:
    """Write a record."""
    record = Record(
        -1,
        -1 if body.timestamp_ms is None else int(body.timestamp_ms),
        _bytes(body.key),
        _bytes(body.value),
        [(each.name, _bytes(each.value)) for each in body.headers],
    )
    return await _send(call, topic, record, body.partition)


async def resend_record(call: Call, topic: str, body: Resend) -> Written:
    """Send a record again, byte for byte, to the same topic or to another."""
    admin = await call.admin()
    partition = TopicPartition(topic, body.partition)
    reader = PartitionReader(
        admin, {partition: int(body.offset)}, read_committed=False, partition_bytes_max=1, fetch_bytes_max=1
    )
    async for reads in reader.fetches(until_end=True):
        for read in reads:
            if read.record.offset == int(body.offset):
                target = body.target_topic or topic
                same = body.partition if target == topic else None
                return await _send(call, target, read.record._replace(timestamp=-1), same)
        break
    raise Problem(404, "There is no such record", f"{partition} has no record with offset {body.offset}.")


async def redrive_topic(call: Call, topic: str, body: Redrive) -> Change:
    """Send the records of a dead-letter topic to a topic, or to the topic that a header names."""
    if (body.target_topic is None) == (body.target_header is None):
        raise Problem(400, "Give target_topic or target_header")
    if body.target_topic == topic:
        raise Problem(400, "The records are in this topic already")
    wanted = _filter(body.filter)
    admin = await call.admin()
    state = await (await call.view()).state()
    partitions = await partitions_of(admin, topic, None)
    ends = await resolve(admin, partitions, "end", "read_committed")
    reader = PartitionReader(
        admin, await resolve(admin, partitions, body.start), fetch_bytes_max=2**21, partition_bytes_max=2**19
    )
    decoder = Decoder(call.sessions.registry)
    counts: dict[str, int] = {}
    warnings: list[str] = []
    problems = 0
    async with _producer(call) as producer:
        async for reads in reader.fetches(until_end=True):
            for read in reads:
                # Records that are written meanwhile, maybe by this very redrive, are not for it.
                if read.record.offset >= ends[read.partition] or sum(counts.values()) >= body.limit:
                    continue
                if wanted is not None and not await _matches(decoder, wanted, read.partition, read.record):
                    continue
                target = body.target_topic or _header(read.record, body.target_header or "")
                if target is None or target not in state.topics or target == topic:
                    problems += 1
                    continue
                counts[target] = counts.get(target, 0) + 1
                if not body.dry_run:
                    await producer.send(
                        target, read.record.value, key=read.record.key, headers=list(read.record.headers)
                    )
            if sum(counts.values()) >= body.limit:
                warnings.append(f"Stopped after {body.limit} records; redrive again for the rest.")
                break
    if problems:
        warnings.append(f"{problems} records name no topic that exists; they stay where they are.")
    if not body.dry_run:
        warnings.append("The records are also still in the dead-letter topic: trim it when they are handled.")
    target = body.target_topic or "TOPIC"
    return Change(
        is_dry_run=body.dry_run,
        changes=[
            ChangeRow(subject=name, before=None, after=f"{count} records") for name, count in sorted(counts.items())
        ],
        warnings=warnings,
        command=f"{command_line('topic', 'consume', topic, '--offset', body.start, '--exit', '-f', _KEY_AND_VALUE)}"
        f" | {command_line('topic', 'produce', target, '--key-delimiter', _DELIMITER)}",
    )


def _producer(call: Call) -> Producer:
    """Return a producer that acts as the user; imported here, because most consoles never need it."""
    from ottla.client.producer.producer import Producer

    return Producer(**{**call.user.client, "acks": "all"})


async def _send(call: Call, topic: str, record: Record, partition: int | None) -> Written:
    try:
        async with _producer(call) as producer:
            sent = await producer.send_and_wait(
                topic,
                record.value,
                key=record.key,
                partition=partition,
                timestamp_ms=None if record.timestamp < 0 else record.timestamp,
                headers=list(record.headers),
            )
    except (ValueError, TypeError) as error:
        raise Problem(400, "The record cannot be written", str(error)) from error
    arguments = ["topic", "produce", topic]
    if partition is not None:
        arguments += ["--partition", str(partition)]
    if record.key is not None:
        arguments += ["--key", record.key.decode(errors="replace")]
    return Written(
        topic=sent.topic,
        partition=sent.partition,
        offset=long(sent.offset),
        timestamp_ms=None if sent.timestamp is None else long(sent.timestamp),
        command=f"printf %s VALUE | {command_line(*arguments)}",
    )


async def _matches(decoder: Decoder, wanted: Filter, partition: TopicPartition, record: Record) -> bool:
    value = await decoder.decode(record.value, needs_value=True)
    key = await decoder.decode(record.key, needs_value=True)
    return wanted.matches(
        {
            "key": key.value,
            "value": value.value,
            "headers": {name: (data or b"").decode(errors="replace") for name, data in record.headers},
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
    )


def _header(record: Record, name: str) -> str | None:
    return next((data.decode(errors="replace") for key, data in record.headers if key == name and data), None)


def _filter(text: str) -> Filter | None:
    if not text.strip():
        return None
    try:
        return Filter(text)
    except FilterError as error:
        raise Problem(400, "The filter is not valid", str(error)) from error


def _positions(text: str) -> dict[int, int] | None:
    if not text:
        return None
    found = {}
    for part in text.split(","):
        number, colon, offset = part.partition(":")
        if not (colon and number.isdigit() and offset.isdigit()):
            raise Problem(400, "The positions are not valid", "Write partition:offset,partition:offset.")
        found[int(number)] = int(offset)
    return found


def _bytes(payload: PayloadIn) -> bytes | None:
    if payload.text is not None and payload.base64 is not None:
        raise Problem(400, "Give text or base64, not both")
    if payload.base64 is not None:
        try:
            return base64.b64decode(payload.base64, validate=True)
        except binascii.Error as error:
            raise Problem(400, "This is not base64", str(error)) from error
    return None if payload.text is None else payload.text.encode()
