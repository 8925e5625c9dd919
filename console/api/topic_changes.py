"""Changes of topics: create, delete, more partitions, trim; and elections of leaders."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ottla.client.admin.results import NewTopic
from ottla.client.cli.records.offsets import partitions_of, resolve
from ottla.console.api.changes import Change, ChangeRow, command_line, raise_if_all_failed
from ottla.console.api.topics import found_topic
from ottla.console.numbers import long
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition


class TopicCreation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A topic to create; numbers that are not given are the brokers' defaults."""

    name: Annotated[str, Meta(min_length=1, max_length=249)]
    partitions: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=100)] | None = None
    configs: dict[str, str] = {}
    dry_run: bool = False


class TopicDeletion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A deletion; the name is typed again, so that nobody deletes by accident."""

    confirm: str
    dry_run: bool = False


class MorePartitions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The new number of partitions; it can only grow."""

    total: Annotated[int, Meta(ge=1, le=100_000)]
    dry_run: bool = True


class Trim(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Delete the records before an offset: start, end, N, -N or @TIME; the topic's name is typed again."""

    to: Annotated[str, Meta(max_length=64)]
    partitions: list[int] = []
    confirm: str = ""
    dry_run: bool = True


class Election(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Partitions that get their preferred leader, or any leader at the price of records."""

    topics: list[str] = []
    """All topics, if empty."""
    type: Literal["preferred", "unclean"] = "preferred"
    dry_run: bool = True


async def create_topic(call: Call, body: TopicCreation) -> Change:
    """Create a topic; a dry run only checks whether that would work."""
    admin = await call.admin()
    topic = NewTopic(
        body.name,
        num_partitions=body.partitions or -1,
        replication_factor=body.replication_factor or -1,
        configs=body.configs,
    )
    (created,) = await admin.create_topics([topic], validate_only=body.dry_run)
    arguments = ["topic", "create", body.name]
    if body.partitions:
        arguments += ["-p", str(body.partitions)]
    if body.replication_factor:
        arguments += ["-r", str(body.replication_factor)]
    for option, value in body.configs.items():
        arguments += ["-c", f"{option}={value}"]
    numbers = f"{created.num_partitions} partitions, {created.replication_factor} replicas"
    return Change(
        is_dry_run=body.dry_run,
        changes=[ChangeRow(subject=body.name, after=numbers if created.num_partitions else "created")],
        command=command_line(*arguments),
    )


async def delete_topic(call: Call, topic: str, body: TopicDeletion) -> Change:
    """Delete a topic and all its records; its name must be given again."""
    view = await call.view()
    info = found_topic(await view.state(), topic)
    offsets = (await view.offsets([info]))[topic]
    records = sum(offsets.ends[each] - offsets.starts.get(each, 0) for each in offsets.ends)
    groups = (await view.groups_by_topic()).get(topic, [])
    if not body.dry_run:
        if body.confirm != topic:
            raise Problem(400, "Type the name of the topic", "`confirm` must be the name of the topic.")
        await view.admin.delete_topics([topic])
    warnings = [f"{records} records are deleted for ever."] if records else []
    if groups:
        warnings.append(f"Groups read it: {', '.join(groups[:5])}{' ...' if len(groups) > 5 else ''}.")
    return Change(
        is_dry_run=body.dry_run,
        changes=[ChangeRow(subject=topic, before=f"{len(info.partitions)} partitions, {records} records")],
        warnings=warnings,
        command=command_line("topic", "delete", topic),
    )


async def add_partitions(call: Call, topic: str, body: MorePartitions) -> Change:
    """Increase the number of partitions of a topic."""
    view = await call.view()
    info = found_topic(await view.state(), topic)
    await view.admin.create_partitions({topic: body.total}, validate_only=body.dry_run)
    return Change(
        is_dry_run=body.dry_run,
        changes=[
            ChangeRow(subject=topic, before=f"{len(info.partitions)} partitions", after=f"{body.total} partitions")
        ],
        warnings=["Records with the same key may go to another partition than before."],
        command=command_line("topic", "add-partitions", topic, "--total", str(body.total)),
    )


async def trim_topic(call: Call, topic: str, body: Trim) -> Change:
    """Delete the records before an offset or a time."""
    admin = await call.admin()
    partitions = await partitions_of(admin, topic, body.partitions or None)
    starts = await resolve(admin, partitions, "start")
    targets = await resolve(admin, partitions, body.to)
    rows = [
        ChangeRow(subject=f"{topic}-{each.partition}", before=long(starts[each]), after=long(targets[each]))
        for each in partitions
    ]
    if not body.dry_run:
        if body.confirm != topic:
            raise Problem(400, "Type the name of the topic", "`confirm` must be the name of the topic.")
        outcomes = await admin.delete_records(targets, raise_errors=False)
        raise_if_all_failed(outcomes)
        for row, outcome in zip(rows, outcomes, strict=True):
            row.error = None if outcome.error is None else str(outcome.error)
    arguments = ["topic", "trim", topic, "--offset", body.to]
    for number in body.partitions:
        arguments += ["--partition", str(number)]
    deleted = sum(max(0, targets[each] - starts[each]) for each in partitions)
    return Change(
        is_dry_run=body.dry_run,
        changes=rows,
        warnings=[f"{deleted} records are deleted for ever."] if deleted else [],
        command=command_line(*arguments),
    )


async def elect_leaders(call: Call, body: Election) -> Change:
    """Elect the preferred leaders of partitions; an unclean election may lose records."""
    view = await call.view()
    state = await view.state()
    wanted = {
        TopicPartition(topic.name, number): each
        for topic in state.topics.values()
        if not body.topics or topic.name in body.topics
        for number, each in topic.partitions.items()
        if (each.leader is None if body.type == "unclean" else each.replicas and each.leader != each.replicas[0])
    }
    rows = {
        partition: ChangeRow(
            subject=f"{partition.topic}-{partition.partition}",
            before="no leader" if each.leader is None else f"broker {each.leader}",
            after="any replica" if body.type == "unclean" else f"broker {each.replicas[0]}",
        )
        for partition, each in wanted.items()
    }
    if wanted and not body.dry_run:
        outcomes = await view.admin.elect_leaders(list(wanted), election_type=body.type, raise_errors=False)
        raise_if_all_failed(outcomes)
        for outcome in outcomes:
            row = rows.get(TopicPartition(outcome.topic, outcome.partition))
            if row is not None and outcome.error is not None:
                row.error = str(outcome.error)
    arguments = ["partition", "elect"]
    for name in body.topics:
        arguments += ["--topic", name]
    if body.type == "unclean":
        arguments.append("--unclean")
    return Change(
        is_dry_run=body.dry_run,
        changes=list(rows.values()),
        warnings=["Records that only the old leader has are lost."] if body.type == "unclean" and rows else [],
        command=command_line(*arguments),
    )
