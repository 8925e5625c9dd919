"""`ottla topic produce`, `consume` and `tail`: standard input and output are the records."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from ottla.client.cli.records.offsets import RANGE_HELP, partitions_of, resolve, split_range
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_topic
from ottla.client.cli.terminal.options import SchemaRegistryOption
from ottla.client.cli.terminal.output import Format, printable, say, written
from ottla.client.cli.terminal.progress import progress, untold
from ottla.client.cli.terminal.target import Target, run

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.cli.records.input_format import Parse
    from ottla.client.cli.records.reading import ReadRecord
    from ottla.client.net.settings import IsolationLevel

    # Returns what is printed for each record.
    Writer = Callable[[Sequence[ReadRecord]], Awaitable[Iterable[bytes]]]

_LINE: Final = "%s\\n"
_Topic = Annotated[str, Argument(metavar="TOPIC", shell_complete=complete_topic, help="Name of the topic.")]
_Partitions = Annotated[list[int] | None, Option("--partition", "-p", help="Only this partition; can be repeated.")]
_Count = Annotated[int | None, Option("--num", "-n", min=0, metavar="N", help="Stop after this many records.")]
_Template = Annotated[
    str | None,
    Option(
        "-f",
        metavar="FORMAT",
        help=r"%t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %h headers, %K %S lengths, \n \t.",
        show_default="the value and a newline",
    ),
]
_Null = Annotated[str, Option("--null", metavar="TEXT", help="What to write for a null key or value.")]


_Range = Annotated[str | None, Option("--offset", "-o", metavar="OFFSET", help=RANGE_HELP, show_default="start")]


class Isolation(StrEnum):
    """Which records a reader sees."""

    READ_COMMITTED = "read-committed"
    READ_UNCOMMITTED = "read-uncommitted"


_Isolation = Annotated[
    Isolation,
    Option("--isolation", help="Whether to leave out records of open and aborted transactions."),
]
_Json = Annotated[bool, Option("--json", "-J", help="Print a JSON object per record, as --format json.")]


class Decoding(StrEnum):
    """What keys and values are; the names are those of `DecodeAs`, which costs an import."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"
    MSGPACK = "msgpack"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    HEX = "hex"


_Decode = Annotated[
    Decoding | None,
    Option("--decode", help="Show keys and values decoded.", show_default="as they are"),
]


def consume(
    target: Target,
    topics: Annotated[
        list[str],
        Argument(metavar="TOPIC...", shell_complete=complete_topic, help="Names of topics, or patterns with --regex."),
    ],
    offset: Annotated[
        str | None, Option("--offset", "-o", metavar="OFFSET", help=RANGE_HELP, show_default="start")
    ] = None,
    count: _Count = None,
    exit_at_end: Annotated[bool, Option("--exit", "-e", help="Stop at the end of the topics.")] = False,
    partitions: _Partitions = None,
    group: Annotated[
        str | None,
        Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, from its committed offsets, and commit what was printed.",
        ),
    ] = None,
    regex: Annotated[bool, Option("--regex", "-r", help="Read all topics whose whole names match.")] = False,
    template: _Template = None,
    null: _Null = "",
    json_lines: _Json = False,
    isolation: _Isolation = Isolation.READ_COMMITTED,
    decode: _Decode = None,
    schema_registry: SchemaRegistryOption = None,
) -> None:
    """Print the records of topics to standard output.

    A range ends before its second offset, or before the first record since its second time. With -g, --offset (start or
    end) is for partitions where the group has not committed yet.

    With --decode auto, keys and values that name a schema are shown as JSON, if the schema registry is known: Avro,
    Protobuf and JSON Schema, as Confluent's serializers write them. MessagePack is shown as JSON, too, and what is
    neither JSON nor text as hexadecimal. What cannot be decoded is shown as it is; standard error says why.

    JSON: topic, partition, offset, timestamp, key, value, headers; bytes that are not UTF-8 are {"base64": ...}. With
    --decode, key and value are the decoded JSON.

    \b
    Examples:
      ottla topic consume orders                         from the start, and then new records
      ottla topic consume orders -e                      existing records only
      ottla topic consume orders -o -10 -e               the last ten of each partition
      ottla topic consume orders -o 100:200              offsets 100 to 199 of each partition
      ottla topic consume orders -o @-2h:@-1h            of an hour, two hours ago
      ottla topic consume orders -o @-1h -n 100 --json   of the last hour, at most 100
      ottla topic consume orders payments -f '%t %p/%o %T %k: %s\\n'
      ottla topic consume --regex 'shop[.].*' -e
      ottla topic consume orders -g billing -n 1         the next record of a group
      ottla topic consume orders -e --isolation read-uncommitted
      ottla topic consume orders --decode auto --schema-registry http://localhost:8081
    """
    output_format = Format.JSON if json_lines else target.output_format
    writer = _writer(output_format, template, null, decode, schema_registry)
    if group is not None:
        if partitions:
            raise CommandError("-g and --partition exclude each other: a group assigns partitions to its members", 2)
        _read_in_group(
            target, group, topics, offset, writer, regex=regex, count=count, until_end=exit_at_end, isolation=isolation
        )
        return
    start, end = split_range(offset or "start")
    _read(
        target,
        topics,
        partitions,
        (start, end),
        writer,
        regex=regex,
        count=count,
        until_end=exit_at_end,
        isolation=isolation,
    )


