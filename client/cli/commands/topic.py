"""`ottla topic`: topics as a whole. Their records are in `topic_records.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from ottla.client.cli.records.topic_records import consume, produce, tail
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_topic
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.outcomes import show_outcomes
from ottla.client.cli.terminal.output import confirm, echo, say
from ottla.client.cli.terminal.sizes import human_bytes
from ottla.client.cli.terminal.target import Target, command, key_values
from ottla.client.cli.terminal.times import ago, local_time

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.results import (
        ConfigEntry,
        DeletedTopic,
        ListedOffset,
        PartitionDescription,
        TopicDescription,
        UndeletedTopic,
    )
    from ottla.client.cli.health.topic_sizes import PartitionSize

    Sizes = list[tuple[PartitionDescription, PartitionSize]]

app = noun_app("topic")

_Topic = Annotated[str, Argument(metavar="TOPIC", shell_complete=complete_topic, help="Name of the topic.")]
_Topics = Annotated[list[str], Argument(metavar="TOPIC...", shell_complete=complete_topic, help="Names of topics.")]
_Configs = Annotated[
    list[str] | None,
    Option("--config", "-c", metavar="KEY=VALUE", help="Option of the topic; can be repeated."),
]
_DryRun = Annotated[bool, Option("--dry-run", help="Only check whether the change would work.")]


@command(app, "list")
def list_topics(
    target: Target,
    regex: Annotated[
        str | None, Option("--regex", "-r", metavar="REGEX", help="Only topics whose whole name matches.")
    ] = None,
    internal: Annotated[bool, Option("--internal", "-i", help="Include Kafka's internal topics.")] = False,
) -> None:
    """List topics.

    JSON: name, topic_id, is_internal, num_partitions, replication_factor.

    \b
    Examples:
      ottla topic list
      ottla topic list --regex 'orders-.*' --format json
    """
    try:
        pattern = re.compile(regex or "")
    except re.error as error:
        raise CommandError(f"--regex {regex!r} is not a regular expression: {error}", 2) from error
    found = target.run(lambda admin: admin.list_topics(include_internal=internal))
    topics = [each for each in found if regex is None or pattern.fullmatch(each.name)]
    target.show(
        ("TOPIC", "PARTITIONS", "REPLICATION-FACTOR"),
        [(each.name, each.num_partitions, each.replication_factor) for each in topics],
        [each.to_dict() for each in topics],
    )


@command(app)
def create(
    target: Target,
    topics: _Topics,
    partitions: Annotated[
        int, Option("--partitions", "-p", metavar="N", help="Partitions per topic.", show_default="the broker's")
    ] = -1,
    replication_factor: Annotated[
        int,
        Option("--replication-factor", "-r", metavar="N", help="Replicas per partition.", show_default="the broker's"),
    ] = -1,
    configs: _Configs = None,
    if_not_exists: Annotated[bool, Option("--if-not-exists", help="Do not fail if a topic already exists.")] = False,
    dry_run: _DryRun = False,
) -> None:
    """Create topics.

    JSON: name, topic_id, num_partitions, replication_factor, error.

    \b
    Examples:
      ottla topic create orders
      ottla topic create orders payments -p 12 -r 3 -c retention.ms=86400000
      ottla topic create orders --if-not-exists --dry-run
    """
    from ottla.client.admin.results import NewTopic
    from ottla.client.errors import TopicAlreadyExistsError

    options = key_values(configs or (), "--config")
    new = [NewTopic(name, partitions, replication_factor, configs=options) for name in topics]
    results = target.change(lambda admin: admin.create_topics(new, validate_only=dry_run, raise_errors=False))
    if if_not_exists:
        results = tuple(each for each in results if not isinstance(each.error, TopicAlreadyExistsError))
    show_outcomes(target, "TOPIC", [(each.name, each) for each in results], "ok to create" if dry_run else "created")


@command(app)
def describe(
    target: Target,
    topics: _Topics,
    all_configs: Annotated[
        bool, Option("--all-configs", "-a", help="Include options that are at their defaults.")
    ] = False,
    rate_seconds: Annotated[
        float | None,
        Option(
            "--rates",
            min=0.1,
            max=60,
            metavar="SECONDS",
            help="Look twice, so far apart, and show records and bytes per second.",
        ),
    ] = None,
) -> None:
    """Show partitions, sizes and options of topics. A size is that of the leader's replica.

    JSON: name, topic_id, is_internal, partitions (partition, leader, leader_epoch, replicas, isr, offline_replicas,
    records, size_bytes, records_per_second, bytes_per_second), error, configs (an object).

    \b
    Examples:
      ottla topic describe orders
      ottla topic describe orders --rates 5
      ottla topic describe orders --format json | jq .partitions[].leader
    """

    async def work(admin: Admin) -> list[tuple[TopicDescription, list[ConfigEntry], Sizes]]:
        from ottla.client.admin.results import ConfigResource
        from ottla.client.cli.health.topic_sizes import sizes_of
        from ottla.protocol.config_resources import ConfigResourceType
        from ottla.protocol.identifiers import TopicPartition

        described = await admin.describe_topics(topics)
        configs = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in topics])
        own = {
            each.resource_name: [entry for entry in each.entries if all_configs or entry.source == "topic"]
            for each in configs
        }
        sizes = await sizes_of(admin, described, rate_seconds)
        return [
            (
                topic,
                own.get(topic.name, []),
                [(each, sizes[TopicPartition(topic.name, each.partition)]) for each in topic.partitions],
            )
            for topic in described
        ]

    found = target.run(work)
    if target.is_data:
        target.print_items(
            {
                **topic.to_dict(),
                "partitions": [each.to_dict() | size.to_dict() for each, size in partitions],
                "configs": {entry.name: entry.value for entry in configs},
            }
            for topic, configs, partitions in found
        )
        return
    for number, (topic, configs, partitions) in enumerate(found):
        if number:
            echo()
        echo(f"topic:               {topic.name}")
        echo(f"id:                  {topic.topic_id or '-'}")
        echo(f"partitions:          {len(topic.partitions)}")
        echo(f"replication factor:  {topic.replication_factor}")
        for entry in configs:
            echo(f"{entry.name} = {entry.value}")
        echo()
        _show_partitions(target, partitions, with_rates=rate_seconds is not None)


def _show_partitions(target: Target, partitions: Sizes, *, with_rates: bool) -> None:
    headings = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "STATE", "RECORDS", "SIZE"]
    if with_rates:
        headings += ["RECORDS/S", "SIZE/S"]
    rows = []
    for each, size in partitions:
        row: list[object] = [each.partition, each.leader, each.leader_epoch, each.replicas, each.isr]
        row += [partition_state(each), size.records, None if size.size_bytes is None else human_bytes(size.size_bytes)]
        if with_rates:
            rates = size.records_per_second, size.bytes_per_second
            row += ["-" if rates[0] is None else f"{rates[0]:.1f}", "-" if rates[1] is None else human_bytes(rates[1])]
        rows.append(row)
    target.show(headings, rows, (), spare=("EPOCH", "SIZE/S", "RECORDS/S"))


def partition_state(partition: PartitionDescription) -> str:
    """Return the state of a partition as one word."""
    if partition.leader is None:
        return "OFFLINE"
    return "under-replicated" if partition.is_under_replicated else "ok"


@command(app)
def alter(
    target: Target,
    topic: _Topic,
    configs: _Configs = None,
    unset: Annotated[list[str] | None, Option("--unset", metavar="KEY", help="Option to reset to its default.")] = None,
    dry_run: _DryRun = False,
) -> None:
    """Change options of a topic; other options keep their values.

    JSON: resource_type, resource_name, error.

    \b
    Examples:
      ottla topic alter orders -c retention.ms=3600000
      ottla topic alter orders --unset retention.ms
    """
    from ottla.client.cli.commands.config import change

    change(target, "topic", topic, configs or (), unset or (), dry_run=dry_run)


@command(app)
def delete(target: Target, topics: _Topics, yes: YesOption = False) -> None:
    """Delete topics, with all their records.

    `ottla topic undelete` brings a topic back if `ottla.topic.undelete.ms`, or the topic's own `ottla.undelete.ms`, was
    set before.

    JSON: name, error.

    \b
    Examples:
      ottla topic delete orders
      ottla topic delete orders payments --yes
    """
    confirm(f"Delete {', '.join(topics)} and all records in {'it' if len(topics) == 1 else 'them'}?", yes)
    results = target.change(lambda admin: admin.delete_topics(topics, raise_errors=False))
    show_outcomes(target, "TOPIC", [(each.name, each) for each in results], "deleted")


@command(app)
def deleted(target: Target) -> None:
    """List deleted topics that can be brought back.

    Brokers keep a deleted topic for `ottla.topic.undelete.ms`, or `ottla.undelete.ms` of the topic. Both are off by
    default. If a disk runs low, its broker gives up its replicas earlier.

    JSON: name, topic_id, num_partitions, deleted_ms, kept_until_ms, given_up_by (ids of brokers), error (why the topic
    cannot be brought back now).

    \b
    Examples:
      ottla topic deleted
      ottla topic undelete orders
    """
    found = target.run(lambda admin: admin.list_deleted_topics())
    target.show(
        ("TOPIC", "ID", "PARTITIONS", "DELETED", "KEPT UNTIL", "STATE"),
        [
            (
                each.name,
                each.topic_id,
                each.num_partitions,
                ago(each.deleted_ms),
                local_time(each.kept_until_ms),
                _deleted_state(each),
            )
            for each in found
        ],
        [each.to_dict() for each in found],
    )


def _deleted_state(topic: DeletedTopic) -> str:
    """Return in a few words whether a deleted topic can be brought back."""
    from ottla.protocol.errors import ErrorCode

    if topic.error is None:
        return "ok"
    states = {
        ErrorCode.TOPIC_ALREADY_EXISTS: "name taken (use --as)",
        ErrorCode.REQUEST_TIMED_OUT: "being deleted",
        ErrorCode.REPLICA_NOT_AVAILABLE: "brokers are down",
        ErrorCode.KAFKA_STORAGE_ERROR: "space was needed",
    }
    return states.get(topic.error.code, topic.error.code.name)


@command(app)
def undelete(
    target: Target,
    topic: Annotated[str, Argument(metavar="TOPIC", help="Name of the deleted topic.")],
    new_name: Annotated[
        str | None, Option("--as", metavar="NAME", help="Bring it back under another name.", show_default="its own")
    ] = None,
    topic_id: Annotated[
        str | None,
        Option("--id", metavar="ID", help="Which one, if several of the name were deleted.", show_default="the last"),
    ] = None,
    dry_run: _DryRun = False,
) -> None:
    """Bring a deleted topic back, with its records, options and committed offsets.

    `ottla topic deleted` lists what can be brought back. The topic has the same id as before.

    JSON: name, topic_id, error.

    \b
    Examples:
      ottla topic undelete orders
      ottla topic undelete orders --as orders-of-yesterday
      ottla topic undelete orders --id 2cSvtgfNTmaJ3Zbv6mJgKg --dry-run
    """

    from ottla.client.errors import TopicAlreadyExistsError

    async def work(admin: Admin) -> tuple[UndeletedTopic, ...]:
        kept = [each for each in await admin.list_deleted_topics() if each.name == topic]
        chosen = next((each for each in kept if topic_id in (None, each.topic_id)), None)
        if chosen is None:
            known = f" with id {topic_id}" if topic_id is not None else ""
            raise CommandError(
                f"No deleted topic {topic}{known} is kept; `ottla topic deleted` lists those that are. Topics are kept "
                "if ottla.topic.undelete.ms was set before they were deleted."
            )
        return await admin.undelete_topics({chosen.topic_id: new_name}, validate_only=dry_run, raise_errors=False)

    results = target.change(work)
    if isinstance(results[0].error, TopicAlreadyExistsError):
        raise CommandError(
            f"A topic {new_name or topic} exists. Bring the deleted one back under another name: "
            f"ottla topic undelete {topic} --as NAME"
        )
    done = "can be brought back" if dry_run else "brought back"
    show_outcomes(target, "TOPIC", [(each.name or topic, each) for each in results], done)


@command(app)
def add_partitions(
    target: Target,
    topic: _Topic,
    total: Annotated[int, Option("--total", "-p", "--partitions", min=1, metavar="N", help="The new total number.")],
    dry_run: _DryRun = False,
) -> None:
    """Increase the number of partitions of a topic. Existing keys may then map to other partitions.

    JSON: name, error.

    \b
    Examples:
      ottla topic add-partitions orders --total 12
    """
    results = target.change(
        lambda admin: admin.create_partitions({topic: total}, validate_only=dry_run, raise_errors=False)
    )
    done = f"{'can have' if dry_run else 'has'} {total} partitions"
    show_outcomes(target, "TOPIC", [(each.name, each) for each in results], done)


@command(app)
def trim(
    target: Target,
    topic: _Topic,
    offset: Annotated[
        str,
        Option(
            "--offset",
            "-o",
            metavar="OFFSET",
            help="Delete records before this offset: N, -N, end, or @TIME as in consume.",
        ),
    ],
    partitions: Annotated[
        list[int] | None, Option("--partition", "-p", help="Only this partition; can be repeated.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Delete the oldest records of a topic, up to an offset.

    JSON: topic, partition, low_watermark, error.

    \b
    Examples:
      ottla topic trim orders --offset 1000 --partition 0
      ottla topic trim orders --offset @-7d       records older than a week
      ottla topic trim orders --offset end --yes  everything
    """
    from ottla.client.cli.records.offsets import partitions_of, resolve

    confirm(f"Delete the records of {topic} before {offset}?", yes)

    async def work(admin: Admin) -> Any:
        wanted = await partitions_of(admin, topic, partitions)
        return await admin.delete_records(await resolve(admin, wanted, offset), raise_errors=False)

    results = target.change(work)
    show_outcomes(target, "PARTITION", [(f"{each.topic}-{each.partition}", each) for each in results], "trimmed")


