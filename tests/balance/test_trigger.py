"""When a cluster is balanced without anybody asking."""

from __future__ import annotations

from ottla.balance.load import ClusterLoad, PartitionLoad
from ottla.balance.trigger import plan_if_needed
from ottla.protocol.identifiers import TopicPartition

MiB = 1 << 20


def cluster(*counts: int, drained: frozenset[int] = frozenset()) -> ClusterLoad:
    """Return brokers with so many partitions each."""
    owners = [broker for broker, count in enumerate(counts, 1) for _ in range(count)]
    partitions = {TopicPartition("t", index): PartitionLoad((owner,), MiB) for index, owner in enumerate(owners)}
    return ClusterLoad(dict.fromkeys(range(1, len(counts) + 1)), partitions, drained)


def test_a_plan_begins_at_twice_the_distance_that_it_leaves() -> None:
    """So a cluster that was just balanced may change without anything moving."""
    assert plan_if_needed(cluster(118, 82)) is None
    made = plan_if_needed(cluster(125, 75))
    assert made is not None
    assert abs(made.after()[1].replicas - 100) <= 10


def test_an_empty_broker_begins_a_plan_in_a_large_cluster() -> None:
    """Although all others are hardly above the mean."""
    made = plan_if_needed(cluster(*[20] * 20, 0))
    assert made is not None
    assert made.after()[21].replicas >= 17


def test_what_cannot_be_spread_better_does_not_move() -> None:
    """One partition is larger than all others together."""
    load = cluster(10, 10)
    partitions = {**load.partitions, TopicPartition("t", 0): PartitionLoad((1,), 1000 * MiB)}
    assert plan_if_needed(ClusterLoad(load.racks, partitions)) is None


def test_a_drained_broker_begins_a_plan_for_a_single_replica() -> None:
    """However even the cluster is."""
    made = plan_if_needed(cluster(10, 10, 1, drained=frozenset({3})))
    assert made is not None
    assert made.after()[3].replicas == 0


def test_nothing_is_planned_for_a_cluster_without_partitions() -> None:
    """Nothing to divide by."""
    assert plan_if_needed(cluster(0, 0)) is None
