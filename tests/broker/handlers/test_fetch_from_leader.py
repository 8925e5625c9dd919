"""A leader answers its followers' fetches: what they get, what their fetches move, and what wakes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import NOW_MS, Broker, batch, running_broker, topic_id
from tests.broker.handlers.test_produce_and_fetch import fetch, fetch_body, produce, values

from ottla.broker.common.turn import Turn
from ottla.broker.replication.partition import Partition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

FOLLOWER, OTHER = 2, 3
FOREVER_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return the leader of `t`, `u` and `rolling`, each with two followers in sync."""
    with running_broker(tmp_path, {"rolling": {"segment.bytes": "300"}}) as broker:
        broker.racks = {1: None, 2: None, 3: None}
        for topic in ("t", "u", "rolling"):
            broker.lead(topic, isr=(1, 2, 3), replicas=(1, 2, 3))
        yield broker


def partition_of(broker: Broker, topic: str = "t") -> Partition:
    """The leader's replica."""
    found = broker.services.partitions.find(TopicPartition(topic, 0))
    assert found is not None
    return found


def body(offset: int = 0, *, replica: int = FOLLOWER, version: int = 17, topic: str = "t", **fields: Any) -> Any:
    """Build the fetch of a follower."""
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=fields.pop("epoch", 0),
        last_fetched_epoch=fields.pop("last_fetched_epoch", -1),
        log_start_offset=0 if version >= 5 else -1,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
    )
    who: dict[str, Any] = {"replica_id": replica}
    if version >= 15:
        who = {"replica_state": ReplicaState(replica_id=replica, replica_epoch=fields.pop("broker_epoch", 7))}
    return FetchRequest(
        **who,
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=fields.pop("min_bytes", 1),
        topics=[FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=[wanted])],
        **fields,
    )


def follow(broker: Broker, offset: int = 0, *, version: int = 17, **fields: Any) -> Any:
    """Fetch one partition as a follower; its answer, or the list that will have the response."""
    answer = broker.ask(Api.FETCH, version, body(offset, version=version, **fields))
    return answer if isinstance(answer, list) else answer.responses[0].partitions[0]


def answer_of(answers: list[Any]) -> PartitionData:
    """The answer of the one partition of a fetch that has waited."""
    (response,) = answers
    ((partition,),) = [topic.partitions for topic in response.responses]
    answer: PartitionData = partition
    return answer


@pytest.mark.parametrize("version", [9, 11, 12, 13, 14, 15, 16, 17])
def test_a_follower_reads_to_the_end_of_the_log_and_a_consumer_only_what_is_committed(
    broker: Broker, version: int
) -> None:
    """However the follower says who it is: a field before version 15, a tag from then on."""
    produce(broker, batch(b"a"))

    assert values(follow(broker, version=version)) == [b"a"]
    assert values(fetch(broker)) == []


def test_the_slowest_follower_in_sync_moves_the_high_watermark(broker: Broker) -> None:
    """What a follower asks for next tells what it has; who waits for the commit is answered."""
    acknowledged = produce(broker, batch(b"a"), acks=-1)
    consumed = broker.ask(Api.FETCH, 12, fetch_body(max_wait_ms=FOREVER_MS))
    follow(broker, 1, replica=FOLLOWER)
    assert (acknowledged, consumed, partition_of(broker).log.high_watermark) == ([], [], 0)

    answer = follow(broker, 1, replica=OTHER)

    assert answer.high_watermark == 1
    assert acknowledged[0].responses[0].partition_responses[0].error_code == 0
    assert values(answer_of(consumed)) == [b"a"]


def test_a_fetch_that_moves_several_partitions_tells_those_who_wait_for_each(broker: Broker) -> None:
    """Once everything is read."""
    waiting = {}
    for topic in ("t", "u"):
        waiting[topic] = produce(broker, batch(b"a"), topic=topic, acks=-1)
        follow(broker, 1, replica=OTHER, topic=topic)
    both = body(1)
    both.topics.extend(body(1, topic="u").topics)

    broker.ask(Api.FETCH, 17, both)

    assert [len(waiting[topic]) for topic in ("t", "u")] == [1, 1]


def test_a_follower_that_waits_is_woken_by_an_append_and_not_by_a_commit(broker: Broker) -> None:
    """The high watermark reaches it with the next data."""
    produce(broker, batch(b"a"))
    answers = follow(broker, 1, max_wait_ms=FOREVER_MS)
    follow(broker, 1, replica=OTHER)
    assert answers == []
    assert partition_of(broker).log.high_watermark == 1

    produce(broker, batch(b"b"))

    answer = answer_of(answers)
    assert (values(answer), answer.high_watermark) == ([b"b"], 1)


def test_a_follower_that_waits_gets_all_records_of_a_turn_at_once(broker: Broker) -> None:
    """A client that has several requests in flight would otherwise cost two fetches, the first for one record."""
    waiting = follow(broker, max_wait_ms=FOREVER_MS)
    with Turn():
        for value in (b"a", b"b", b"c"):
            produce(broker, batch(value))
        assert waiting == []
    assert values(answer_of(waiting)) == [b"a", b"b", b"c"]


