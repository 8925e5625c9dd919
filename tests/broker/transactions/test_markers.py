"""Markers on their way: to the leaders of today, again after errors that pass, and never for a past coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.transactions.coordinating import FIRST_PRODUCER, A, B, Coordinating, coordinating

from ottla.broker.transactions.markers import Codes, MarkerSender
from ottla.broker.transactions.transaction import TransactionState
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PREPARE_COMMIT, COMPLETE_COMMIT = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
TIMEOUT_S = 30.0

HERE = 1

# A marker as a broker got it: producer id and epoch, outcome, partitions, coordinator epoch.
Seen = tuple[int, int, bool, list[TopicPartition], int]


class Link:
    """A broker that answers what a test says, NONE for all else."""

    def __init__(self) -> None:
        self.requests: list[list[Seen]] = []
        # The next answers, by partition.
        self.errors: dict[TopicPartition, list[ErrorCode]] = {}
        self.before_answer: Callable[[], None] = lambda: None
        self.is_closed = threading.Event()
        self.numbers: list[tuple[int, int]] = []

    def request(self, api: Api, build: Callable[[int], Any]) -> WriteTxnMarkersResponse:
        """Note what came, and answer."""
        request: WriteTxnMarkersRequest = build(api.versions.last)
        self.numbers += [(marker.coordinator_broker_epoch, marker.transaction_number) for marker in request.markers]
        seen: list[Seen] = []
        results = []
        for marker in request.markers:
            partitions = [
                TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
            ]
            outcome = marker.transaction_result
            seen.append((marker.producer_id, marker.producer_epoch, outcome, partitions, marker.coordinator_epoch))
            topics = [
                WritableTxnMarkerTopicResult(
                    name=partition.topic,
                    partitions=[
                        WritableTxnMarkerPartitionResult(
                            partition_index=partition.partition, error_code=self._code(partition)
                        )
                    ],
                )
                for partition in partitions
            ]
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        self.requests.append(seen)
        self.before_answer()
        return WriteTxnMarkersResponse(markers=results)

    def close(self) -> None:
        """Note that nobody wants it any more."""
        self.is_closed.set()

    def _code(self, partition: TopicPartition) -> ErrorCode:
        errors = self.errors.get(partition)
        return errors.pop(0) if errors else ErrorCode.NONE


class Sending:
    """A coordinator whose markers go to fake brokers; nothing moves unless a test says so."""

    def __init__(self, led: Coordinating, broker_epoch: int = 100) -> None:
        self.led = led
        self.broker_epoch = broker_epoch
        self.links: dict[int, Link] = {2: Link(), 3: Link()}
        self.leaders: dict[TopicPartition, int | None] = {A: 2, B: 3}
        # What this broker is to write, and how it answers.
        self.written_here: list[WritableTxnMarker] = []
        self.code_here = ErrorCode.NONE
        self.sender = MarkerSender(
            led.coordinator,
            HERE,
            lambda: self.broker_epoch,
            self.leaders.get,
            self._write_here,
            self.links.__getitem__,
        )
        led.coordinator.send_markers = self.sender.send

    def _write_here(self, marker: WritableTxnMarker, done: Callable[[Codes], None]) -> None:
        self.written_here.append(marker)
        partitions = [TopicPartition(topic.name, each) for topic in marker.topics for each in topic.partition_indexes]
        done(dict.fromkeys(partitions, self.code_here))

    def commit(self, *partitions: TopicPartition, commit: bool = True) -> tuple[int, int]:
        """Decide a transaction over some partitions; return its producer."""
        producer = self.led.producer()
        assert self.led.add(producer, *partitions) is ErrorCode.NONE
        assert self.led.end(producer, commit=commit) is ErrorCode.NONE
        return producer

    def send(self, broker: int) -> None:
        """Send all that waits for a broker."""
        self.sender.channels.to(broker).send_waiting()

    def move(self) -> None:
        """Send all that waits, and look for leaders again."""
        for broker in (2, 3):
            self.send(broker)
        self.sender.work.run_due()


@pytest.fixture
def sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    """A coordinator in epoch 4 with two brokers."""
    monkeypatch.setattr("ottla.broker.transactions.markers._RETRY_SECONDS", 0.0)
    with coordinating(tmp_path) as led:
        led.lead(epoch=4)
        yield Sending(led)


@pytest.mark.parametrize(("commit", "state"), [(True, COMPLETE_COMMIT), (False, COMPLETE_ABORT)])
def test_each_leader_gets_the_markers_of_its_partitions(
    sending: Sending, commit: bool, state: TransactionState
) -> None:
    """With the producer, its epoch, the outcome and the coordinator's epoch."""
    sending.commit(A, B, commit=commit)
    sending.move()

    assert sending.links[2].requests == [[(FIRST_PRODUCER, 0, commit, [A], 4)]]
    assert sending.links[3].requests == [[(FIRST_PRODUCER, 0, commit, [B], 4)]]
    assert sending.led.state() is state


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_after_an_error_that_may_pass_the_present_leader_gets_the_marker(sending: Sending, error: ErrorCode) -> None:
    """The partition may have moved meanwhile."""
    sending.links[2].errors[A] = [error]
    sending.commit(A)
    sending.send(2)
    assert sending.led.state() is PREPARE_COMMIT
    sending.leaders[A] = 3
    sending.move()
    sending.move()

    assert [len(link.requests) for link in sending.links.values()] == [1, 1]
    assert sending.led.state() is COMPLETE_COMMIT


