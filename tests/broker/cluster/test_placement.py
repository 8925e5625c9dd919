"""Placement of replicas."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.cluster.placement import placement, rack_alternating, start_of_added
from ottla.protocol.errors import ErrorCode, KafkaError


@st.composite
def clusters(draw: st.DrawFn, *, with_racks: bool) -> tuple[dict[int, str | None], int, int]:
    """Draw brokers with their racks, a number of partitions, and a possible replication factor."""
    ids = draw(st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True))
    racks = {broker: draw(st.sampled_from(["a", "b", "c"])) if with_racks else None for broker in ids}
    return racks, draw(st.integers(1, 40)), draw(st.integers(1, len(ids)))


ANY_CLUSTER = clusters(with_racks=True) | clusters(with_racks=False)


@examples(200)
@given(ANY_CLUSTER)
def test_replicas_are_on_different_brokers_and_leaders_even(
    cluster: tuple[dict[int, str | None], int, int],
) -> None:
    """No broker leads more than one partition more than another."""
    racks, partitions, factor = cluster
    assignment = placement(racks, partitions, factor)
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(racks)
    leaders = Counter(dict.fromkeys(racks, 0))
    leaders.update(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


@examples(200)
@given(clusters(with_racks=True))
def test_racks_are_used_before_one_is_used_twice(cluster: tuple[dict[int, str | None], int, int]) -> None:
    """A partition survives the loss of a rack wherever there is another."""
    racks, partitions, factor = cluster
    for replicas in placement(racks, partitions, factor).values():
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


@examples(100)
@given(st.integers(2, 8), st.data())
def test_followers_are_spread_when_leaders_have_gone_round(brokers: int, data: st.DataObject) -> None:
    """With n * (n - 1) partitions, each broker follows each other one equally often."""
    factor = data.draw(st.integers(2, brokers))
    assignment = placement(dict.fromkeys(range(brokers)), brokers * (brokers - 1), factor)
    followed = Counter((replicas[0], follower) for replicas in assignment.values() for follower in replicas[1:])
    assert len(set(followed.values())) == 1


def test_a_known_start_gives_a_known_placement() -> None:
    """Worked out by hand for three brokers, start 0."""
    assert placement(dict.fromkeys([1, 2, 3]), 4, 2, start=0) == {0: [1, 2], 1: [2, 3], 2: [3, 1], 3: [1, 3]}


def test_racks_alternate_in_the_order_of_brokers() -> None:
    """One of each rack in turn, lowest id first."""
    assert rack_alternating({0: "a", 1: "c", 2: "c", 3: "b", 4: "b", 5: "a"}) == [0, 3, 1, 5, 4, 2]
    assert rack_alternating({0: "a", 1: "a", 2: "b"}) == [0, 2, 1]
    assert rack_alternating({}) == []


@examples(100)
@given(clusters(with_racks=False), st.integers(0, 10))
def test_a_single_rack_makes_no_difference(cluster: tuple[dict[int, str | None], int, int], start: int) -> None:
    """All brokers of one host are one rack, and partitions are placed as if there were no racks."""
    brokers, partitions, factor = cluster
    start %= len(brokers)
    one_rack = dict.fromkeys(brokers, "host")
    assert placement(one_rack, partitions, factor, start=start) == placement(brokers, partitions, factor, start=start)


def test_racks_count_only_if_all_brokers_have_one() -> None:
    """Otherwise a broker without rack would never be used, or always."""
    replicas = placement({1: "a", 2: "a", 3: None}, 3, 3, start=0)
    assert all(sorted(each) == [1, 2, 3] for each in replicas.values())


def test_added_partitions_go_on_where_the_topic_began() -> None:
    """At the first broker at or behind the leader of partition 0."""
    assert start_of_added([1, 3, 5], 3) == 1
    assert start_of_added([1, 3, 5], 4) == 2
    assert start_of_added([1, 3, 5], 6) == 0
    assert list(placement({1: None, 2: None}, 2, 1, first_partition=5, start=0)) == [5, 6]


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "code"),
    [
        (3, 0, 1, ErrorCode.INVALID_PARTITIONS),
        (3, -1, 1, ErrorCode.INVALID_PARTITIONS),
        (3, 1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        (3, 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_are_refused(brokers: int, partitions: int, factor: int, code: ErrorCode) -> None:
    """With Kafka's codes."""
    with pytest.raises(KafkaError) as caught:
        placement(dict.fromkeys(range(brokers)), partitions, factor)
    assert caught.value.code is code