def test_a_fetch_that_has_waited_is_answered_with_the_newest_high_watermark(broker: Broker) -> None:
    """Though it was not woken for it."""
    produce(broker, batch(b"a"))
    answers = follow(broker, 1, max_wait_ms=FOREVER_MS)
    follow(broker, 1, replica=OTHER)

    broker.services.partitions.waits.fetches.expire(float("inf"))

    assert answer_of(answers).high_watermark == 1


def test_what_a_follower_has_is_noted_when_it_asks_and_not_when_it_is_answered(broker: Broker) -> None:
    """Its connection may have been lost, and a newer fetch may have told something else."""
    produce(broker, batch(b"a", b"b"))
    late = follow(broker, 2, max_wait_ms=FOREVER_MS)
    follow(broker, 0)

    produce(broker, batch(b"c"))

    assert len(late) == 1
    assert partition_of(broker).follower_positions()[FOLLOWER].log_end_offset == 0


def test_a_follower_gets_more_than_consumers_may_have_at_once(tmp_path: Path) -> None:
    """`fetch.max.bytes` is not for followers."""
    with running_broker(tmp_path, {}, {"fetch.max.bytes": "1024"}) as broker:
        broker.lead("t", isr=(1, 2))
        for _ in range(3):
            produce(broker, batch(b"x" * 800))

        assert len(values(follow(broker))) == 3
        follow(broker, 3)
        assert len(values(fetch(broker))) == 1


@pytest.mark.parametrize(("last_fetched_epoch", "offset", "diverging"), [(0, 3, (0, 2)), (1, 2, (0, 2))])
def test_a_follower_learns_at_once_where_its_log_is_another(
    broker: Broker, last_fetched_epoch: int, offset: int, diverging: tuple[int, int]
) -> None:
    """It gets no records, and counts as having nothing new."""
    produce(broker, batch(b"a", b"b"))
    broker.lead("t", epoch=2, isr=(1, 2, 3), replicas=(1, 2, 3))
    produce(broker, batch(b"c", b"d"))

    answer = follow(broker, offset, epoch=2, last_fetched_epoch=last_fetched_epoch, max_wait_ms=FOREVER_MS)

    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == diverging
    assert (answer.error_code, answer.records) == (0, b"")
    assert partition_of(broker).follower_positions()[FOLLOWER].log_end_offset < offset


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 6}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"epoch": 5, "replica": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"epoch": 5, "offset": 7}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"epoch": 5, "topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_follower_that_cannot_be_served_is_answered_at_once(
    broker: Broker, fields: dict[str, Any], code: ErrorCode
) -> None:
    """It does not wait for anything."""
    broker.lead("t", epoch=5, isr=(1, 2, 3), replicas=(1, 2, 3))

    answer = follow(broker, fields.pop("offset", 0), max_wait_ms=FOREVER_MS, **fields)

    assert (ErrorCode.of(answer.error_code), answer.high_watermark) == (code, -1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader": 3, "isr": (2, 3)}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"isr": (1, 2, 3)}, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_follower_that_waits_is_told_when_the_leader_changes(
    broker: Broker, change: dict[str, Any], code: ErrorCode
) -> None:
    """Another leader, or the same one anew."""
    answers = follow(broker, max_wait_ms=FOREVER_MS)

    broker.lead("t", epoch=1, replicas=(1, 2, 3), **change)

    assert answer_of(answers).error_code == code


