"""Produce and Fetch over real logs: every partition answered, the right errors, and who waits for what."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker, topic_id

from ottla.broker.requests.request import RequestFailedError
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records import batches

TOPICS = {
    "compacted": {"cleanup.policy": "compact"},
    "flushed": {"ottla.flush.before.ack": "true"},
    "safe": {"min.insync.replicas": "2"},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that leads partition 0 of each topic."""
    with running_broker(tmp_path, TOPICS) as broker:
        for topic in ("t", *TOPICS):
            broker.lead(topic)
        yield broker


def produce(
    broker: Broker, records: bytes | None, *, topic: str = "t", index: int = 0, version: int = 9, **fields: Any
) -> Any:
    """Produce one batch; return the answer of its partition, or what the handler returned where there is none."""
    body = ProduceRequest(
        acks=fields.pop("acks", 1),
        timeout_ms=fields.pop("timeout_ms", 60_000),
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])],
    )
    answer = broker.ask(Api.PRODUCE, version, body, **fields)
    return answer.responses[0].partition_responses[0] if hasattr(answer, "responses") else answer


def fetch_body(offset: int = 0, *, topic: str = "t", index: int = 0, **fields: Any) -> FetchRequest:
    """Build a fetch of one partition."""
    wanted = FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=fields.pop("epoch", -1),
    )
    topics = [FetchTopic(topic=topic, topic_id=fields.pop("topic_id", topic_id(topic)), partitions=[wanted])]
    return FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0), min_bytes=fields.pop("min_bytes", 1), topics=topics, **fields
    )


def fetch(broker: Broker, offset: int = 0, *, version: int = 12, **fields: Any) -> PartitionData:
    """Fetch one partition and return its answer."""
    answer: PartitionData = broker.ask(Api.FETCH, version, fetch_body(offset, **fields)).responses[0].partitions[0]
    return answer


def values(answer: PartitionData) -> list[bytes | None]:
    """The values of the records in an answer."""
    return [record.value for found in batches(answer.records or b"", strict=True) for record in found.records()]


@pytest.mark.parametrize("version", range(3, 12))
def test_what_is_produced_can_be_fetched(broker: Broker, version: int) -> None:
    """In every version that carries batches."""
    answer = produce(broker, batch(b"a", b"b"), version=version)

    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert values(fetch(broker)) == [b"a", b"b"]


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_answers_in_every_version_by_name(broker: Broker, version: int) -> None:
    """High watermark and records."""
    produce(broker, batch(b"a"))

    answer = fetch(broker, version=version)

    assert (answer.error_code, answer.high_watermark, values(answer)) == (0, 1, [b"a"])


@pytest.mark.parametrize("version", range(13, 18))
def test_fetch_answers_in_every_version_by_id(broker: Broker, version: int) -> None:
    """Topics are named by id from version 13 on."""
    produce(broker, batch(b"a"))

    assert values(fetch(broker, version=version)) == [b"a"]
    assert fetch(broker, version=version, topic_id=b"?" * 16).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"records": None}, ErrorCode.INVALID_RECORD),
        ({"records": b"nonsense"}, ErrorCode.CORRUPT_MESSAGE),
        ({"records": batch(b"a")[:-1]}, ErrorCode.CORRUPT_MESSAGE),
        ({"records": batch(b"a") + batch(b"b")}, ErrorCode.INVALID_RECORD),
        ({"records": batch(b"a", base_offset=7)}, ErrorCode.INVALID_RECORD),
        ({"records": batch(b"a"), "acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"records": batch(b"a"), "topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"records": batch(b"a"), "index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"records": batch(b"a"), "topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"records": batch(b"a", key=None), "topic": "compacted"}, ErrorCode.INVALID_RECORD),
        ({"records": batch(b"x" * 2_000_000)}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"records": batch(b"a"), "topic": "safe", "acks": -1}, ErrorCode.NOT_ENOUGH_REPLICAS),
        ({"records": batch(b"a"), "version": 2}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ],
)
def test_a_refused_batch_has_its_code_and_leaves_nothing(
    broker: Broker, fields: dict[str, Any], code: ErrorCode
) -> None:
    """The partition answers, nothing is appended."""
    answer = produce(broker, **fields)

    assert (ErrorCode.of(answer.error_code), answer.base_offset) == (code, -1)
    assert fetch(broker).high_watermark == 0


