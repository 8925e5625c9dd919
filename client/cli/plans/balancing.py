"""The load of a cluster as commands measure it, and moves as the controller lists them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.balance.load import BrokerLoad, ClusterLoad, PartitionLoad
from ottla.balance.plan import BalancePlan
from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigAppend, ConfigResource, ConfigSubtract, Reassignment, Result
from ottla.client.cli.health.topic_sizes import sizes_of
from ottla.client.errors import KafkaError
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.identifiers import TopicPartition

DRAINED: Final = "ottla.drained.brokers"
# Options of all brokers.
_CLUSTER: Final = ConfigResource(ConfigResourceType.BROKER, "")


@dataclass(frozen=True, slots=True)
class MeasuredCluster:
    """The load of a cluster, and what its controller can do."""

    load: ClusterLoad
    # Partitions that move already; `load` has them where they will be.
    moving: tuple[Reassignment, ...]
    # Whether the controller is one of ours: it starts moves a few at a time, and new replicas avoid drained brokers.
    is_ottla: bool


async def measured(admin: Admin, rate_seconds: float | None) -> MeasuredCluster:
    """Measure a cluster; with `rate_seconds`, look twice for the traffic of partitions."""
    cluster = await admin.describe_cluster()
    topics = await admin.describe_topics()
    moving = await admin.list_partition_reassignments()
    targets = {
        TopicPartition(each.topic, each.partition): tuple(
            broker for broker in each.replicas if broker not in each.removing_replicas
        )
        for each in moving
    }
    drained = await drained_brokers(admin, cluster.controller_id)
    sizes = await sizes_of(admin, topics, rate_seconds)
    partitions = {}
    for topic in topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition)
            size = sizes[partition]
            partitions[partition] = PartitionLoad(
                targets.get(partition, tuple(each.replicas)),
                size.size_bytes or 0,
                size.bytes_per_second or 0.0,
                each.leader,
            )
    load = ClusterLoad({each.broker_id: each.rack for each in cluster.brokers}, partitions, frozenset(drained or ()))
    return MeasuredCluster(load, moving, drained is not None)


async def drained_brokers(admin: Admin, controller_id: int | None) -> list[int] | None:
    """Return the brokers that are being drained; None if the controller does not know of draining."""
    if controller_id is None:
        return None
    resource = ConfigResource(ConfigResourceType.BROKER, str(controller_id))
    try:
        (described,) = await admin.describe_configs([resource], names=[DRAINED])
    except KafkaError:
        return None
    found = [entry.value or "" for entry in described.entries if entry.name == DRAINED]
    return [int(part) for part in found[0].split(",") if part] if found else None


async def set_drained(admin: Admin, broker_id: int, *, is_drained: bool) -> None:
    """Let a broker get no new replicas, or get them again."""
    change = ConfigAppend(str(broker_id)) if is_drained else ConfigSubtract(str(broker_id))
    await admin.alter_configs({_CLUSTER: {DRAINED: change}})


@dataclass(frozen=True, slots=True)
class MoveState(Result):
    """A partition that moves, or waits for its turn."""

    topic: str
    partition: int
    # copying, or waiting
    state: str
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    # What the new replicas have to copy, and what they have.
    total_bytes: int
    copied_bytes: int


async def move_states(admin: Admin, chosen: Collection[TopicPartition] | None = None) -> list[MoveState]:
    """Return the moves that are not done, of all partitions or of some."""
    moving = await admin.list_partition_reassignments(chosen)
    if not moving:
        return []
    partitions = [TopicPartition(each.topic, each.partition) for each in moving]
    described = await admin.describe_topics(list(dict.fromkeys(each.topic for each in partitions)), raise_errors=False)
    known = {
        TopicPartition(topic.name, each.partition): (each.replicas, each.leader)
        for topic in described
        for each in topic.partitions
    }
    sizes = await _replica_sizes(admin, partitions)
    states = []
    for partition, each in zip(partitions, moving, strict=True):
        replicas, leader = known.get(partition, ((), None))
        size = sizes.get((partition, leader), 0)
        # A partition that waits for its turn does not have the new replicas yet.
        is_waiting = bool(each.adding_replicas) and not set(each.adding_replicas) <= set(replicas)
        copied = sum(min(size, sizes.get((partition, broker), 0)) for broker in each.adding_replicas)
        states.append(
            MoveState(
                *partition,
                "waiting" if is_waiting else "copying",
                tuple(broker for broker in each.replicas if broker not in each.adding_replicas),
                tuple(broker for broker in each.replicas if broker not in each.removing_replicas),
                tuple(each.adding_replicas),
                tuple(each.removing_replicas),
                size * len(each.adding_replicas),
                0 if is_waiting else copied,
            )
        )
    return states


async def _replica_sizes(
    admin: Admin, partitions: Sequence[TopicPartition]
) -> dict[tuple[TopicPartition, int | None], int]:
    try:
        found = await admin.describe_log_dirs(partitions, raise_errors=False)
    except KafkaError:
        return {}
    return {
        (TopicPartition(replica.topic, replica.partition), log_dir.broker_id): replica.size_bytes
        for log_dir in found
        for replica in log_dir.replicas
        if not replica.is_future
    }


def plan_item(plan: BalancePlan) -> dict[str, Any]:
    """Return a plan for scripts."""
    return {
        "copied_bytes": plan.copied_bytes,
        "copied_replicas": plan.copied_replicas,
        "leader_changes": plan.leader_changes,
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "replicas": list(move.replicas),
                "target": list(move.target),
                "copied_bytes": move.copied_bytes,
            }
            for move in plan.moves
        ],
        "brokers": [
            {"broker_id": broker, "before": _load_item(before), "after": _load_item(after)}
            for broker, before, after in broker_rows(plan.before(), plan.after())
        ],
    }


def broker_rows(
    before: Mapping[int, BrokerLoad], after: Mapping[int, BrokerLoad]
) -> list[tuple[int, BrokerLoad, BrokerLoad]]:
    """Return each broker with its loads before and after a plan."""
    return [
        (broker, before.get(broker, BrokerLoad()), after.get(broker, BrokerLoad()))
        for broker in sorted({*before, *after})
    ]


def _load_item(load: BrokerLoad) -> dict[str, float]:
    return {
        "leaders": load.leaders,
        "replicas": load.replicas,
        "size_bytes": load.size_bytes,
        "bytes_per_second": round(load.bytes_per_second, 1),
        "leader_bytes_per_second": round(load.leader_bytes_per_second, 1),
    }


def seconds_at(plan: BalancePlan, bytes_per_second: int) -> float:
    """Return how long a plan takes if every broker sends and receives no faster than this."""
    received: dict[int, int] = {}
    sent: dict[int, int] = {}
    for move in plan.moves:
        source = plan.load.partitions[move.partition].leader
        for broker in move.added:
            received[broker] = received.get(broker, 0) + move.size_bytes
            if source is not None:
                sent[source] = sent.get(source, 0) + move.size_bytes
    return max([0, *received.values(), *sent.values()]) / max(1, bytes_per_second)