def test_a_fetch_that_meets_the_beginning_of_its_epoch_is_not_fenced(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that is fenced in the leader's own epoch would wait for a controller that has nothing to say."""
    read = Partition.read_for_follower

    def lead_then_read(partition: Partition, *arguments: Any, **options: Any) -> Any:
        broker.lead("t", epoch=1, isr=(1, 2, 3), replicas=(1, 2, 3))
        return read(partition, *arguments, **options)

    monkeypatch.setattr(Partition, "read_for_follower", lead_then_read)
    answers = follow(broker, epoch=1, max_wait_ms=FOREVER_MS)

    produce(broker, batch(b"a"))

    assert values(answer_of(answers)) == [b"a"]


def test_a_fetch_that_waits_is_told_when_the_partition_goes(broker: Broker) -> None:
    """Deleted, or moved to other brokers."""
    answers = follow(broker, max_wait_ms=FOREVER_MS)

    broker.services.partitions.drop(TopicPartition("t", 0), delete=False)

    assert answer_of(answers).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_that_waits_for_more_is_answered_when_the_segment_is_full(broker: Broker) -> None:
    """What comes next lies in another file, and comes with another fetch."""
    answers = follow(broker, topic="rolling", max_wait_ms=FOREVER_MS, min_bytes=10_000)
    produce(broker, batch(b"x" * 100), topic="rolling")
    assert answers == []

    produce(broker, batch(b"y" * 100), topic="rolling")

    assert len(partition_of(broker, "rolling").log.segments) == 2
    assert values(answer_of(answers)) == [b"x" * 100]


def test_the_bytes_of_all_partitions_together_are_enough(broker: Broker) -> None:
    """Each append is counted where it happens."""
    both = body(max_wait_ms=FOREVER_MS, min_bytes=2 * len(batch(b"a")))
    both.topics.extend(body(topic="u").topics)
    answers = broker.ask(Api.FETCH, 17, both)
    produce(broker, batch(b"a"))
    assert answers == []

    produce(broker, batch(b"b"), topic="u")

    assert [values(topic.partitions[0]) for topic in answers[0].responses] == [[b"a"], [b"b"]]


def incremental(session_id: int, epoch: int, *, forgotten: str = "", **fields: Any) -> FetchRequest:
    """Build a follower's fetch that goes on with a session, and changes nothing."""
    gone = [ForgottenTopic(topic_id=topic_id(forgotten), partitions=[0])] if forgotten else []
    return FetchRequest(
        replica_state=ReplicaState(replica_id=fields.pop("replica", FOLLOWER), replica_epoch=7),
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=fields.pop("topics", []),
        forgotten_topics_data=gone,
    )


def test_an_idle_follower_in_a_session_is_answered_nothing_and_is_known_to_be_there(broker: Broker) -> None:
    """Its leader would otherwise find it far behind with the next record."""
    session_id = broker.ask(Api.FETCH, 17, body(session_epoch=0)).session_id
    follower = partition_of(broker).follower_positions()[FOLLOWER]
    follower.last_caught_up_ms = follower.last_fetch_ms = 0

    quiet = broker.ask(Api.FETCH, 17, incremental(session_id, 1))

    assert (quiet.error_code, quiet.session_id, quiet.responses) == (0, session_id, [])
    assert (follower.last_caught_up_ms, follower.last_fetch_ms) == (NOW_MS, NOW_MS)


def test_a_session_tells_what_happened_to_an_idle_partition(broker: Broker) -> None:
    """A commit, then records, then another leader epoch."""
    produce(broker, batch(b"a"))
    session_id = broker.ask(Api.FETCH, 17, body(1, session_epoch=0)).session_id
    follow(broker, 1, replica=OTHER)

    commit = broker.ask(Api.FETCH, 17, incremental(session_id, 1)).responses[0].partitions[0]
    nothing = broker.ask(Api.FETCH, 17, incremental(session_id, 2)).responses
    produce(broker, batch(b"b"))
    records = broker.ask(Api.FETCH, 17, incremental(session_id, 3)).responses[0].partitions[0]
    broker.lead("t", epoch=1, isr=(1, 2, 3), replicas=(1, 2, 3))
    fenced = broker.ask(Api.FETCH, 17, incremental(session_id, 4)).responses[0].partitions[0]

    assert (commit.high_watermark, commit.records, nothing) == (1, b"", [])
    assert values(records) == [b"b"]
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_topic_that_is_not_known_yet_is_found_in_a_later_fetch_of_the_session(broker: Broker) -> None:
    """A follower may hear of a topic before its leader does, and does not name it again."""
    session_id = broker.ask(Api.FETCH, 17, body(topic="new", session_epoch=0)).session_id
    unknown = broker.ask(Api.FETCH, 17, incremental(session_id, 1)).responses[0].partitions[0]
    broker.lead("new", isr=(1, 2), replicas=(1, 2))
    produce(broker, batch(b"a"), topic="new")

    known = broker.ask(Api.FETCH, 17, incremental(session_id, 2)).responses[0]

    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (known.topic_id, values(known.partitions[0])) == (topic_id("new"), [b"a"])


def test_a_topic_is_forgotten_by_its_id_even_when_it_is_gone(broker: Broker) -> None:
    """An id whose name is not known any more still names what the session has."""
    both = body(topic="never", session_epoch=0)
    both.topics.extend(body().topics)
    session_id = broker.ask(Api.FETCH, 17, both).session_id

    later = broker.ask(Api.FETCH, 17, incremental(session_id, 1, forgotten="never"))

    assert (later.session_id, later.responses) == (session_id, [])


def test_a_fetch_that_waits_keeps_its_offsets_when_the_session_goes_on(broker: Broker) -> None:
    """A client that does not wait for its answer gets what it asked for, each time."""
    produce(broker, batch(b"a"))
    opened = broker.ask(Api.FETCH, 17, body(1, session_epoch=0))
    first = broker.ask(Api.FETCH, 17, incremental(opened.session_id, 1, max_wait_ms=FOREVER_MS))
    assert first == []

    second = broker.ask(Api.FETCH, 17, incremental(opened.session_id, 2, topics=body(0).topics))
    produce(broker, batch(b"b"))

    assert values(second.responses[0].partitions[0]) == [b"a"]
    assert values(answer_of(first)) == [b"b"]