def test_only_the_partitions_that_failed_are_sent_again(sending: Sending) -> None:
    """The others have their marker."""
    sending.leaders[B] = 2
    sending.links[2].errors[B] = [ErrorCode.NOT_ENOUGH_REPLICAS]
    sending.commit(A, B)
    sending.move()
    sending.move()

    assert [[marker[3] for marker in request] for request in sending.links[2].requests] == [[[A, B]], [[B]]]
    assert sending.led.state() is COMPLETE_COMMIT


def test_after_a_broken_connection_all_is_sent_again(sending: Sending) -> None:
    """With the number that it had: the first request may be under way still."""
    link = sending.links[2]

    def fail() -> None:
        link.before_answer = lambda: None
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION)

    link.before_answer = fail
    sending.commit(A)
    sending.move()
    assert sending.led.state() is PREPARE_COMMIT
    sending.move()

    assert sending.led.state() is COMPLETE_COMMIT
    assert len(set(link.numbers)) == 1


def test_each_decision_has_a_higher_number(sending: Sending) -> None:
    """So that a marker which comes in late is not taken for one of the next transaction."""
    for _ in range(3):
        producer = sending.commit(A)
        sending.move()
    assert sending.led.add(producer, A) is ErrorCode.NONE

    numbers = sending.links[2].numbers
    assert numbers == sorted(set(numbers))


def test_a_coordinator_that_has_restarted_numbers_higher_than_before(sending: Sending) -> None:
    """In the same coordinator epoch, and whatever the clock says: leaders would take its markers for late ones."""
    for _ in range(2):
        sending.commit(A)
        sending.move()
    again = Sending(sending.led, broker_epoch=101)
    again.commit(A)
    again.move()

    assert again.links[2].numbers > sending.links[2].numbers


def test_numbers_rise_while_the_broker_is_not_registered(sending: Sending) -> None:
    """It has no broker epoch then, and a higher one afterwards."""
    for broker_epoch in (100, -1, 101):
        sending.broker_epoch = broker_epoch
        sending.commit(A)
        sending.move()

    assert sending.links[2].numbers == [(100, 0), (100, 1), (101, 2)]


def test_partitions_of_this_broker_get_their_marker_at_once(sending: Sending) -> None:
    """No thread and no connection is between."""
    sending.leaders[A] = HERE
    sending.commit(A)

    assert len(sending.written_here) == 1
    assert sending.led.state() is COMPLETE_COMMIT


def test_a_marker_that_this_broker_cannot_write_goes_to_the_next_leader(sending: Sending) -> None:
    """As everywhere."""
    sending.leaders[A], sending.code_here = HERE, ErrorCode.NOT_LEADER_OR_FOLLOWER
    sending.commit(A)
    assert sending.led.state() is PREPARE_COMMIT

    sending.leaders[A] = 3
    sending.move()
    sending.move()
    assert sending.led.state() is COMPLETE_COMMIT


def test_a_partition_without_a_leader_waits_for_one(sending: Sending) -> None:
    """However long that takes."""
    sending.leaders[A] = NO_LEADER
    sending.commit(A)
    assert sending.led.state() is PREPARE_COMMIT

    sending.leaders[A] = 3
    sending.move()
    sending.move()
    assert sending.led.state() is COMPLETE_COMMIT


def test_a_partition_that_is_gone_needs_no_marker(sending: Sending) -> None:
    """Its topic was deleted."""
    del sending.leaders[A]
    sending.commit(A, B)
    assert sending.led.state() is PREPARE_COMMIT
    sending.move()

    assert sending.links[2].requests == []
    assert sending.led.state() is COMPLETE_COMMIT


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_coordinator_stops_sending(sending: Sending, error: ErrorCode) -> None:
    """Whoever has taken over finishes it."""
    sending.links[2].errors[A] = [error]
    sending.commit(A)
    sending.move()
    sending.move()

    assert len(sending.links[2].requests) == 1
    assert sending.led.state() is PREPARE_COMMIT


def test_a_coordinator_that_was_replaced_sends_nothing_again(sending: Sending) -> None:
    """Also where an answer says that it should."""
    sending.links[2].errors[A] = [ErrorCode.NOT_ENOUGH_REPLICAS]
    sending.commit(A)
    sending.send(2)
    sending.led.coordinator.shards.resigned(0, 5)
    sending.move()
    sending.move()

    assert len(sending.links[2].requests) == 1


def test_what_waits_for_a_broker_goes_in_one_request(sending: Sending) -> None:
    """Of several transactions, too."""
    sending.leaders[B] = 2
    sending.commit(A, B)
    sending.led.init(transactional_id="orders")
    sending.move()

    assert [[marker[3] for marker in request] for request in sending.links[2].requests] == [[[A, B]]]


def test_a_transaction_that_is_complete_is_not_sent(sending: Sending) -> None:
    """Somebody else was faster."""
    sending.commit(A)
    sending.move()
    entry = sending.led.coordinator.find("payments")
    assert entry is not None
    sending.sender.send(entry)
    sending.move()

    assert len(sending.links[2].requests) == 1


def test_threads_send_at_once_and_end_when_they_are_told(sending: Sending) -> None:
    """A request under way is cut short; what comes later is dropped."""
    arrived = threading.Event()
    link = sending.links[2]

    def block() -> None:
        arrived.set()
        assert link.is_closed.wait(TIMEOUT_S)
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION)

    link.before_answer = block
    sending.sender.start()
    sending.commit(A)
    assert arrived.wait(TIMEOUT_S)

    sending.sender.stop()

    assert not any(thread.name.startswith("transaction-markers") for thread in threading.enumerate())
    assert sending.led.state() is PREPARE_COMMIT
