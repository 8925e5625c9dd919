"""`ottla log`: what is on the disks of brokers. `dump` and `verify` read files and need no broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_broker, complete_topic
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import FormatOption, YesOption
from ottla.client.cli.terminal.outcomes import show_outcomes
from ottla.client.cli.terminal.output import Format, confirm, echo, error, print_items, print_table
from ottla.client.cli.terminal.progress import with_progress
from ottla.client.cli.terminal.sizes import human_bytes
from ottla.client.cli.terminal.target import Target, cell, command

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.cli.records.segment_files import PlacedBatch

app = noun_app("log")

_BATCH_FIELDS = (
    "position",
    "base_offset",
    "last_offset",
    "records",
    "size_bytes",
    "codec",
    "max_timestamp",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "is_transactional",
    "is_control",
)


@app.function()
def dump(
    file: Annotated[Path, Argument(metavar="FILE", help="A .log, .index or .timeindex file, or a folder of segments.")],
    with_records: Annotated[bool, Option("--records", "-r", help="Also show the records of each batch.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show the batches of a segment file, or the entries of an index; exits with 1 if the file is damaged.

    Of a folder, all segments below it are shown, one after the other; in JSON, each line then also has its file.

    JSON, one line each: position, base_offset, last_offset, records (their number), size_bytes, codec, max_timestamp,
    leader_epoch, producer_id, producer_epoch, base_sequence, is_transactional, is_control; with --records content,
    which is offset, timestamp, key, value, headers. Of indexes: offset, position; timestamp, offset.

    \b
    Examples:
      ottla log dump data/orders-0/00000000000000000000.log
      ottla log dump data/orders-0/00000000000000000000.log --records --format json
      ottla log dump data/orders-0
      ottla log dump data/orders-0/00000000000000000000.index
    """
    from ottla.client.cli.records.segment_files import (
        INDEX,
        LOG,
        TIME_INDEX,
        DamagedFileError,
        batches_in,
        offset_entries,
        segments_in,
        time_entries,
    )

    if file.is_dir():
        for number, segment in enumerate(segments_in(file)):
            if not output_format.is_data:
                echo(f"{'' if number == 0 else chr(10)}{segment}")
            try:
                _dump_batches(batches_in(segment), with_records, output_format, segment)
            except DamagedFileError as damage:
                raise CommandError(f"{segment} is damaged at byte {damage.position}: {damage.problem}") from damage
        return
    if not file.is_file():
        raise CommandError(f"There is no file {file}.")
    try:
        if file.suffix == LOG:
            _dump_batches(batches_in(file), with_records, output_format)
        elif file.suffix == INDEX:
            _dump_entries(("offset", "position"), offset_entries(file), output_format)
        elif file.suffix == TIME_INDEX:
            _dump_entries(("timestamp", "offset"), time_entries(file), output_format)
        else:
            raise CommandError(f"{file} is not a {LOG}, {INDEX} or {TIME_INDEX} file.", 2)
    except DamagedFileError as damage:
        raise CommandError(f"{file} is damaged at byte {damage.position}: {damage.problem}") from damage


def _dump_batches(batches: Any, with_records: bool, output_format: Format, file: Path | None = None) -> None:
    for number, placed in enumerate(batches):
        item, content = _described(placed, with_records)
        if output_format.is_data:
            whole: dict[str, Any] = {} if file is None else {"file": str(file)}
            whole |= {**item, "content": content} if with_records else item
            print_items([whole], output_format)
            continue
        # Print line by line, for files that are larger than memory.
        if number == 0:
            echo("  ".join(name.upper().replace("_", "-") for name in _BATCH_FIELDS))
        cells = zip(_BATCH_FIELDS, item.values(), strict=True)
        echo("  ".join(cell(value).ljust(len(name)) for name, value in cells).rstrip())
        for record in content:
            echo(f"  | {record['offset']}  {record['timestamp']}  {record['key']!r}: {record['value']!r}")


def _batch_item(placed: PlacedBatch) -> dict[str, Any]:
    batch = placed.batch
    values = (
        placed.position,
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.size,
        batch.codec.config_name,
        batch.max_timestamp,
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        batch.is_control,
    )
    return dict(zip(_BATCH_FIELDS, values, strict=True))