def tail(
    target: Target,
    topic: _Topic,
    lines: Annotated[
        int, Option("--lines", min=0, metavar="N", help="Records per partition to show before new ones.")
    ] = 10,
    count: _Count = None,
    partitions: _Partitions = None,
    template: _Template = None,
    null: _Null = "",
    json_lines: _Json = False,
    isolation: _Isolation = Isolation.READ_COMMITTED,
    decode: _Decode = None,
    schema_registry: SchemaRegistryOption = None,
) -> None:
    """Print the last records of a topic, and then new ones, until Ctrl-C.

    JSON: as `ottla topic consume`.

    \b
    Examples:
      ottla topic tail orders
      ottla topic tail orders --lines 0 -f '%T %s\\n'
    """
    output_format = Format.JSON if json_lines else target.output_format
    writer = _writer(output_format, template, null, decode, schema_registry)
    _read(
        target,
        [topic],
        partitions,
        (f"-{lines}", None),
        writer,
        regex=False,
        count=count,
        until_end=False,
        isolation=isolation,
    )


def _writer(
    output_format: Format, template: str | None, null: str, decode: Decoding | None, schema_registry: str | None
) -> Writer:
    from ottla.client.cli.records.record_format import as_json, compiled

    if output_format.is_data and template is not None:
        raise CommandError(f"-f and {output_format} are two formats: use only one", 2)
    line = compiled(_LINE if template is None else template, null)
    if decode is None:

        async def undecoded(reads: Sequence[ReadRecord]) -> Iterable[bytes]:
            if output_format.is_data:
                return (written(as_json(each), output_format).encode() for each in reads)
            return map(line, reads)

        return undecoded

    from ottla.client.cli.records.decoding import RecordDecoder

    decoder = RecordDecoder(decode.value, schema_registry)

    async def decoded(reads: Sequence[ReadRecord]) -> Iterable[bytes]:
        if output_format.is_data:
            return [(await decoder.as_data(each, output_format)).encode() for each in reads]
        return [line(await decoder.with_texts(each)) for each in reads]

    return decoded


def _for_terminal(line: bytes) -> bytes:
    """Show what would control the terminal as escapes. A pipe gets records as they are."""
    return printable(line.decode(errors="backslashreplace")).encode()


def _read(
    target: Target,
    topics: Sequence[str],
    partitions: Sequence[int] | None,
    offsets: tuple[str, str | None],
    writer: Writer,
    *,
    regex: bool,
    count: int | None,
    until_end: bool,
    isolation: Isolation,
) -> None:
    from ottla.client.cli.records.reading import PartitionReader

    async def fetches(admin: Admin) -> AsyncGenerator[list[ReadRecord]]:
        named = await _matching(admin, topics) if regex else topics
        wanted = [each for topic in dict.fromkeys(named) for each in await partitions_of(admin, topic, partitions)]
        is_committed = isolation is Isolation.READ_COMMITTED
        level: IsolationLevel = "read_committed" if is_committed else "read_uncommitted"
        start, end = offsets
        positions = await resolve(admin, wanted, start, level)
        stops = None if end is None else await resolve(admin, wanted, end, level)
        reader = PartitionReader(admin, positions, stops=stops, read_committed=is_committed)
        async for reads in reader.fetches(until_end=until_end):
            yield reads

    async def work(admin: Admin) -> None:
        await _print(target, writer, fetches(admin), count)

    _until_interrupted(lambda: target.run(work, is_endless=True))


