"""Changes of records: written, sent again, and moved from a dead-letter topic back."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from ottla.client.cli.records.offsets import partitions_of, resolve
from ottla.client.cli.records.reading import PartitionReader
from ottla.console.api.changes import Change, ChangeRow, command_line
from ottla.console.api.records import FilterText, FromText, filter_of
from ottla.console.numbers import Long, long
from ottla.console.problems import Problem
from ottla.console.records.decoding import Decoder
from ottla.console.records.filters import Filter
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import Record

if TYPE_CHECKING:
    from ottla.client.producer.producer import Producer

_REDRIVE_MAX: Final = 10_000
# Between key and value, when records go from one command to another.
_DELIMITER: Final = ":::"
_KEY_AND_VALUE: Final = f"%k{_DELIMITER}%s\\n"


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
    start: FromText = "start"
    filter: FilterText = ""
    limit: Annotated[int, Meta(ge=1, le=_REDRIVE_MAX)] = 1_000
    dry_run: bool = True


class Written(msgspec.Struct, kw_only=True):
    """Where a record was written, and the command that does the same."""

    topic: str
    partition: int
    offset: Long
    timestamp_ms: Long | None
    command: str


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
    wanted = filter_of(body.filter)
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


def _bytes(payload: PayloadIn) -> bytes | None:
    if payload.text is not None and payload.base64 is not None:
        raise Problem(400, "Give text or base64, not both")
    if payload.base64 is not None:
        try:
            return base64.b64decode(payload.base64, validate=True)
        except binascii.Error as error:
            raise Problem(400, "This is not base64", str(error)) from error
    return None if payload.text is None else payload.text.encode()
