"""Reassignment plans in the format of Kafka's own tool, and their progress.

{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import TopicDescription
from ottla.client.cli.terminal.errors import CommandError
from ottla.protocol.identifiers import TopicPartition

Plan = Mapping[TopicPartition, Sequence[int]]

_VERSION: Final = 1


def spread(
    topics: Sequence[TopicDescription],
    brokers: Sequence[int],
    replication_factor: int | None,
    racks: Mapping[int, str | None],
) -> dict[TopicPartition, list[int]]:
    """Place partitions round robin: each one, and so its leader, starts one broker later than the one before.

    A rack gets a second replica of a partition only when every rack has one; `racks` count if all brokers have one.
    """
    known = {broker: rack for broker in brokers if (rack := racks.get(broker)) is not None}
    if len(known) < len(brokers):
        known = dict.fromkeys(brokers, "")
    order = _rack_alternating(brokers, known)
    placed = {}
    turn = 0
    for topic in topics:
        for each in topic.partitions:
            count = replication_factor or len(each.replicas)
            if count > len(brokers):
                raise CommandError(f"{topic.name} needs {count} brokers for its replicas; {len(brokers)} are given.")
            start = turn % len(order)
            placed[TopicPartition(topic.name, each.partition)] = _chosen(order[start:] + order[:start], known, count)
            turn += 1
    return placed


def _rack_alternating(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """Return the brokers in their order, but with racks in turn as long as there are several left."""
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks[broker], []).append(broker)
    return [broker for turn in zip_longest(*by_rack.values()) for broker in turn if broker is not None]


def _chosen(order: Sequence[int], racks: Mapping[int, str], count: int) -> list[int]:
    """Return the first brokers of different racks, then the first of the others."""
    by_rack: dict[str, int] = {}
    for broker in order:
        by_rack.setdefault(racks[broker], broker)
    first = list(by_rack.values())
    return [*first, *(broker for broker in order if broker not in first)][:count]


def plan_text(plan: Plan) -> str:
    """Return a plan as JSON."""
    rows = [{"topic": each.topic, "partition": each.partition, "replicas": replicas} for each, replicas in plan.items()]
    return json.dumps({"version": _VERSION, "partitions": rows})


def parse_plan(text: str, name: str) -> dict[TopicPartition, list[int]]:
    """Read a plan; CommandError if it is not valid."""
    try:
        document = json.loads(text)
        plan = {}
        for row in document["partitions"]:
            topic, partition, replicas = row["topic"], row["partition"], row["replicas"]
            numbers = [partition, *replicas]
            if not isinstance(topic, str) or not all(type(number) is int for number in numbers) or not replicas:
                raise ValueError(f"{row} is not a partition with its replicas")
            plan[TopicPartition(topic, partition)] = list(replicas)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CommandError(f"{name} is not a plan: {error}. `ottla partition reassign plan` writes one.", 2) from error
    if not plan:
        raise CommandError(f"{name} has no partitions.", 2)
    return plan


async def _replicas(admin: Admin, plan: Plan) -> dict[TopicPartition, list[int]]:
    """Return where the partitions of the topics in a plan are."""
    described = await admin.describe_topics(list(dict.fromkeys(each.topic for each in plan)))
    return {
        TopicPartition(topic.name, each.partition): list(each.replicas)
        for topic in described
        for each in topic.partitions
    }


async def replicas_now(admin: Admin, plan: Plan) -> dict[TopicPartition, list[int]]:
    """Return where the partitions of a plan are; CommandError if one of them does not exist."""
    now = await _replicas(admin, plan)
    if missing := [each for each in plan if each not in now]:
        raise CommandError(f"There is no partition {missing[0].topic}-{missing[0].partition}.")
    return {each: now[each] for each in plan}


async def progress(admin: Admin, plan: Plan) -> list[dict[str, Any]]:
    """Return for each partition whether it has moved, is moving, or is elsewhere."""
    moving = {TopicPartition(each.topic, each.partition) for each in await admin.list_partition_reassignments(plan)}
    now = await _replicas(admin, plan)
    items = []
    for partition, wanted in plan.items():
        replicas = now.get(partition, [])
        state = "moving" if partition in moving else "done" if list(wanted) == replicas else "elsewhere"
        items.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "state": state,
                "wanted": list(wanted),
                "replicas": replicas,
            }
        )
    return items
