"""`ottla topic produce`, `consume` and `tail`: standard input and output are the records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from ottla.client.cli.records.offsets import OFFSET_HELP, partitions_of, resolve
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.output import Format, printable, say, written
from ottla.client.cli.terminal.progress import progress, untold
from ottla.client.cli.terminal.target import Target, run

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.cli.records.reading import ReadRecord

_LINE: Final = "%s\\n"
_Topic = Annotated[str, Argument(metavar="TOPIC", help="Name of the topic.")]
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


class Isolation(StrEnum):
    """Which records a reader sees."""

    READ_COMMITTED = "read-committed"
    READ_UNCOMMITTED = "read-uncommitted"


_Isolation = Annotated[
    Isolation,
    Option("--isolation", help="Whether to leave out records of open and aborted transactions."),
]
_Json = Annotated[bool, Option("--json", "-J", help="Print a JSON object per record, as --format json.")]


def consume(
    target: Target,
    topic: _Topic,
    offset: Annotated[str, Option("--offset", "-o", metavar="OFFSET", help=OFFSET_HELP)] = "start",
    count: _Count = None,
    exit_at_end: Annotated[bool, Option("--exit", "-e", help="Stop at the end of the topic.")] = False,
    partitions: _Partitions = None,
    template: _Template = None,
    null: _Null = "",
    json_lines: _Json = False,
    isolation: _Isolation = Isolation.READ_COMMITTED,
) -> None:
    """Print the records of a topic to standard output, without a group.

    JSON: topic, partition, offset, timestamp, key, value, headers; bytes that are not UTF-8 are {"base64": ...}.

    \b
    Examples:
      ottla topic consume orders                         from the start, and then new records
      ottla topic consume orders -e                      existing records only
      ottla topic consume orders -o -10 -e               the last ten of each partition
      ottla topic consume orders -o @-1h -n 100 --json   of the last hour, at most 100
      ottla topic consume orders -f '%p/%o %T %k: %s\\n'
      ottla topic consume orders -e --isolation read-uncommitted
    """
    writer = _writer(Format.JSON if json_lines else target.output_format, template, null)
    _read(target, topic, partitions, offset, writer, count=count, until_end=exit_at_end, isolation=isolation)


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
) -> None:
    """Print the last records of a topic, and then new ones, until Ctrl-C.

    JSON: as `ottla topic consume`.

    \b
    Examples:
      ottla topic tail orders
      ottla topic tail orders --lines 0 -f '%T %s\\n'
    """
    writer = _writer(Format.JSON if json_lines else target.output_format, template, null)
    _read(target, topic, partitions, f"-{lines}", writer, count=count, until_end=False, isolation=isolation)


def _writer(output_format: Format, template: str | None, null: str) -> Callable[[ReadRecord], bytes]:
    from ottla.client.cli.records.record_format import as_json, compiled

    if not output_format.is_data:
        return compiled(_LINE if template is None else template, null)
    if template is not None:
        raise CommandError(f"-f and {output_format} are two formats: use only one", 2)
    return lambda read: written(as_json(read), output_format).encode()


def _for_terminal(writer: Callable[[ReadRecord], bytes]) -> Callable[[ReadRecord], bytes]:
    """Show what would control the terminal as escapes. A pipe gets records as they are."""
    return lambda record: printable(writer(record).decode(errors="backslashreplace")).encode()


def _read(
    target: Target,
    topic: str,
    partitions: Sequence[int] | None,
    offset: str,
    writer: Callable[[ReadRecord], bytes],
    *,
    count: int | None,
    until_end: bool,
    isolation: Isolation,
) -> None:
    from ottla.client.cli.records.reading import PartitionReader

    output = sys.stdout.buffer
    if sys.stdout.isatty() and not target.is_data:
        writer = _for_terminal(writer)

    async def work(admin: Admin) -> None:
        wanted = await partitions_of(admin, topic, partitions)
        is_committed = isolation is Isolation.READ_COMMITTED
        positions = await resolve(admin, wanted, offset, "read_committed" if is_committed else "read_uncommitted")
        reader = PartitionReader(admin, positions, read_committed=is_committed)
        written = 0
        if count == 0:
            return
        async for reads in reader.fetches(until_end=until_end):
            shown = reads if count is None else reads[: count - written]
            output.writelines(map(writer, shown))
            # A reader at the other end of a pipe sees records at once.
            output.flush()
            written += len(shown)
            if written == count:
                return

    try:
        target.run(work)
    except KeyboardInterrupt:
        # Ctrl-C is the usual end of a reader that would run for ever.
        say("")
    output.flush()


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
    file: Annotated[
        Path | None, Option("--file", metavar="FILE", help="Write the whole file as the value of one record.")
    ] = None,
    transactional_id: Annotated[
        str | None,
        Option("--transactional-id", metavar="ID", help="Write all records in one transaction."),
    ] = None,
) -> None:
    """Write records to a topic, one for each line of standard input.

    JSON: topic, partition, offset, timestamp of each record.

    With --transactional-id, readers of committed records see all records of a run or none: the transaction is committed
    at the end of the input, and aborted on an error or Ctrl-C. At a terminal, all that you type until Ctrl-D is one
    transaction. Brokers abort it after a minute; -X transaction.timeout.ms=600000 allows ten.

    \b
    Examples:
      ottla topic produce orders < orders.txt
      ottla topic produce orders 'hello, world' --key greeting
      seq 3 | ottla topic produce orders -z zstd
      printf 'k1:v1\\nk2:\\n' | ottla topic produce orders -K : --null-value
      ottla topic produce orders --transactional-id import < orders.txt
    """
    from ottla.client.cli.records.producing import Records, produce_records
    from ottla.client.cli.terminal.target import key_values

    options: dict[str, Any] = {"acks": acks if acks == "all" else _acks(acks), "compression_type": compression}
    if options["acks"] != "all":
        options["enable_idempotence"] = False
    if transactional_id is not None:
        options["transactional_id"] = transactional_id
    records = Records(
        values=values, file=file, key=key, key_delimiter=key_delimiter, null_value=null_value, input=sys.stdin.buffer
    )
    pairs = [(name, value.encode()) for name, value in key_values(headers or (), "--header").items()]
    # No bar where the user types the records, or sees the offset of each one.
    bar = nullcontext(untold) if values or file or target.is_data or sys.stdin.isatty() else progress("writing")
    run(lambda: produce_records(target, topic, records, partition, pairs, options, bar))


def _acks(text: str) -> int:
    if text not in ("0", "1", "-1"):
        raise CommandError(f"--acks takes all, 1 or 0, not {text!r}", 2)
    return int(text)