def test_the_records_that_are_wrong_are_named(broker: Broker) -> None:
    """From version 8 on a producer can tell which record it was."""
    answer: PartitionProduceResponse = produce(broker, batch(b"a", b"b", key=None), topic="compacted")

    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert "key" in (answer.error_message or "")


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(broker: Broker) -> None:
    """It is the only way to tell the client."""
    assert produce(broker, batch(b"a"), acks=0) is None
    with pytest.raises(RequestFailedError):
        produce(broker, b"nonsense", acks=0)


def test_a_duplicate_is_answered_with_its_first_offset(broker: Broker) -> None:
    """An idempotent producer that lost the answer sends again."""
    sent = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    produce(broker, batch(b"before"))

    first, again = produce(broker, sent), produce(broker, sent)

    assert (first.base_offset, again.base_offset, again.error_code) == (1, 1, 0)
    assert fetch(broker).high_watermark == 2


def test_a_gap_in_the_sequence_is_refused(broker: Broker) -> None:
    """Something was lost on the way."""
    produce(broker, batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))

    answer = produce(broker, batch(b"c", producer_id=7, producer_epoch=0, base_sequence=2))

    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_acks_all_waits_until_the_replicas_have_it(broker: Broker) -> None:
    """With another replica in the ISR the high watermark does not move by itself; the deadline ends it."""
    broker.lead("t", epoch=1, isr=(1, 2))

    answers = produce(broker, batch(b"a"), acks=-1)
    assert answers == []
    assert values(fetch(broker)) == []
    broker.lead("t", epoch=2, isr=(1,))

    assert answers[0].responses[0].partition_responses[0].error_code == 0
    assert values(fetch(broker)) == [b"a"]


def test_acks_all_that_takes_too_long_says_so(broker: Broker) -> None:
    """The records stay; the producer tries again."""
    broker.lead("t", epoch=1, isr=(1, 2))
    answers = produce(broker, batch(b"a"), acks=-1)

    broker.services.partitions.waits.produces.expire(float("inf"))

    assert answers[0].responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_losing_the_leadership_answers_who_waits(broker: Broker) -> None:
    """With a hint where the new leader is, from version 10 on."""
    broker.lead("t", epoch=1, isr=(1, 2))
    answers = produce(broker, batch(b"a"), acks=-1, version=10)

    broker.lead("t", epoch=2, leader=2, isr=(1, 2))

    (answer,) = answers[0].responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = produce(broker, batch(b"a"), version=10)
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 2)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_may_ask_for_the_disk_before_the_answer(broker: Broker, acks: int) -> None:
    """The answer comes when the records are forced to disk."""
    answered = threading.Event()
    watch = broker.services.partitions.waits.produces.check

    def checked(key: Any) -> int:
        done = watch(key)
        if done:
            answered.set()
        return done

    broker.services.partitions.waits.produces.check = checked  # type: ignore[method-assign]
    answers = produce(broker, batch(b"a"), topic="flushed", acks=acks)

    assert isinstance(answers, list)
    assert answers or answered.wait(60)
    assert answers[0].responses[0].partition_responses[0].error_code == 0
    log = next(iter(log for log in broker.services.partitions.logs if log.partition.topic == "flushed"))
    assert log.recovery_point == 1


def test_a_fetch_waits_for_bytes_and_is_woken_by_them(broker: Broker) -> None:
    """Not by other partitions."""
    answers = broker.ask(Api.FETCH, 12, fetch_body(max_wait_ms=60_000))
    assert answers == []
    produce(broker, batch(b"other"), topic="compacted")
    assert answers == []

    produce(broker, batch(b"a"))

    assert values(answers[0].responses[0].partitions[0]) == [b"a"]


def test_a_fetch_waits_until_there_are_enough_bytes(broker: Broker) -> None:
    """Small answers are gathered."""
    answers = broker.ask(Api.FETCH, 12, fetch_body(max_wait_ms=60_000, min_bytes=200))
    produce(broker, batch(b"a"))
    assert answers == []

    produce(broker, batch(b"x" * 200))

    assert len(values(answers[0].responses[0].partitions[0])) == 2


