"""End offsets: known for the partitions that this broker leads, requested and cached for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.broker.replication.peer import peer

from ottla.broker.groups.end_offsets import EndOffsets, LeaderEnds
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

OWN, OTHER, GONE = TopicPartition("own", 0), TopicPartition("other", 0), TopicPartition("gone", 0)


class Leaders:
    """Other brokers, which return the same end offset for every partition."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[TopicPartition]]] = []
        self.end: int | None = 7

    def __call__(self, leader: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset, or fail if it is None."""
        self.asked.append((leader, list(partitions)))
        if self.end is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
        return dict.fromkeys(partitions, self.end)


@pytest.fixture
def leaders() -> Leaders:
    """Return the other brokers."""
    return Leaders()


@pytest.fixture
def ends(tmp_path: Path, leaders: Leaders) -> Iterator[EndOffsets]:
    """Return the end offsets on a broker that leads one of two topics."""
    with running_broker(tmp_path, {}) as broker:
        _lead(broker)
        end_offsets = EndOffsets(broker.services.partitions, broker.services.metadata, leaders)
        end_offsets.start()
        yield end_offsets
        end_offsets.stop()


def _lead(broker: Broker) -> None:
    broker.racks[2] = None
    broker.lead("own")
    broker.lead("other", leader=2, isr=(2,))
    partition = broker.services.partitions.find(OWN)
    assert partition is not None
    partition.append(batch(b"a", b"b", b"c"), required_acks=1)


def test_our_own_partitions_end_at_the_high_watermark(ends: EndOffsets, leaders: Leaders) -> None:
    """No other broker is asked."""
    assert ends.of([OWN]) == {OWN: 3}
    assert leaders.asked == []


def test_answers_of_other_leaders_are_cached(ends: EndOffsets, leaders: Leaders) -> None:
    """The first lookup waits for the answer. A partition without a leader is left out."""
    assert ends.of([OWN, OTHER, GONE]) == {OWN: 3, OTHER: 7}
    assert ends.of([OWN, OTHER, GONE]) == {OWN: 3, OTHER: 7}
    assert leaders.asked == [(2, [OTHER])]


def test_a_leader_that_does_not_answer_leaves_the_end_unknown(ends: EndOffsets, leaders: Leaders) -> None:
    """Further lookups do not wait for it again."""
    leaders.end = None
    assert ends.of([OWN, OTHER]) == {OWN: 3}
    assert ends.of([OTHER]) == {}
    assert len(leaders.asked) == 1


def test_no_leader_is_asked_after_a_stop(ends: EndOffsets, leaders: Leaders) -> None:
    """Lookups return at once."""
    ends.stop()
    assert ends.of([OTHER]) == {}
    assert leaders.asked == []


def listed(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return ten times the number of each partition as its end. Partition 9 has another leader."""

    def row(index: int) -> ListOffsetsPartitionResponse:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if index == 9 else ErrorCode.NONE
        return ListOffsetsPartitionResponse(
            partition_index=index, error_code=code, timestamp=-1, offset=-1 if code else index * 10
        )

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[row(each.partition_index) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def test_a_leader_is_asked_over_one_connection() -> None:
    """Partitions that it does not lead are left out."""
    versions = {Api.LIST_OFFSETS: Versions(1, 5)}
    asked = [TopicPartition("t", index) for index in (1, 2, 9)]
    with peer(lambda api, version, request: listed(request), versions) as leader:
        ends = LeaderEnds(lambda broker: leader.endpoint if broker == 2 else None, "test")
        for _ in range(2):
            assert ends(2, asked) == {asked[0]: 10, asked[1]: 20}
        assert ends(3, asked) == {}
        assert leader.connected == 1
        ends.close()


def test_a_lost_connection_is_opened_again() -> None:
    """The failed request raises an error."""
    answers: list[Message | None] = [None]

    def answer(api: Api, version: int, request: ListOffsetsRequest) -> Message | None:
        return answers.pop() if answers else listed(request)

    with peer(answer, {Api.LIST_OFFSETS: Versions(1, 5)}) as leader:
        ends = LeaderEnds(lambda broker: leader.endpoint, "test")
        with pytest.raises(KafkaError):
            ends(2, [TopicPartition("t", 1)])
        assert ends(2, [TopicPartition("t", 1)]) == {TopicPartition("t", 1): 10}
        ends.close()
