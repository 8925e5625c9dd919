"""End offsets and times of records: known for the partitions that this broker has, requested and cached for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.broker.handlers.data_path import NOW_MS, Broker, batch, running_broker
from tests.broker.replication.peer import peer

from ottla.broker.groups import lag_lookups
from ottla.broker.groups.lag_lookups import FromLeader, LagLookups, LeaderLookups, RecordAt
from ottla.broker.storage.log import Log
from ottla.broker.storage.offset_lookup import time_of_record
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

OWN, OTHER, GONE = TopicPartition("own", 0), TopicPartition("other", 0), TopicPartition("gone", 0)


class Leaders:
    """Other brokers. All partitions end at the same offset, and the time of a record is ten times its offset."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, dict[TopicPartition, list[int]]]] = []
        self.end: int | None = 7

    def __call__(self, leader: int, questions: Mapping[TopicPartition, list[int]]) -> dict[TopicPartition, FromLeader]:
        """Return the end offset and the times, or fail if the end is None."""
        self.asked.append((leader, dict(questions)))
        if self.end is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
        return {
            partition: FromLeader(self.end, {offset: offset * 10 for offset in offsets})
            for partition, offsets in questions.items()
        }


@pytest.fixture
def leaders() -> Leaders:
    """Return the other brokers."""
    return Leaders()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that leads one of two topics, which has two batches."""
    with running_broker(tmp_path, {}) as broker:
        broker.racks[2] = None
        broker.lead("own")
        broker.lead("other", leader=2, isr=(2,))
        partition = broker.services.partitions.find(OWN)
        assert partition is not None
        partition.append(batch(b"a", b"b", b"c"), required_acks=1)
        yield broker


@pytest.fixture
def lookups(broker: Broker, leaders: Leaders) -> Iterator[LagLookups]:
    """Return the lookups of the broker."""
    lookups = LagLookups(broker.services.partitions, broker.services.metadata, leaders)
    lookups.start()
    yield lookups
    lookups.stop()


def test_our_own_partitions_end_at_the_high_watermark(lookups: LagLookups, leaders: Leaders) -> None:
    """No other broker is asked."""
    assert lookups.ends([OWN]) == {OWN: 3}
    assert leaders.asked == []


def test_answers_of_other_leaders_are_cached(lookups: LagLookups, leaders: Leaders) -> None:
    """The first lookup waits for the answer. A partition without a leader is left out."""
    assert lookups.ends([OWN, OTHER, GONE]) == {OWN: 3, OTHER: 7}
    assert lookups.ends([OWN, OTHER, GONE]) == {OWN: 3, OTHER: 7}
    assert leaders.asked == [(2, {OTHER: []})]


def test_a_leader_that_does_not_answer_leaves_the_end_unknown(lookups: LagLookups, leaders: Leaders) -> None:
    """Further lookups do not wait for it again."""
    leaders.end = None
    assert lookups.ends([OWN, OTHER]) == {OWN: 3}
    assert lookups.ends([OTHER]) == {}
    assert lookups.times([RecordAt(OTHER, 1)]) == {}
    assert lookups.times([RecordAt(OTHER, 1)]) == {}
    assert len(leaders.asked) == 2


def test_no_leader_is_asked_after_a_stop(lookups: LagLookups, leaders: Leaders) -> None:
    """Lookups return at once."""
    lookups.stop()
    assert lookups.ends([OTHER]) == {}
    assert lookups.times([RecordAt(OTHER, 1), RecordAt(OWN, 1)]) == {}
    assert leaders.asked == []


def test_times_are_read_from_our_own_replica_once(
    lookups: LagLookups, leaders: Leaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that stays at its offset costs no second read; at the end of the log there is no record."""
    read: list[int] = []

    def counted(log: Log, offset: int) -> int | None:
        read.append(offset)
        return time_of_record(log, offset)

    monkeypatch.setattr(lag_lookups, "time_of_record", counted)
    first, end = RecordAt(OWN, 1), RecordAt(OWN, 3)
    for _ in range(3):
        assert lookups.times([first, end]) == {first: NOW_MS}
    assert read == [1]
    assert leaders.asked == []


def test_a_follower_reads_times_from_its_replica(broker: Broker, lookups: LagLookups, leaders: Leaders) -> None:
    """Records below its high watermark are the same on the leader."""
    broker.lead("own", epoch=1, leader=2, isr=(1, 2))
    assert lookups.times([RecordAt(OWN, 1)]) == {RecordAt(OWN, 1): NOW_MS}
    assert leaders.asked == []


def test_one_request_asks_a_leader_for_all_times(lookups: LagLookups, leaders: Leaders) -> None:
    """Several groups may be at different offsets of a partition."""
    records = [RecordAt(OTHER, offset) for offset in (3, 5)]
    for _ in range(2):
        assert lookups.times(records) == {records[0]: 30, records[1]: 50}
    ((leader, questions),) = leaders.asked
    assert (leader, sorted(questions[OTHER])) == (2, [3, 5])


def test_a_round_looks_up_a_limited_number_of_times(lookups: LagLookups, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their turn later, and the cache has a limit of its own."""
    monkeypatch.setattr(lag_lookups, "_TIMES_IN_ROUND", 2)
    monkeypatch.setattr(lag_lookups, "_TIMES_KEPT", 3)
    records = [RecordAt(OTHER, offset) for offset in range(5)]
    assert len(lookups.times(records)) == 2
    assert len(lookups.times(records)) == 3


def listed(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return ten times the number of each partition as its end. Partition 9 has another leader.

    The record at offset 4 has no time, the others that of their offset.
    """

    def row(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if index == 9 else ErrorCode.NONE
        return ListOffsetsPartitionResponse(
            partition_index=index,
            error_code=code,
            timestamp=-1,
            offset=-1 if code else index * 10,
            record_timestamps=[-1 if offset == 4 else offset for offset in asked.record_offsets],
        )

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[row(each) for each in topic.partitions])
            for topic in request.topics
        ]
    )


@pytest.mark.parametrize(("version", "times"), [(5, {}), (9, {3: 3, 5: 5})])
def test_a_leader_is_asked_over_one_connection(version: int, times: dict[int, int]) -> None:
    """Partitions that it does not lead are left out; earlier versions have no times, nor have Kafka's brokers."""
    one, two, nine = (TopicPartition("t", index) for index in (1, 2, 9))
    with peer(lambda api, version, request: listed(request), {Api.LIST_OFFSETS: Versions(1, version)}) as leader:
        ask = LeaderLookups(lambda broker: leader.endpoint if broker == 2 else None, "test")
        for _ in range(2):
            found = ask(2, {one: [], two: [3, 4, 5], nine: [1]})
            assert found == {one: FromLeader(10, {}), two: FromLeader(20, times)}
        assert ask(3, {one: []}) == {}
        assert leader.connected == 1
        ask.close()


def test_a_lost_connection_is_opened_again() -> None:
    """The failed request raises an error."""
    answers: list[Message | None] = [None]

    def answer(api: Api, version: int, request: ListOffsetsRequest) -> Message | None:
        return answers.pop() if answers else listed(request)

    with peer(answer, {Api.LIST_OFFSETS: Versions(1, 5)}) as leader:
        ask = LeaderLookups(lambda broker: leader.endpoint, "test")
        with pytest.raises(KafkaError):
            ask(2, {TopicPartition("t", 1): []})
        assert ask(2, {TopicPartition("t", 1): []}) == {TopicPartition("t", 1): FromLeader(10, {})}
        ask.close()
