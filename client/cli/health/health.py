"""The problems of a cluster, for `cluster health` and `check`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import Result
from ottla.client.cli.health.zookeeper_sessions import without_zookeeper


@dataclass(frozen=True, slots=True)
class WeakPartition(Result):
    """A partition without a leader, or with replicas that are not in sync."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Health(Result):
    """The parts of the cluster, and what is missing."""

    is_healthy: bool
    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[int, ...]
    missing_brokers: tuple[int, ...]
    partitions: int
    offline: tuple[WeakPartition, ...]
    under_replicated: tuple[WeakPartition, ...]
    # Brokers that say, or show, that they cannot reach ZooKeeper.
    without_zookeeper: tuple[int, ...] = ()


async def examine_all(admin: Admin) -> Health:
    """Check brokers, the controller, all partitions, and whether brokers can reach ZooKeeper."""
    found = await examine(admin)
    cut_off = await without_zookeeper(admin, (await admin.describe_cluster()).brokers)
    return replace(found, is_healthy=found.is_healthy and not cut_off, without_zookeeper=cut_off)


async def examine(admin: Admin) -> Health:
    """Check brokers, the controller and all partitions."""
    cluster = await admin.describe_cluster()
    topics = await admin.describe_topics(raise_errors=False)
    partitions = [(topic.name, each) for topic in topics for each in topic.partitions]
    alive = tuple(each.broker_id for each in cluster.brokers)
    offline, under_replicated = [], []
    for name, each in partitions:
        weak = WeakPartition(name, each.partition, each.leader, each.replicas, each.isr)
        if each.leader is None:
            offline.append(weak)
        elif each.is_under_replicated:
            under_replicated.append(weak)
    missing = {broker for _, each in partitions for broker in each.replicas}.difference(alive)
    is_healthy = cluster.controller_id is not None and not (offline or under_replicated or missing)
    return Health(
        is_healthy,
        cluster.cluster_id,
        cluster.controller_id,
        alive,
        tuple(sorted(missing)),
        len(partitions),
        tuple(offline),
        tuple(under_replicated),
    )
