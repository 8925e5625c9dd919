"""The planner, against what every plan must keep, whatever the cluster looks like."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.balance.load import BrokerLoad, ClusterLoad, PartitionLoad
from ottla.balance.plan import BalancePlan, unevenness
from ottla.balance.planner import NotEnoughBrokersError, plan
from ottla.protocol.identifiers import TopicPartition

MiB = 1 << 20


@st.composite
def clusters(draw: st.DrawFn, *, with_racks: bool | None = None) -> ClusterLoad:
    """Small clusters of every shape: uneven, with racks, with dead and drained brokers."""
    brokers = list(range(1, draw(st.integers(2, 6)) + 1))
    is_racked = draw(st.booleans()) if with_racks is None else with_racks
    racks = {broker: draw(st.sampled_from("abc")) if is_racked else None for broker in brokers}
    dead = draw(st.sets(st.sampled_from(brokers), max_size=1))
    drained = draw(st.sets(st.sampled_from(brokers), max_size=1))
    live = {broker: rack for broker, rack in racks.items() if broker not in dead}
    rows = draw(
        st.lists(
            st.tuples(
                st.permutations(brokers),
                st.integers(1, min(3, len(brokers))),
                st.integers(0, 100 * MiB),
                st.sampled_from([0.0, 1.0, 1e5, 1e6]),
            ),
            max_size=14,
        )
    )
    partitions = {
        TopicPartition("t", index): PartitionLoad(tuple(order[:count]), size, traffic)
        for index, (order, count, size, traffic) in enumerate(rows)
    }
    return ClusterLoad(live, partitions, frozenset(drained))


def planned(load: ClusterLoad) -> BalancePlan | None:
    """Return the plan; None if there is none, because too few brokers are left."""
    try:
        return plan(load)
    except NotEnoughBrokersError:
        fewest = len(load.receivers)
        assert any(
            not load.drained.isdisjoint(each.replicas) and len(each.replicas) > fewest
            for each in load.partitions.values()
        ), "brokers were left"
        return None


def carried_out(load: ClusterLoad, targets: Mapping[TopicPartition, tuple[int, ...]]) -> ClusterLoad:
    """Return the cluster after a plan."""
    moved = {
        partition: PartitionLoad(targets.get(partition, each.replicas), each.size_bytes, each.bytes_per_second)
        for partition, each in load.partitions.items()
    }
    return ClusterLoad(load.racks, moved, load.drained)


@examples(30)
@given(clusters())
def test_no_partition_loses_a_replica_or_has_two_on_one_broker(load: ClusterLoad) -> None:
    """The replication factor stays as it is."""
    made = planned(load)
    for move in made.moves if made else ():
        assert len(move.target) == len(move.replicas) == len(set(move.target))


@examples(30)
@given(clusters())
def test_new_replicas_go_to_live_brokers_and_leave_drained_ones(load: ClusterLoad) -> None:
    """What a dead broker has stays its own, unless it is drained."""
    made = planned(load)
    if made is None:
        return
    assert all(set(move.added) <= set(load.receivers) for move in made.moves)
    after = made.after()
    assert all(after.get(broker, BrokerLoad()).replicas == 0 for broker in load.drained)
    for move in made.moves:
        left = set(move.replicas) - set(move.target)
        assert left <= set(load.racks) | load.drained


@examples(30)
@given(clusters(with_racks=True))
def test_no_move_crowds_a_rack(load: ClusterLoad) -> None:
    """A partition is in as many racks as before, if the brokers that stay have as many."""
    made = planned(load)
    racks = load.racks
    if made is None or load.drained or len(set(racks.values())) < 2:
        return
    for move in made.moves:
        share = ceil(len(move.replicas) / len(set(racks.values())))
        crowds = []
        for replicas in (move.replicas, move.target):
            held = [racks[broker] for broker in replicas if broker in racks]
            crowds.append(sum(max(0, held.count(rack) - share) for rack in set(held)))
        assert crowds[1] <= crowds[0]


@examples(30)
@given(clusters())
def test_a_cluster_that_carried_out_its_plan_has_nothing_to_move(load: ClusterLoad) -> None:
    """So balancing again and again does not move data back and forth."""
    made = planned(load)
    if made is not None:
        again = planned(carried_out(load, made.targets))
        assert again is not None
        assert again.copied_bytes == 0
        assert again.moves == ()


@examples(30)
@given(clusters())
def test_evening_out_makes_a_cluster_more_even_not_less(load: ClusterLoad) -> None:
    """Nothing is evened out at the cost of everything else."""
    if load.drained or not load.racks or len(set(load.racks.values())) > 1:
        return
    made = plan(load)
    before, after = made.before(), made.after()
    live = load.receivers

    def squares(loads: Mapping[int, BrokerLoad]) -> float:
        parts = [[float(loads[each].replicas) for each in live], [float(loads[each].size_bytes) for each in live]]
        return sum((value / (sum(part) / len(part)) - 1) ** 2 for part in parts if sum(part) for value in part)

    # Traffic may be worth some unevenness of the others.
    if not any(each.bytes_per_second > 1 for each in load.partitions.values()):
        assert squares(after) <= squares(before) + 1e-6


def test_a_new_broker_gets_its_share_and_only_that_is_copied() -> None:
    """Four equal brokers and an empty one: about a fifth of the bytes moves, all of it to the new one."""
    partitions = {
        TopicPartition("t", index): PartitionLoad(tuple((index + turn) % 4 + 1 for turn in range(3)), MiB)
        for index in range(100)
    }
    made = plan(ClusterLoad(dict.fromkeys(range(1, 6)), partitions))
    after = made.after()
    assert all(move.added in ((), (5,)) for move in made.moves)
    assert made.copied_bytes <= 60 * MiB
    assert unevenness(each.replicas for each in after.values()) <= 0.1
    assert max(each.leaders for each in after.values()) <= 22


def test_leaders_that_only_crowd_one_broker_move_without_copying() -> None:
    """All partitions are led by the first broker: leaders move, and nothing else."""
    partitions = {TopicPartition("t", index): PartitionLoad((1, 2, 3), MiB) for index in range(30)}
    made = plan(ClusterLoad(dict.fromkeys((1, 2, 3)), partitions))
    assert made.copied_bytes == 0
    assert max(each.leaders for each in made.after().values()) <= 11


def test_hot_leaders_are_spread_although_their_number_is_even() -> None:
    """Every broker leads two partitions, but one has both of the busy ones."""
    hot, cold = 10.0 * MiB, 0.0
    orders = {0: (1, 2, 3), 1: (1, 3, 2), 2: (2, 1, 3), 3: (2, 3, 1), 4: (3, 1, 2), 5: (3, 2, 1)}
    partitions = {
        TopicPartition("t", index): PartitionLoad(order, MiB, hot if index < 3 else cold)
        for index, order in orders.items()
    }
    made = plan(ClusterLoad(dict.fromkeys((1, 2, 3)), partitions))
    after = made.after()
    assert made.copied_bytes == 0
    assert [after[broker].leader_bytes_per_second for broker in (1, 2, 3)] == [hot, hot, hot]


def test_leadership_passes_through_brokers_in_between() -> None:
    """The first broker shares no partition with the third, so the second hands on what it gets."""
    partitions = {TopicPartition("a", index): PartitionLoad((1, 2), MiB) for index in range(6)}
    partitions |= {TopicPartition("b", index): PartitionLoad((2, 3), MiB) for index in range(6)}
    partitions |= {TopicPartition("c", index): PartitionLoad((3, 1), MiB) for index in range(0)}
    made = plan(ClusterLoad(dict.fromkeys((1, 2, 3)), partitions))
    leaders = [made.after()[broker].leaders for broker in (1, 2, 3)]
    assert max(leaders) - min(leaders) <= 2


def test_changes_of_leaders_come_before_copies() -> None:
    """They cost nothing, and take load off at once."""
    partitions = {TopicPartition("t", index): PartitionLoad((1, 2), MiB) for index in range(20)}
    made = plan(ClusterLoad(dict.fromkeys((1, 2, 3)), partitions))
    copies = [bool(move.added) for move in made.moves]
    assert True in copies
    assert copies == sorted(copies)


def test_racks_that_share_replicas_without_need_are_taken_apart() -> None:
    """Both replicas are in rack a, and rack b has room."""
    partitions = {TopicPartition("t", 0): PartitionLoad((1, 2), MiB)}
    made = plan(ClusterLoad({1: "a", 2: "a", 3: "b"}, partitions))
    assert len(made.moves) == 1
    assert 3 in made.moves[0].target


def test_draining_keeps_the_replication_factor_or_fails() -> None:
    """Three replicas do not fit on two brokers."""
    partitions = {TopicPartition("t", 0): PartitionLoad((1, 2, 3), MiB)}
    with pytest.raises(NotEnoughBrokersError, match="t-0 needs 3 brokers for its replicas; 2 would be left"):
        plan(ClusterLoad(dict.fromkeys((1, 2, 3)), partitions, frozenset({3})))


def test_a_dead_broker_can_be_drained() -> None:
    """That is how its replicas are replaced if it never comes back."""
    partitions = {TopicPartition("t", 0): PartitionLoad((3, 1), MiB)}
    made = plan(ClusterLoad(dict.fromkeys((1, 2)), partitions, frozenset({3})))
    assert set(made.targets[TopicPartition("t", 0)]) == {1, 2}


def test_without_evening_out_only_the_drained_broker_is_emptied() -> None:
    """Draining does not shuffle the rest of the cluster."""
    partitions = {TopicPartition("t", index): PartitionLoad((1,), MiB) for index in range(10)}
    partitions[TopicPartition("t", 10)] = PartitionLoad((3,), MiB)
    made = plan(ClusterLoad(dict.fromkeys((1, 2, 3)), partitions, frozenset({3})), even_out=False)
    assert made.targets == {TopicPartition("t", 10): (2,)}