async def _matching(admin: Admin, patterns: Sequence[str]) -> list[str]:
    compiled = [_compiled(pattern) for pattern in patterns]
    listed = await admin.list_topics()
    found = [each.name for each in listed if any(pattern.fullmatch(each.name) for pattern in compiled)]
    if not found:
        raise CommandError(f"No topic matches {' or '.join(patterns)}; `ottla topic list` shows the topics that exist.")
    return found


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise CommandError(f"{pattern!r} is not a regular expression: {error}", 2) from error


def _read_in_group(
    target: Target,
    group: str,
    topics: Sequence[str],
    offset: str | None,
    writer: Writer,
    *,
    regex: bool,
    count: int | None,
    until_end: bool,
    isolation: Isolation,
) -> None:
    from ottla.client.cli.records.group_reading import member_fetches
    from ottla.client.cli.records.offsets import reset_of
    from ottla.client.consumer.settings import ConsumerSettings

    settings = target.settings(ConsumerSettings)
    # The consumer matches the start of a name; we match the whole name.
    pattern = "|".join(f"(?:{_compiled(each).pattern})$" for each in topics) if regex else None
    reset = reset_of(offset)

    async def main() -> None:
        fetches = member_fetches(
            settings,
            group,
            [] if regex else topics,
            pattern,
            reset=reset,
            read_committed=isolation is Isolation.READ_COMMITTED,
            until_end=until_end,
            count=count,
        )
        await _print(target, writer, fetches, count)

    _until_interrupted(lambda: run(main))


async def _print(
    target: Target,
    writer: Writer,
    fetches: AsyncGenerator[list[ReadRecord]],
    count: int | None,
) -> None:
    """Print records up to a number of them."""
    output = sys.stdout.buffer
    is_for_people = sys.stdout.isatty() and not target.is_data
    written = 0
    if count == 0:
        return
    async with aclosing(fetches):
        async for reads in fetches:
            shown = reads if count is None else reads[: count - written]
            lines = await writer(shown)
            output.writelines(map(_for_terminal, lines) if is_for_people else lines)
            # A reader at the other end of a pipe sees records at once.
            output.flush()
            written += len(shown)
            if written == count:
                return


def _until_interrupted(read: Callable[[], None]) -> None:
    try:
        read()
    except KeyboardInterrupt:
        # Ctrl-C is the usual end of a reader that would run for ever.
        say("")
    sys.stdout.buffer.flush()


