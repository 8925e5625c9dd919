"""Changes of records: written, sent again, and moved from a dead-letter topic back."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource
from ottla.client.cli.records.offsets import partitions_of, resolve
from ottla.client.cli.records.reading import PartitionReader
from ottla.client.errors import KafkaError
from ottla.client.producer.partitioner import partition_of_key
from ottla.client.schema.decoding import Decoder
from ottla.console.api.changes import Change, ChangeRow, command_line
from ottla.console.api.records import FilterText, FromText, filter_of
from ottla.console.api.topics import found_topic
from ottla.console.numbers import Long, long
from ottla.console.problems import Problem
from ottla.console.records.filters import Filter
from ottla.console.web.call import Call
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import Record

if TYPE_CHECKING:
    from ottla.client.producer.producer import Producer

_REDRIVE_MAX: Final = 10_000
_ARGUMENT_BYTES_MAX: Final = 2_000
_POLICY: Final = "cleanup.policy"
_BYTES_MAX: Final = "max.message.bytes"
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
    dry_run: bool = False


class Resend(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A record to send again, byte for byte; without a target, to the same topic."""

    partition: Annotated[int, Meta(ge=0)]
    offset: Long
    target_topic: str | None = None
    dry_run: bool = False


class Redrive(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Send the records of a dead-letter topic where they came from: to a topic, or to the one that a header names."""

    target_topic: str | None = None
    target_header: str | None = None
    start: FromText = "start"
    filter: FilterText = ""
    limit: Annotated[int, Meta(ge=1, le=_REDRIVE_MAX)] = 1_000
    dry_run: bool = True


class Written(Change, kw_only=True):
    """Where a record was written, or would be."""

    topic: str
    partition: int | None
    """Null in a preview, if the producer chooses."""
    offset: Long | None
    """Null in a preview."""
    timestamp_ms: Long | None


async def write_record(call: Call, topic: str, body: NewRecord) -> Written:
    """Write a record; a dry run shows what would be written, and where."""
    record = Record(
        -1,
        -1 if body.timestamp_ms is None else int(body.timestamp_ms),
        _bytes(body.key),
        _bytes(body.value),
        [(each.name, _bytes(each.value)) for each in body.headers],
    )
    command = _produce_command(topic, record, body.partition)
    return await _send(call, topic, record, body.partition, command, body.dry_run)


async def resend_record(call: Call, topic: str, body: Resend) -> Written:
    """Send a record again, byte for byte, to the same topic or to another; a dry run only looks for it."""
    admin = await call.admin()
    partition = TopicPartition(topic, body.partition)
    reader = PartitionReader(
        admin, {partition: int(body.offset)}, read_committed=False, partition_bytes_max=1, fetch_bytes_max=1
    )
    target = body.target_topic or topic
    same = body.partition if target == topic else None
    consume = ["topic", "consume", topic, "--partition", str(body.partition), "--offset", body.offset, "--num", "1"]
    produce = ["topic", "produce", target, "--key-delimiter", _DELIMITER]
    if same is not None:
        produce += ["--partition", str(same)]
    command = f"{command_line(*consume, '-f', _KEY_AND_VALUE)} | {command_line(*produce)}"
    async for reads in reader.fetches(until_end=True):
        for read in reads:
            if read.record.offset == int(body.offset):
                return await _send(call, target, read.record._replace(timestamp=-1), same, command, body.dry_run)
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


async def _send(
    call: Call, topic: str, record: Record, partition: int | None, command: str, is_dry_run: bool
) -> Written:
    """Write a record, or check what can be checked without writing it."""
    shown = f"{_size('key', record.key)}, {_size('value', record.value)}, {len(record.headers)} headers"
    if is_dry_run:
        view = await call.view()
        info = found_topic(await view.state(), topic)
        if partition is not None and partition not in info.partitions:
            raise Problem(400, "There is no such partition", f"{topic} has {len(info.partitions)} partitions.")
        if partition is None and record.key is not None:
            partition = partition_of_key(record.key, len(info.partitions))
        return Written(
            is_dry_run=True,
            changes=[ChangeRow(subject=topic if partition is None else f"{topic}-{partition}", after=shown)],
            warnings=await _warnings(view.admin, topic, record),
            command=command,
            topic=topic,
            partition=partition,
            offset=None,
            timestamp_ms=None if record.timestamp < 0 else long(record.timestamp),
        )
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
    return Written(
        is_dry_run=False,
        changes=[ChangeRow(subject=f"{sent.topic}-{sent.partition}", after=shown)],
        command=command,
        topic=sent.topic,
        partition=sent.partition,
        offset=long(sent.offset),
        timestamp_ms=None if sent.timestamp is None else long(sent.timestamp),
    )


async def _warnings(admin: Admin, topic: str, record: Record) -> list[str]:
    """Return why the brokers would refuse a record, as far as the options of its topic tell."""
    try:
        (described,) = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic)], names=[_POLICY, _BYTES_MAX]
        )
    except KafkaError:
        return []
    options = {each.name: each.value or "" for each in described.entries}
    warnings = []
    is_compacted = "compact" in options.get(_POLICY, "")
    if is_compacted and record.key is None:
        warnings.append("The topic is compacted: brokers refuse records without a key.")
    if is_compacted and record.key is not None and record.value is None:
        warnings.append("This is a tombstone: compaction deletes the records with this key.")
    size = len(record.key or b"") + len(record.value or b"")
    if options.get(_BYTES_MAX, "").isdigit() and size > int(options[_BYTES_MAX]):
        warnings.append(f"Brokers refuse batches of more than {options[_BYTES_MAX]} bytes ({_BYTES_MAX}).")
    return warnings


def _size(name: str, data: bytes | None) -> str:
    return f"no {name}" if data is None else f"{name} of {len(data)} {'byte' if len(data) == 1 else 'bytes'}"


def _produce_command(topic: str, record: Record, partition: int | None) -> str:
    """Return the command that writes a record; bytes that a shell cannot carry stand for themselves in a file."""
    arguments = ["topic", "produce", topic]
    if partition is not None:
        arguments += ["--partition", str(partition)]
    if record.key is not None:
        arguments += ["--key", record.key.decode(errors="replace")]
    for name, data in record.headers:
        arguments += ["--header", f"{name}={(data or b'').decode(errors='replace')}"]
    text = _argument(record.value)
    if record.value is None:
        arguments += ["--null-value", ""]
    elif text is None:
        arguments += ["--file", "FILE"]
    else:
        # A value that begins with a dash is no option.
        arguments += ["--", text] if text.startswith("-") else [text]
    return command_line(*arguments)


def _argument(value: bytes | None) -> str | None:
    """Return a value as an argument of a command; None if it is too long, or no text."""
    if value is None or len(value) > _ARGUMENT_BYTES_MAX:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


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
