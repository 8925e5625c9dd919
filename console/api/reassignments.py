"""Moves of replicas to other brokers: plan, start, watch, cancel."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ottla.client.admin.results import PartitionOutcome, Reassignment
from ottla.client.cli.plans.reassigning import plan_text, spread
from ottla.client.errors import KafkaError
from ottla.console.api.changes import Change, ChangeRow, command_line, raise_if_all_failed
from ottla.console.api.topics import found_topic
from ottla.console.cluster.view import ClusterState, ClusterView, LogDirs, MissingBroker
from ottla.console.numbers import Long, long, maybe_long
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition

_PARTITIONS_MAX: Final = 1_000
_SHOWN_MAX: Final = 1_000
# Commands with larger plans would not fit on a screen, nor in a shell.
_PLAN_MAX: Final = 20
_REASSIGN: Final = ("partition", "reassign")


class NewReplica(msgspec.Struct, kw_only=True):
    """A broker that gets a replica."""

    broker_id: int
    size_bytes: Long | None
    """What it has copied; null if it does not tell."""
    bytes_per_s: float | None
    """How fast it grows; null at the first look."""


class MoveRow(msgspec.Struct, kw_only=True):
    """A partition that moves."""

    topic: str
    partition: int
    replicas: list[int]
    """Where it was, and where it goes."""
    adding: list[NewReplica]
    removing: list[int]
    size_bytes: Long | None
    """Of the leader's replica: what each new one has to copy."""


class MoveRows(msgspec.Struct, kw_only=True):
    """Partitions that move now."""

    as_of_ms: int
    items: list[MoveRow]
    total: int
    unknown: str | None
    """Why they are not known: the user may not see them."""
    missing: list[MissingBroker]


class MovesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which partitions to return; those of all topics by default."""

    topic: str | None = None


class Placement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The brokers that shall have a partition; the first one is its preferred leader."""

    topic: str
    partition: Annotated[int, Meta(ge=0)]
    replicas: Annotated[list[int], Meta(min_length=1, max_length=100)]