@command(app)
def offsets(
    target: Target,
    topics: _Topics,
    time: Annotated[
        str | None,
        Option("--time", metavar="TIME", help="Also show the first offset since this time: ISO 8601, epoch ms, -5m."),
    ] = None,
) -> None:
    """Show the start and end offsets of the partitions of topics.

    JSON: topic, partition, start, end, records (end minus start), at_time (with --time).

    \b
    Examples:
      ottla topic offsets orders
      ottla topic offsets orders --time -1h
      ottla topic offsets orders --time 2026-01-31T12:00:00Z
    """
    from ottla.client.cli.records.offsets import partitions_of, time_ms

    async def work(admin: Admin) -> list[tuple[ListedOffset, ...]]:
        from ottla.client.admin.results import OffsetSpec

        wanted = [each for topic in topics for each in await partitions_of(admin, topic, None)]
        specs: list[int] = [OffsetSpec.EARLIEST, OffsetSpec.LATEST, *([] if time is None else [time_ms(time)])]
        return [await admin.list_offsets(dict.fromkeys(wanted, spec)) for spec in specs]

    items = []
    for start, end, *at_time in zip(*target.run(work), strict=True):
        item = {"topic": start.topic, "partition": start.partition, "start": start.offset, "end": end.offset}
        item["records"] = end.offset - start.offset
        # No record is that recent, so a reader that starts at this time starts at the end.
        for each in at_time:
            item["at_time"] = each.offset if each.offset >= 0 else end.offset
        items.append(item)
    headings = ("TOPIC", "PARTITION", "START", "END", "RECORDS", *(["AT-TIME"] if time else []))
    target.show(headings, [list(item.values()) for item in items], items)
    if not items:
        say("No partitions.")


for _command in (produce, consume, tail):
    command(app)(_command)