def test_a_fetch_that_waited_long_enough_is_answered_empty(broker: Broker) -> None:
    """With the high watermark, and no error."""
    answers = broker.ask(Api.FETCH, 12, fetch_body(max_wait_ms=60_000))

    broker.services.partitions.waits.fetches.expire(float("inf"))

    answer = answers[0].responses[0].partitions[0]
    assert (answer.error_code, values(answer)) == (0, [])


@pytest.mark.parametrize(
    ("offset", "fields", "code"),
    [
        (2, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, {"epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        (0, {"epoch": 6}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, {"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {"index": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {"version": 3}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_fetch_that_cannot_be_served_is_answered_at_once(
    broker: Broker, offset: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    """It does not wait for anything."""
    broker.lead("t", epoch=5)
    produce(broker, batch(b"a"))

    answer = fetch(broker, offset, max_wait_ms=60_000, **fields)

    assert (ErrorCode.of(answer.error_code), answer.high_watermark, answer.records) == (code, -1, b"")


def test_the_first_batch_comes_even_if_it_is_too_large(broker: Broker) -> None:
    """Otherwise a consumer would never get past it."""
    produce(broker, batch(b"x" * 5000))
    produce(broker, batch(b"y"))

    assert values(fetch(broker, partition_max_bytes=100, max_bytes=100)) == [b"x" * 5000]


def test_a_session_answers_only_what_is_new(broker: Broker) -> None:
    """And forgets what it is told to forget."""
    opened = broker.ask(Api.FETCH, 12, fetch_body(session_epoch=0))
    assert opened.session_id > 0

    quiet = broker.ask(Api.FETCH, 12, _session(opened.session_id, 1))
    produce(broker, batch(b"a"))
    news = broker.ask(Api.FETCH, 12, _session(opened.session_id, 2))
    closed = broker.ask(Api.FETCH, 12, _session(opened.session_id, 3, forgotten=True))

    assert (quiet.error_code, quiet.responses) == (0, [])
    assert values(news.responses[0].partitions[0]) == [b"a"]
    assert (closed.session_id, closed.responses) == (0, [])


@pytest.mark.parametrize(
    ("version", "epoch", "known", "code"),
    [
        (12, 5, True, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (12, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (13, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_session_that_is_not_as_the_client_thinks_is_refused(
    broker: Broker, version: int, epoch: int, known: bool, code: ErrorCode
) -> None:
    """The client begins a new one then."""
    session_id = broker.ask(Api.FETCH, 12, fetch_body(session_epoch=0)).session_id

    answer = broker.ask(Api.FETCH, version, _session(session_id if known else session_id ^ 1, epoch))

    assert (ErrorCode.of(answer.error_code), answer.responses) == (code, [])


def _session(session_id: int, epoch: int, *, forgotten: bool = False) -> FetchRequest:
    gone = [ForgottenTopic(topic="t", partitions=[0])] if forgotten else []
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=[], forgotten_topics_data=gone
    )


@pytest.mark.parametrize("version", range(3, 12))
def test_a_batch_of_a_transaction_without_a_transactional_id_is_refused_in_words(broker: Broker, version: int) -> None:
    """Nobody could end its transaction: readers of committed records would wait for ever behind it."""
    records = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)

    answer = produce(broker, records, version=version)

    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert version < 8 or "needs a transactional id" in answer.error_message
    produce(broker, batch(b"w"))
    assert values(fetch(broker, isolation_level=1)) == [b"w"]


def test_only_topics_that_exist_become_labels_of_metrics(broker: Broker) -> None:
    """A client that tries names adds none; those of a deleted topic go with it."""
    partitions = broker.services.partitions
    for name in ("nowhere", "x" * 300):
        broker.ask(Api.FETCH, 12, fetch_body(topic=name))
        data = PartitionProduceData(index=0, records=batch(b"v"))
        topics = [TopicProduceData(name=name, partition_data=[data])]
        broker.ask(Api.PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=0, topic_data=topics))
    assert (partitions.failed_appends, partitions.failed_reads) == ({}, {})
    broker.ask(Api.FETCH, 12, fetch_body(index=7))
    assert partitions.failed_reads == {"t": 1}
    partitions.deleted([TopicPartition("t", 0)])
    assert partitions.failed_reads == {}