def _described(placed: PlacedBatch, with_records: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    from ottla.client.cli.records.record_format import record_json
    from ottla.client.cli.records.segment_files import DamagedFileError
    from ottla.protocol.errors import CorruptBatchError

    try:
        records = [record_json(record) for record in placed.batch.records()] if with_records else []
        return _batch_item(placed), records
    except CorruptBatchError as corrupt:
        raise DamagedFileError(placed.position, str(corrupt)) from corrupt


def _dump_entries(names: tuple[str, str], entries: list[tuple[int, int]], output_format: Format) -> None:
    if output_format.is_data:
        print_items((dict(zip(names, entry, strict=True)) for entry in entries), output_format)
    else:
        print_table([name.upper() for name in names], [list(map(str, entry)) for entry in entries], {})


@app.function()
def verify(
    paths: Annotated[list[Path], Argument(metavar="PATH...", help="Segments, partitions or log directories.")],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Check segment files: CRCs, offsets, records and indexes; exits with 1 if a file is damaged.

    While a broker is running, its newest segment may be half written.

    JSON: file, size_bytes, batches, records, first_offset, last_offset, unused_bytes (zeros at the end), problems
    (file, position of the first bad byte, problem).

    \b
    Examples:
      ottla log verify data/orders-0/00000000000000000000.log
      ottla log verify data
    """
    from ottla.client.cli.records.segment_files import segments_in
    from ottla.client.cli.records.segment_verifying import verified_if_present

    segments = [segment for path in paths for segment in segments_in(path)]
    found = [verified_if_present(segment) for segment in with_progress(segments, "verifying")]
    reports = [report for report in found if report is not None]
    if output_format.is_data:
        print_items((report.to_dict() for report in reports), output_format)
    else:
        rows = [
            [
                report.file,
                *map(cell, (report.size_bytes, report.batches, report.records)),
                *map(cell, (report.first_offset, report.last_offset, report.unused_bytes)),
                "DAMAGED" if report.problems else "ok",
            ]
            for report in reports
        ]
        headings = ("FILE", "BYTES", "BATCHES", "RECORDS", "FIRST", "LAST", "UNUSED", "STATE")
        print_table(headings, rows, {"ok": "green", "DAMAGED": "bold red"})
    problems = [problem for report in reports for problem in report.problems]
    for problem in problems:
        error(f"{problem.file} at byte {problem.position}: {problem.problem}")
    if problems:
        raise click.exceptions.Exit(1)


@command(app)
def dirs(target: Target) -> None:
    """Show the log directories of all brokers, the replicas moving to them, and the free space on their disks.

    JSON: broker_id, path, total_bytes, usable_bytes, replicas (topic, partition, size_bytes, offset_lag, is_future),
    error.

    \b
    Examples:
      ottla log dirs
    """
    found = target.run(lambda admin: admin.describe_log_dirs(raise_errors=False))
    rows = [
        (
            each.broker_id,
            each.path,
            len(each.replicas),
            sum(replica.is_future for replica in each.replicas),
            human_bytes(each.size_bytes),
            None if each.usable_bytes is None else human_bytes(each.usable_bytes),
            None if each.total_bytes is None else human_bytes(each.total_bytes),
            "ok" if each.error is None else each.error.message,
        )
        for each in found
    ]
    headings = ("BROKER", "PATH", "REPLICAS", "ARRIVING", "SIZE", "FREE", "DISK", "STATE")
    target.show(headings, rows, [each.to_dict() for each in found])
    if any(each.error is not None for each in found):
        raise click.exceptions.Exit(1)


@command(app)
def move(
    target: Target,
    topic: Annotated[str, Argument(metavar="TOPIC", shell_complete=complete_topic, help="The topic.")],
    path: Annotated[str, Argument(metavar="PATH", help="A directory that `ottla log dirs` shows.")],
    broker_id: Annotated[int, Option("--broker", metavar="ID", shell_complete=complete_broker, help="Whose replicas.")],
    partitions: Annotated[
        list[int] | None, Option("--partition", "-p", help="Only this partition; can be repeated.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Start to move replicas to another log directory of their broker. `ottla log dirs` shows the progress.

    To cancel a move, name the directory where the replica is now. JSON: topic, partition, broker_id, error.

    \b
    Examples:
      ottla log move orders /data/2 --broker 1
      ottla log move orders /data/2 --broker 1 --partition 0 --partition 3
    """

    async def hosted(admin: Admin) -> list[int]:
        (described,) = await admin.describe_topics([topic])
        return [each.partition for each in described.partitions if broker_id in each.replicas]

    chosen = partitions or target.run(hosted)
    if not chosen:
        raise CommandError(
            f"Broker {broker_id} has no replica of {topic}; `ottla topic describe {topic}` shows its replicas."
        )
    confirm(f"Move {len(chosen)} replicas of {topic} on broker {broker_id} to {path}?", yes)

    async def work(admin: Admin) -> Any:
        from ottla.client.admin.results import TopicPartitionReplica

        moves = {TopicPartitionReplica(topic, partition, broker_id): path for partition in chosen}
        return await admin.alter_replica_log_dirs(moves, raise_errors=False)

    outcomes = [(f"{each.topic}-{each.partition}", each) for each in target.change(work)]
    show_outcomes(target, "PARTITION", outcomes, "moving")