class Spread(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Topics whose partitions are spread over brokers, round robin."""

    topics: Annotated[list[str], Meta(min_length=1, max_length=100)]
    brokers: Annotated[list[int], Meta(min_length=1, max_length=1000)]
    replication_factor: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Unchanged, if it is not given."""


class Moves(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where partitions shall be: one by one, or spread over brokers."""

    partitions: Annotated[list[Placement], Meta(max_length=_PARTITIONS_MAX)] = []
    spread: Spread | None = None
    dry_run: bool = True


class MovingPartition(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A partition that moves."""

    topic: str
    partition: Annotated[int, Meta(ge=0)]


class Cancellation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Partitions that stay where they were."""

    partitions: Annotated[list[MovingPartition], Meta(min_length=1, max_length=_PARTITIONS_MAX)]
    dry_run: bool = True


async def list_reassignments(call: Call, query: MovesQuery) -> MoveRows:
    """List partitions that move to other brokers, and how far they are."""
    view = await call.view()
    state = await view.state()
    try:
        moving, unknown = await view.reassignments(), None
    except KafkaError as error:
        moving, unknown = (), str(error)
    found = [each for each in moving if query.topic is None or each.topic == query.topic]
    log_dirs = await view.log_dirs() if found else None
    return MoveRows(
        as_of_ms=state.as_of_ms,
        items=[_row(view, state, log_dirs, each) for each in found[:_SHOWN_MAX] if log_dirs is not None],
        total=len(found),
        unknown=unknown,
        missing=state.missing if log_dirs is None else log_dirs.missing,
    )


async def move_partitions(call: Call, body: Moves) -> Change:
    """Show where partitions would move, and start that unless it is a dry run."""
    view = await call.view()
    state = await view.state()
    if bool(body.partitions) == (body.spread is not None):
        raise Problem(400, "Give partitions or spread")
    if body.spread is not None:
        wanted = await _spread(view, body.spread)
        arguments = ["partition", "reassign", "plan"]
        for name in body.spread.topics:
            arguments += ["--topic", name]
        arguments += ["--brokers", ",".join(map(str, body.spread.brokers))]
        if body.spread.replication_factor is not None:
            arguments += ["--replication-factor", str(body.spread.replication_factor)]
        command = f"{command_line(*arguments)} > plan.json && {command_line(*_REASSIGN, 'execute', 'plan.json')}"
    else:
        wanted = {TopicPartition(each.topic, each.partition): each.replicas for each in body.partitions}
        command = _plan_command("execute", wanted)
    before = {each: _replicas(state, each) for each in wanted}
    _check(state, wanted)
    changed = {each: replicas for each, replicas in wanted.items() if replicas != before[each]}
    outcomes: Sequence[PartitionOutcome] = ()
    if changed and not body.dry_run:
        outcomes = await view.admin.alter_partition_reassignments(changed, raise_errors=False)
        raise_if_all_failed(outcomes)
    errors = {TopicPartition(each.topic, each.partition): each.error for each in outcomes}
    return Change(
        is_dry_run=body.dry_run,
        changes=[
            ChangeRow(
                subject=f"{each.topic}-{each.partition}",
                before=_listed(before[each]),
                after=_listed(replicas),
                error=None if errors.get(each) is None else str(errors[each]),
            )
            for each, replicas in changed.items()
        ],
        warnings=_warnings(await view.log_dirs(), before, changed),
        command=command,
    )


async def cancel_moves(call: Call, body: Cancellation) -> Change:
    """Show which moves would be cancelled, and cancel them unless it is a dry run; partitions stay where they were."""
    view = await call.view()
    moving = {TopicPartition(each.topic, each.partition): each for each in await view.reassignments()}
    asked = [TopicPartition(each.topic, each.partition) for each in body.partitions]
    rows = {
        each: ChangeRow(
            subject=f"{each.topic}-{each.partition}", before=_listed(found.replicas), after=_listed(_old(found))
        )
        for each in asked
        if (found := moving.get(each)) is not None
    }
    if rows and not body.dry_run:
        outcomes = await view.admin.alter_partition_reassignments(dict.fromkeys(rows), raise_errors=False)
        raise_if_all_failed(outcomes)
        for outcome in outcomes:
            if outcome.error is not None:
                rows[TopicPartition(outcome.topic, outcome.partition)].error = str(outcome.error)
    return Change(
        is_dry_run=body.dry_run,
        changes=list(rows.values()),
        command=_plan_command("cancel", {each: _old(moving[each]) for each in rows}),
    )


def _plan_command(verb: str, plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    shown = dict(list(plan.items())[:_PLAN_MAX])
    more = "  # and so on" if len(plan) > len(shown) else ""
    return f"echo {shlex.quote(plan_text(shown))} | {command_line(*_REASSIGN, verb, '-', '--yes')}{more}"


async def _spread(view: ClusterView, wanted: Spread) -> dict[TopicPartition, list[int]]:
    if len(set(wanted.brokers)) < len(wanted.brokers):
        raise Problem(400, "A broker is named twice")
    state = await view.state()
    for name in wanted.topics:
        found_topic(state, name)
    topics = await view.admin.describe_topics(wanted.topics)
    racks = {broker: each.rack for broker, each in state.brokers.items()}
    plan = spread(topics, wanted.brokers, wanted.replication_factor, racks)
    if len(plan) > _PARTITIONS_MAX:
        raise Problem(400, "Too many partitions", f"Move at most {_PARTITIONS_MAX} at once.")
    return plan


def _check(state: ClusterState, wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Raise Problem for what the controller would refuse, or never finish."""
    for partition, replicas in wanted.items():
        if len(set(replicas)) < len(replicas):
            raise Problem(
                400, "A broker is named twice", f"{partition.topic}-{partition.partition}: {_listed(replicas)}."
            )
        if missing := [
            each for each in replicas if each not in state.brokers and each not in _replicas(state, partition)
        ]:
            raise Problem(400, "A broker is not there", f"These brokers are not alive: {', '.join(map(str, missing))}.")


def _replicas(state: ClusterState, partition: TopicPartition) -> list[int]:
    info = found_topic(state, partition.topic).partitions.get(partition.partition)
    if info is None:
        raise Problem(404, "There is no such partition", f"{partition.topic} has no partition {partition.partition}.")
    return list(info.replicas)


def _warnings(
    log_dirs: LogDirs, before: Mapping[TopicPartition, Sequence[int]], after: Mapping[TopicPartition, Sequence[int]]
) -> list[str]:
    copied = 0
    fewer = 0
    for partition, replicas in after.items():
        size = max((size for size, _ in log_dirs.sizes.get(partition, {}).values()), default=0)
        copied += size * len(set(replicas) - set(before[partition]))
        fewer += len(replicas) < len(before[partition])
    warnings = []
    if copied:
        warnings.append(f"About {copied} bytes are copied between brokers.")
    if fewer:
        warnings.append(f"{fewer} partitions would have fewer replicas than now.")
    return warnings


def _row(view: ClusterView, state: ClusterState, log_dirs: LogDirs, moving: Reassignment) -> MoveRow:
    partition = TopicPartition(moving.topic, moving.partition)
    sizes = log_dirs.sizes.get(partition, {})
    topic = state.topics.get(moving.topic)
    info = None if topic is None else topic.partitions.get(moving.partition)
    leader = None if info is None or info.leader is None else sizes.get(info.leader)
    adding = []
    for broker_id in moving.adding_replicas:
        size = sizes[broker_id][0] if broker_id in sizes else None
        rate = None if size is None else view.rates.per_second(("move", *partition, broker_id), size)
        adding.append(NewReplica(broker_id=broker_id, size_bytes=maybe_long(size), bytes_per_s=rate))
    return MoveRow(
        topic=moving.topic,
        partition=moving.partition,
        replicas=list(moving.replicas),
        adding=adding,
        removing=list(moving.removing_replicas),
        size_bytes=None if leader is None else long(leader[0]),
    )


def _old(moving: Reassignment) -> list[int]:
    return [each for each in moving.replicas if each not in moving.adding_replicas]


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
