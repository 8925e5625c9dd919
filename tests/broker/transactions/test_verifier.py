"""Asking coordinators whether a partition is part of a transaction: this broker's own, or another one's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.transactions.coordinating import ID, A, B, Coordinating, coordinating

from ottla.broker.transactions.verifier import Question, Verifier
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

HERE, ELSEWHERE = 1, 2
YES, NO = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE


class Link:
    """Another broker, which knows some transactions."""

    def __init__(self) -> None:
        self.version = 5
        self.failure: Exception | None = None
        self.error = ErrorCode.NONE
        self.known: dict[str, set[TopicPartition]] = {}
        # What each request asked: transactional id, producer, partitions.
        self.requests: list[list[tuple[str, int, int, list[TopicPartition]]]] = []

    def request(self, api: Api, build: Callable[[int], Any]) -> AddPartitionsToTxnResponse:
        """Answer from what it knows."""
        assert api is Api.ADD_PARTITIONS_TO_TXN
        request: AddPartitionsToTxnRequest = build(self.version)
        assert all(each.verify_only for each in request.transactions)
        if self.failure is not None:
            raise self.failure
        seen, results = [], []
        for each in request.transactions:
            known = self.known.get(each.transactional_id, set())
            partitions = [TopicPartition(topic.name, index) for topic in each.topics for index in topic.partitions]
            seen.append((each.transactional_id, each.producer_id, each.producer_epoch, partitions))
            topics = [
                AddPartitionsToTxnTopicResult(
                    name=partition.topic,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=partition.partition, partition_error_code=YES if partition in known else NO
                        )
                    ],
                )
                for partition in partitions
            ]
            results.append(AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topics))
        self.requests.append(seen)
        if self.error is not ErrorCode.NONE:
            results = []
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=self.error, results_by_transaction=results)

    def close(self) -> None:
        """Nothing to close."""


class Asking:
    """A verifier whose questions go where a test says."""

    def __init__(self, led: Coordinating) -> None:
        self.led = led
        self.coordinator = ELSEWHERE
        self.link = Link()
        self.verifier = Verifier(led.coordinator, HERE, lambda _id: self.coordinator, lambda _broker: self.link)
        self.answers: list[dict[TopicPartition, ErrorCode]] = []

    def ask(self, *partitions: TopicPartition, transactional_id: str = ID, producer: tuple[int, int] = (7, 0)) -> None:
        """Ask about partitions."""
        question = Question(transactional_id, *producer, partitions, lambda codes: self.answers.append(dict(codes)))
        self.verifier.verify(question)

    def send(self) -> None:
        """Send what waits for the other broker."""
        self.verifier.channels.to(ELSEWHERE).send_waiting()


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    """A verifier on a broker that coordinates, too."""
    with coordinating(tmp_path) as led:
        led.lead()
        asking = Asking(led)
        yield asking
        asking.verifier.stop()


def test_this_brokers_own_coordinator_answers_at_once(asking: Asking) -> None:
    """For each partition, or with one error for all."""
    asking.coordinator = HERE
    producer = asking.led.producer()
    assert asking.led.add(producer, A) is YES

    asking.ask(A, B, producer=producer)
    asking.ask(A, producer=(producer[0], producer[1] + 1))
    asking.ask(A, transactional_id="unknown", producer=producer)

    assert asking.answers == [
        {A: YES, B: NO},
        {A: ErrorCode.PRODUCER_FENCED},
        {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ]


def test_while_nobody_coordinates_there_is_no_answer(asking: Asking) -> None:
    """The producer tries again."""
    asking.coordinator = NO_LEADER
    asking.ask(A, B)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert asking.answers == [{A: code, B: code}]


def test_another_broker_is_asked_about_many_transactions_at_once(asking: Asking) -> None:
    """Each gets its own answer; questions of one producer are asked as one."""
    asking.link.known = {ID: {A}, "orders": {B}}
    asking.ask(A)
    asking.ask(B)
    asking.ask(A, B, transactional_id="orders", producer=(8, 3))
    assert asking.answers == []
    asking.send()

    assert asking.answers == [{A: YES}, {B: NO}, {A: NO, B: YES}]
    assert asking.link.requests == [[(ID, 7, 0, [A, B]), ("orders", 8, 3, [A, B])]]


def test_two_producers_of_one_transactional_id_are_asked_about_one_after_the_other(asking: Asking) -> None:
    """A request has each id once. The coordinator says who is fenced."""
    asking.link.known = {ID: {A}}
    asking.ask(A, producer=(7, 0))
    asking.ask(A, producer=(7, 1))
    asking.send()

    assert asking.link.requests == [[(ID, 7, 0, [A])], [(ID, 7, 1, [A])]]
    assert asking.answers == [{A: YES}, {A: YES}]


@pytest.mark.parametrize("failure", [KafkaError(ErrorCode.NETWORK_EXCEPTION), ProtocolError("odd bytes")])
def test_who_cannot_be_asked_gives_no_answer(asking: Asking, failure: Exception) -> None:
    """The next question may have more luck."""
    asking.link.failure = failure
    asking.ask(A)
    asking.send()
    asking.link.failure = None
    asking.link.known = {ID: {A}}
    asking.ask(A)
    asking.send()

    assert asking.answers == [{A: ErrorCode.NETWORK_EXCEPTION}, {A: YES}]


def test_an_error_above_all_transactions_is_one_for_each_partition(asking: Asking) -> None:
    """This broker has no right to ask."""
    asking.link.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    asking.ask(A, B)
    asking.send()

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asking.answers == [{A: code, B: code}]


def test_a_broker_that_is_too_old_to_be_asked_is_believed(asking: Asking) -> None:
    """As Kafka does while it is upgraded."""
    asking.link.version = 3
    asking.ask(A)
    asking.send()

    assert asking.answers == [{A: YES}]
    assert asking.link.requests == []


def test_a_broker_that_stops_leaves_nobody_without_an_answer(asking: Asking) -> None:
    """Connections wait for it."""
    asking.ask(A)
    asking.verifier.stop()
    asking.ask(B)

    assert asking.answers == [{A: ErrorCode.NETWORK_EXCEPTION}, {B: ErrorCode.NETWORK_EXCEPTION}]
