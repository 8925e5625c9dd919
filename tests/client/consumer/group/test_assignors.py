"""How partitions are shared out, and the bytes by which members say so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.consumer.group.assignors import Assignor, RangeAssignor, RoundRobinAssignor, assignors_by_name
from ottla.client.consumer.group.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.client.consumer.group.sticky_assignor import CooperativeStickyAssignor, StickyAssignor, balanced
from ottla.client.errors import KafkaConfigurationError
from ottla.client.types import TopicPartition
from ottla.protocol.errors import DecodeError

TOPICS = ["a", "b", "c"]
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
MEMBERS = st.dictionaries(
    st.text("abcdef0123456789-", min_size=1, max_size=6),
    st.sets(st.sampled_from(TOPICS), min_size=1).map(sorted),
    min_size=1,
    max_size=6,
)


def subscribed(members: dict[str, list[str]]) -> dict[str, Subscription]:
    """Return members that have nothing yet."""
    return {name: Subscription(topics) for name, topics in members.items()}


def everything(counts: dict[str, int], members: dict[str, list[str]]) -> list[TopicPartition]:
    """Return all partitions of topics that somebody subscribes to."""
    wanted = {topic for topics in members.values() for topic in topics}
    return [TopicPartition(topic, number) for topic in sorted(wanted) for number in range(counts[topic])]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(RangeAssignor(), RangePartitionAssignor), (RoundRobinAssignor(), RoundRobinPartitionAssignor)]
)
@given(counts=COUNTS, members=MEMBERS)
@examples(60)
def test_range_and_roundrobin_are_those_of_others(
    ours: Assignor, theirs: Any, counts: dict[str, int], members: dict[str, list[str]]
) -> None:
    """For the same members, the same partitions as aiokafka gives them."""
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts[topic])) or None)
    expected = theirs.assign(
        cluster, {name: ConsumerProtocolMemberMetadata(0, topics, b"") for name, topics in members.items()}
    )

    assert {name: sorted(given) for name, given in ours.assign(counts, subscribed(members)).items()} == {
        name: sorted(TopicPartition(topic, number) for topic, numbers in given.assignment for number in numbers)
        for name, given in expected.items()
    }


@given(counts=COUNTS, members=MEMBERS)
@examples(100)
def test_sticky_gives_every_partition_to_one_member_evenly(
    counts: dict[str, int], members: dict[str, list[str]]
) -> None:
    """All partitions once, only to subscribers, and no move between two members would make them more even."""
    assigned = StickyAssignor().assign(counts, subscribed(members))

    assert sorted(sum(assigned.values(), start=[])) == everything(counts, members)  # noqa: RUF017 - a few members
    for giver, given_partitions in assigned.items():
        assert all(partition.topic in members[giver] for partition in given_partitions)
        for taker, topics in members.items():
            movable = any(partition.topic in topics for partition in given_partitions)
            assert not movable or len(given_partitions) - len(assigned[taker]) <= 1


@given(counts=COUNTS, members=MEMBERS, newcomer=st.booleans())
@examples(100)
def test_sticky_leaves_partitions_where_they_are(
    counts: dict[str, int], members: dict[str, list[str]], newcomer: bool
) -> None:
    """Nothing moves when nothing changed; with a newcomer, nothing moves between the others that want the same."""
    members = dict.fromkeys(members, TOPICS)
    before = balanced(counts, subscribed(members))
    claims = {name: Subscription(TOPICS, before[name], 1) for name in members}
    if newcomer:
        claims["zz-new"] = Subscription(TOPICS)
    after = balanced(counts, claims)

    for name in members:
        assert set(after[name]) <= set(before[name]) if newcomer else after[name] == before[name]


def test_of_two_claims_the_newer_generation_counts() -> None:
    """A member that slept through a rebalance does not get back what went to another."""
    one = TopicPartition("a", 0)
    members = {"old": Subscription(["a"], [one], 1), "new": Subscription(["a"], [one], 2)}

    assert balanced({"a": 1}, members) == {"old": [], "new": [one]}


def test_sticky_claims_are_in_the_user_data() -> None:
    """What a member had is known from the bytes that it sends, those of older members too."""
    had = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    assignor = StickyAssignor()
    data = assignor.user_data(had, 3)
    assert data is not None
    for claim in (data, data[:-4]):
        sent = decode_subscription(encode_subscription(Subscription(["a", "b"], user_data=claim)))
        assigned = assignor.assign({"a": 2, "b": 2}, {"m": sent, "n": Subscription(["a", "b"])})
        assert set(assigned["m"]) < set(had)


def test_a_cooperative_move_takes_two_rebalances() -> None:
    """A partition that is to move is in nobody's share until its owner has given it up."""
    assignor = CooperativeStickyAssignor()
    owned = [TopicPartition("a", number) for number in range(2)]
    first = assignor.assign({"a": 2}, {"m": Subscription(["a"], owned, 1), "n": Subscription(["a"])})
    assert {name: len(given) for name, given in first.items()} == {"m": 1, "n": 0}

    second = assignor.assign({"a": 2}, {"m": Subscription(["a"], first["m"], 2), "n": Subscription(["a"], [], 2)})
    assert {name: len(given) for name, given in second.items()} == {"m": 1, "n": 1}
    assert second["m"] == first["m"]


def test_static_members_come_first() -> None:
    """The order is by instance id, whatever member ids the coordinator made."""
    members = {"x": Subscription(["a"], group_instance_id="2"), "y": Subscription(["a"], group_instance_id="1")}

    assert RangeAssignor().assign({"a": 1}, members) == {"x": [], "y": [TopicPartition("a", 0)]}


def test_bytes_are_those_of_others() -> None:
    """aiokafka reads our subscription and assignment, and writes the same assignment."""
    partitions = [TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)]
    data = encode_assignment(partitions)
    theirs = ConsumerProtocolMemberAssignment(0, [("a", [0, 2]), ("b", [1])], None)

    assert theirs.encode() == data
    assert decode_assignment(data) == set(partitions)
    told = encode_subscription(Subscription(["b", "a"], partitions, 7, b"data", "rack"))
    assert ConsumerProtocolMemberMetadata.decode(told).subscription == ["a", "b"]
    assert decode_subscription(told) == Subscription(["a", "b"], sorted(partitions), 7, b"data", "rack")


@given(st.binary(max_size=60))
def test_other_peoples_bytes_are_refused_with_a_decode_error(data: bytes) -> None:
    """Whatever a member sends, the leader survives."""
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except DecodeError:
            continue


def test_an_assignor_that_there_is_not_is_refused() -> None:
    """With the names of those that there are."""
    with pytest.raises(KafkaConfigurationError, match="cooperative-sticky"):
        assignors_by_name(["fair"])
