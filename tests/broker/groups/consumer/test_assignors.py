"""Properties of the assignors, for arbitrary members and topics."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Assignor,
    PartitionSet,
    Reader,
    TopicIdPartition,
    range_,
    uniform,
)

TOPIC_IDS = [bytes([number]) * 16 for number in range(1, 6)]
A, B = TOPIC_IDS[:2]

topics_strategy = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(1, 9))
subscription = st.frozensets(st.sampled_from(TOPIC_IDS), max_size=5)
partition_strategy = st.builds(TopicIdPartition, st.sampled_from(TOPIC_IDS), st.integers(0, 10))
reader_strategy = st.builds(Reader, subscription, st.frozensets(partition_strategy, max_size=8))
readers_strategy = st.dictionaries(st.sampled_from("abcdefg"), reader_strategy, min_size=1, max_size=7)


def partitions(topic_id: bytes, *indexes: int) -> PartitionSet:
    """Return some partitions of a topic."""
    return frozenset(TopicIdPartition(topic_id, index) for index in indexes)


def again(assigned: Mapping[str, PartitionSet], topics: frozenset[bytes]) -> dict[str, Reader]:
    """Return readers that had the given assignment."""
    return {member_id: Reader(topics, had) for member_id, had in assigned.items()}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
@examples(150)
@given(readers=readers_strategy, topics=topics_strategy)
def test_each_partition_goes_to_one_of_its_readers(
    assignor: Assignor, readers: dict[str, Reader], topics: dict[bytes, int]
) -> None:
    """Partitions of subscribed topics are assigned once, all others never."""
    assigned = assignor(readers, topics)
    assert assigned.keys() == readers.keys()
    for member_id, owned in assigned.items():
        assert {each.topic_id for each in owned} <= readers[member_id].topics
    read = frozenset[bytes]().union(*(reader.topics for reader in readers.values()))
    expected = {TopicIdPartition(topic_id, index) for topic_id in read for index in range(topics.get(topic_id, 0))}
    assert sum(map(len, assigned.values())) == len(expected)
    assert set().union(*assigned.values()) == expected


@examples(150)
@given(
    had=st.dictionaries(st.sampled_from("abcdefg"), st.frozensets(partition_strategy, max_size=12), min_size=1),
    topics=topics_strategy,
    read=subscription,
)
def test_uniform_balances_readers_of_the_same_topics(
    had: dict[str, PartitionSet], topics: dict[bytes, int], read: frozenset[bytes]
) -> None:
    """The sizes differ by at most one, for any previous assignment."""
    sizes = [len(owned) for owned in uniform(again(had, read), topics).values()]
    assert max(sizes) - min(sizes) <= 1


@examples(150)
@given(topics=topics_strategy, read=subscription, count=st.integers(2, 7), gone=st.integers(0, 6))
def test_uniform_moves_only_what_a_leaving_member_had(
    topics: dict[bytes, int], read: frozenset[bytes], count: int, gone: int
) -> None:
    """The others keep all their partitions."""
    before = uniform({name: Reader(read) for name in "abcdefg"[:count]}, topics)
    del before["abcdefg"[gone % count]]
    after = uniform(again(before, read), topics)
    assert all(before[member_id] <= after[member_id] for member_id in before)


@examples(150)
@given(topics=topics_strategy, read=subscription, count=st.integers(1, 6))
def test_uniform_moves_to_a_new_member_only_its_share(
    topics: dict[bytes, int], read: frozenset[bytes], count: int
) -> None:
    """The other members lose exactly the partitions that the new one gets."""
    before = uniform({name: Reader(read) for name in "abcdef"[:count]}, topics)
    after = uniform({**again(before, read), "new": Reader(read)}, topics)
    lost = set().union(*(before[member_id] - after[member_id] for member_id in before))
    assert lost == after["new"]


@examples(100)
@given(readers=readers_strategy, topics=topics_strategy)
def test_uniform_keeps_a_balanced_assignment(readers: dict[str, Reader], topics: dict[bytes, int]) -> None:
    """A second run changes nothing."""
    first = uniform(readers, topics)
    second = uniform({name: Reader(reader.topics, first[name]) for name, reader in readers.items()}, topics)
    assert first == second


@examples(100)
@given(readers=readers_strategy, topics=topics_strategy)
def test_uniform_balances_the_readers_of_each_topic(readers: dict[str, Reader], topics: dict[bytes, int]) -> None:
    """No partition could move to another reader of its topic that has at least two partitions fewer."""
    assigned = uniform(readers, topics)
    for member_id, owned in assigned.items():
        for other_id, reader in readers.items():
            if any(each.topic_id in reader.topics for each in owned):
                assert len(owned) - len(assigned[other_id]) < 2, (member_id, other_id)


def test_range_splits_equal_topics_in_the_same_way() -> None:
    """Partitions with the same number go to the same member, as joins need."""
    both = frozenset({A, B})
    assigned = range_({"y": Reader(both), "x": Reader(both)}, {A: 5, B: 5})
    assert assigned["x"] == partitions(A, 0, 1, 2) | partitions(B, 0, 1, 2)
    assert assigned["y"] == partitions(A, 3, 4) | partitions(B, 3, 4)


def test_range_ranks_static_members_by_their_instance() -> None:
    """A static member that comes back with another member id keeps its range."""
    read = frozenset({A})
    first = range_({"m9": Reader(read, instance_id="i1"), "m5": Reader(read, instance_id="i2")}, {A: 4})
    second = range_({"m1": Reader(read, instance_id="i2"), "m9": Reader(read, instance_id="i1")}, {A: 4})
    assert first["m9"] == second["m9"] == partitions(A, 0, 1)
    assert first["m5"] == second["m1"] == partitions(A, 2, 3)


def test_uniform_spreads_each_topic_over_new_members() -> None:
    """No member gets a whole topic."""
    both = frozenset({A, B})
    assigned = uniform({"x": Reader(both), "y": Reader(both)}, {A: 2, B: 2})
    assert assigned["x"] == partitions(A, 0) | partitions(B, 0)
    assert assigned["y"] == partitions(A, 1) | partitions(B, 1)