def produce(
    target: Target,
    topic: _Topic,
    values: Annotated[
        list[str] | None, Argument(metavar="[VALUE]...", help="Values; by default, the lines of standard input.")
    ] = None,
    key: Annotated[str | None, Option("--key", "-k", metavar="KEY", help="Key of all records.")] = None,
    key_delimiter: Annotated[
        str | None, Option("--key-delimiter", "-K", metavar="TEXT", help="Separates key and value in each line.")
    ] = None,
    headers: Annotated[
        list[str] | None, Option("--header", "-H", metavar="KEY=VALUE", help="Header; can be repeated.")
    ] = None,
    partition: Annotated[
        int | None, Option("--partition", "-p", min=0, help="Partition.", show_default="by key")
    ] = None,
    compression: Annotated[
        str | None, Option("--compression", "-z", metavar="CODEC", help="gzip, snappy, lz4 or zstd.")
    ] = None,
    acks: Annotated[str, Option("--acks", metavar="all|1|0", help="Replicas to wait for.")] = "all",
    null_value: Annotated[
        bool, Option("--null-value", "-Z", help="Write an empty value as null, a tombstone in compacted topics.")
    ] = False,
    template: Annotated[
        str | None,
        Option(
            "-f",
            metavar="FORMAT",
            help=r"How a line is read: %k key, %v value, %p partition, %T timestamp, %h headers; as in '%k\t%v'.",
            show_default="the line is the value",
        ),
    ] = None,
    json_lines: Annotated[
        bool, Option("--json", "-J", help="Read the JSON objects that `ottla topic consume --json` prints.")
    ] = False,
    repartition: Annotated[
        bool, Option("--repartition", help="With --json: choose partitions by key, not those in the objects.")
    ] = False,
    file: Annotated[
        Path | None, Option("--file", metavar="FILE", help="Write the whole file as the value of one record.")
    ] = None,
    transactional_id: Annotated[
        str | None,
        Option("--transactional-id", metavar="ID", help="Write all records in one transaction."),
    ] = None,
    schema: Annotated[
        str | None,
        Option("--schema", metavar="SUBJECT", help="Values are JSON; write them with the newest schema of a subject."),
    ] = None,
    schema_registry: SchemaRegistryOption = None,
) -> None:
    """Write records to a topic, one for each line of standard input.

    JSON: topic, partition, offset, timestamp of each record.

    With --json, a line is an object with value, and if you like key, headers (pairs of name and value), timestamp and
    partition. Texts are UTF-8, {"base64": ...} is any bytes, and a null value is a tombstone. Values that are other
    JSON are written as JSON.

    With --schema, a value is written as Avro, as the first message of a Protobuf file or as JSON, whatever the newest
    schema of the subject is for, and with the id of that schema, as Confluent's serializers do. With --json, too, the
    value in each object is JSON then. In Avro, write times as numbers; bytes cannot be written.

    With --transactional-id, readers of committed records see all records of a run or none: the transaction is committed
    at the end of the input, and aborted on an error or Ctrl-C. At a terminal, all that you type until Ctrl-D is one
    transaction. Brokers abort it after a minute; -X transaction.timeout.ms=600000 allows ten.

    \b
    Examples:
      ottla topic produce orders < orders.txt
      ottla topic produce orders 'hello, world' --key greeting
      seq 3 | ottla topic produce orders -z zstd
      printf 'k1:v1\\nk2:\\n' | ottla topic produce orders -K : --null-value
      printf 'k1\\tv1\\n' | ottla topic produce orders -f '%k\\t%v'
      ottla topic consume orders -e --json | ottla topic produce copy --json
      ottla topic produce orders --transactional-id import < orders.txt
      ottla topic produce orders '{"id": 1}' --schema orders-value --schema-registry http://localhost:8081
    """
    from ottla.client.cli.records.producing import Records, produce_records
    from ottla.client.cli.terminal.target import key_value_pairs

    options: dict[str, Any] = {"acks": acks if acks == "all" else _acks(acks), "compression_type": compression}
    if options["acks"] != "all":
        options["enable_idempotence"] = False
    if transactional_id is not None:
        options["transactional_id"] = transactional_id
    if schema is None:
        encode = None
    else:
        from ottla.client.cli.records.schemas import encoder

        encode = encoder(schema_registry, schema)
    parse = _parser(key, key_delimiter, null_value, template, encode, json_lines=json_lines, repartition=repartition)
    records = Records(values=values, file=file, parse=parse, input=sys.stdin.buffer)
    pairs = [(name, value.encode()) for name, value in key_value_pairs(headers or (), "--header")]
    # No bar where the user types the records, or sees the offset of each one.
    bar = nullcontext(untold) if values or file or target.is_data or sys.stdin.isatty() else progress("writing")
    run(lambda: produce_records(target, topic, records, partition, pairs, options, bar))


def _parser(
    key: str | None,
    key_delimiter: str | None,
    null_value: bool,
    template: str | None,
    encode: Callable[[bytes], bytes | None] | None,
    *,
    json_lines: bool,
    repartition: bool,
) -> Parse:
    """Return how a line becomes a record; CommandError if the options exclude each other."""
    from dataclasses import replace

    from ottla.client.cli.records.input_format import InputRecord, by_format, from_json
    from ottla.client.cli.records.record_format import unescaped

    if sum((json_lines, template is not None, key_delimiter is not None)) > 1:
        raise CommandError("--json, -f and --key-delimiter say how a line is read: use only one", 2)
    if repartition and not json_lines:
        raise CommandError("--repartition belongs to --json", 2)
    delimiter = None if key_delimiter is None else unescaped(key_delimiter).encode()
    if delimiter == b"":
        raise CommandError("--key-delimiter is empty", 2)
    given_key = None if key is None else key.encode()
    structured = by_format(template) if template else None
    if json_lines:
        structured = from_json(keeps_partition=not repartition, keeps_json=encode is not None)

    def parse(line: bytes) -> InputRecord:
        if structured is not None:
            record = structured(line)
        elif delimiter is None:
            record = InputRecord(line)
        else:
            first, found, rest = line.partition(delimiter)
            if not found:
                raise CommandError(f"a line has no {key_delimiter!r} between key and value: {line[:60]!r}")
            record = InputRecord(rest, first)
        if given_key is not None:
            record = replace(record, key=given_key)
        if null_value and not record.value:
            return replace(record, value=None)
        if encode is not None and record.value is not None:
            return replace(record, value=encode(record.value))
        return record

    return parse


def _acks(text: str) -> int:
    if text not in ("0", "1", "-1"):
        raise CommandError(f"--acks takes all, 1 or 0, not {text!r}", 2)
    return int(text)
