"""Proposals for the ISR on their way to the controller, which is a function here."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.replication.leader.isr_changes import IsrChanges
from ottla.broker.replication.leader.leadership import IsrAnswer, IsrProposal
from ottla.client.net.blocking_connection import ConnectionFailedError
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import LAST_VERSION, Message
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.primitives import UUID_ZERO

TIMEOUT_S = 30
TOPIC_ID = b"o" * 16
Reply = Callable[[AlterPartitionRequest], AlterPartitionResponse]


def accepted(request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Do what was asked for."""
    return AlterPartitionResponse(
        throttle_time_ms=0,
        error_code=0,
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    ResponsePartitionData(
                        partition_index=row.partition_index,
                        error_code=0,
                        leader_id=1,
                        leader_epoch=row.leader_epoch,
                        isr=row.new_isr or [member.broker_id for member in row.new_isr_with_epochs],
                        partition_epoch=row.partition_epoch + 1,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def refused(code: ErrorCode) -> Reply:
    """Refuse the whole request."""
    return lambda request: AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[])


def broken(request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Break the connection."""
    raise ConnectionFailedError("the controller is gone")


class Controller:
    """Stands for the link: answers with what the test prepared, and with yes after that."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.replies: list[Reply] = []
        self.requests: list[AlterPartitionRequest] = []
        self.version = 3
        self.is_open = threading.Event()
        self.is_open.set()

    def request(self, api: Api, build: Callable[[int], Message], version_max: int = LAST_VERSION) -> Any:
        """Answer one request, through the codec in both directions."""
        assert api is Api.ALTER_PARTITION
        version = min(self.version, version_max)
        request = decode(AlterPartitionRequest, version, encode(build(version), version))
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()
        assert self.is_open.wait(TIMEOUT_S)
        reply = self.replies.pop(0) if self.replies else accepted
        return decode(AlterPartitionResponse, version, encode(reply(request), version))

    def close(self) -> None:
        """Let a request end."""
        self.is_open.set()

    def wait_for_requests(self, count: int) -> None:
        """Wait until so many came."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= count, TIMEOUT_S)


class Answers:
    """Keeps what came back."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.all: list[tuple[IsrProposal, IsrAnswer]] = []

    def __call__(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        with self.changed:
            self.all.append((proposal, answer))
            self.changed.notify_all()

    def first(self, count: int) -> list[tuple[IsrProposal, IsrAnswer]]:
        """Wait for so many answers."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.all) >= count, TIMEOUT_S)
            return self.all[:count]


def proposal(index: int = 0, partition_epoch: int = 0, topic_id: bytes = TOPIC_ID) -> IsrProposal:
    """Propose that 1 and 2 are in sync."""
    return IsrProposal(TopicPartition("orders", index), topic_id, 5, partition_epoch, ((1, 11), (2, -1)))


@pytest.fixture
def controller() -> Controller:
    """A controller that says yes."""
    return Controller()


@pytest.fixture
def changes(controller: Controller) -> Iterator[IsrChanges]:
    """Changes of broker 1, not started."""
    made = IsrChanges(controller, 1, lambda: 77)
    yield made
    made.stop()


def test_proposals_go_together_and_each_gets_its_answer(changes: IsrChanges, controller: Controller) -> None:
    """With the epochs of the members, and of the broker itself."""
    answers = Answers()
    proposals = [proposal(0), proposal(1, partition_epoch=8)]
    for each in proposals:
        changes.submit(each, answers)
    changes.start()
    assert answers.first(2) == [
        (proposals[0], IsrAnswer(ErrorCode.NONE, 1, 5, (1, 2), 1)),
        (proposals[1], IsrAnswer(ErrorCode.NONE, 1, 5, (1, 2), 9)),
    ]
    (request,) = controller.requests
    assert (request.broker_id, request.broker_epoch) == (1, 77)
    members = request.topics[0].partitions[0].new_isr_with_epochs
    assert [(member.broker_id, member.broker_epoch) for member in members] == [(1, 11), (2, -1)]


@pytest.mark.parametrize(
    "failure",
    [broken, refused(ErrorCode.NOT_CONTROLLER), refused(ErrorCode.STALE_BROKER_EPOCH)],
    ids=["broken", "not controller", "stale epoch"],
)
def test_proposals_are_sent_until_a_controller_answers(
    changes: IsrChanges, controller: Controller, failure: Reply
) -> None:
    """Nothing is dropped, and nothing is told before."""
    controller.replies = [failure] * 3
    answers, sent = Answers(), proposal()
    changes.submit(sent, answers)
    changes.start()
    assert answers.first(1) == [(sent, IsrAnswer(ErrorCode.NONE, 1, 5, (1, 2), 1))]
    assert len(controller.requests) == 4


def test_a_broker_that_the_controller_does_not_know_is_told_so(changes: IsrChanges, controller: Controller) -> None:
    """Each time, and only then: the reason may pass."""
    controller.replies = [refused(ErrorCode.STALE_BROKER_EPOCH)] * 2 + [refused(ErrorCode.NOT_CONTROLLER)]
    told: list[int] = []
    changes.on_unregistered = lambda: told.append(len(controller.requests))
    answers = Answers()
    changes.submit(proposal(), answers)
    changes.start()
    answers.first(1)
    assert told == [1, 2]


def test_an_answer_about_an_earlier_life_says_nothing_of_this_one(controller: Controller) -> None:
    """The broker has registered anew while the answer was on its way."""
    epochs = [76]
    told: list[int] = []

    def late(request: AlterPartitionRequest) -> AlterPartitionResponse:
        epochs.append(77)
        return refused(ErrorCode.STALE_BROKER_EPOCH)(request)

    controller.replies = [late, refused(ErrorCode.STALE_BROKER_EPOCH)]
    changes = IsrChanges(controller, 1, lambda: epochs[-1])
    changes.on_unregistered = lambda: told.append(controller.requests[-1].broker_epoch)
    answers = Answers()
    changes.submit(proposal(), answers)
    changes.start()
    answers.first(1)
    changes.stop()
    assert told == [77]


def test_a_broker_in_doubt_asks_the_controller_without_proposing(changes: IsrChanges, controller: Controller) -> None:
    """Once for each doubt: it is asked again as long as there is one."""
    controller.replies = [refused(ErrorCode.STALE_BROKER_EPOCH), refused(ErrorCode.STALE_BROKER_EPOCH)]
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    changes.on_unregistered = lambda: told.put(len(controller.requests))
    changes.start()
    for count in (1, 2):
        changes.ask_whether_registered()
        assert told.get(timeout=TIMEOUT_S) == count
    assert [(request.broker_id, request.topics) for request in controller.requests] == [(1, []), (1, [])]


def test_proposals_wait_while_another_broker_may_lead(controller: Controller) -> None:
    """What was proposed before the doubt is not sent during it; the question about the registration is."""
    is_sure = threading.Event()
    changes = IsrChanges(controller, 1, lambda: 77, may_propose=is_sure.is_set)
    answers, held = Answers(), proposal()
    changes.submit(held, answers)
    changes.start()
    for count in (1, 2):
        changes.ask_whether_registered()
        controller.wait_for_requests(count)
    assert [request.topics for request in controller.requests] == [[], []]
    assert not answers.all

    is_sure.set()
    assert answers.first(1) == [(held, IsrAnswer(ErrorCode.NONE, 1, 5, (1, 2), 1))]
    changes.stop()


def test_of_two_proposals_for_a_partition_the_newer_is_sent(changes: IsrChanges, controller: Controller) -> None:
    """The older one is answered as uncertain."""
    answers, older, newer = Answers(), proposal(partition_epoch=1), proposal(partition_epoch=2)
    changes.submit(older, answers)
    changes.submit(newer, answers)
    changes.start()
    (first, first_answer), (second, _) = answers.first(2)
    assert (first, second) == (older, newer)
    assert first_answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
    assert [request.topics[0].partitions[0].partition_epoch for request in controller.requests] == [2]


def test_a_newer_proposal_replaces_one_whose_request_failed(changes: IsrChanges, controller: Controller) -> None:
    """The older is not sent again behind it."""
    controller.is_open.clear()
    controller.replies = [broken]
    answers, older, newer = Answers(), proposal(partition_epoch=1), proposal(partition_epoch=2)
    changes.submit(older, answers)
    changes.start()
    controller.wait_for_requests(1)
    changes.submit(newer, answers)
    controller.is_open.set()
    assert [(each, answer.error_code) for each, answer in answers.first(2)] == [
        (older, ErrorCode.INVALID_UPDATE_VERSION),
        (newer, ErrorCode.NONE),
    ]


def test_an_error_of_a_partition_is_its_answer(changes: IsrChanges, controller: Controller) -> None:
    """Also where the controller says nothing about it."""

    def partly(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = accepted(request)
        row = response.topics[0].partitions[0]
        fenced = ResponsePartitionData(
            partition_index=row.partition_index,
            error_code=ErrorCode.FENCED_LEADER_EPOCH,
            leader_id=-1,
            leader_epoch=-1,
            isr=[],
            partition_epoch=-1,
        )
        response.topics[0].partitions[:] = [fenced]
        return response

    controller.replies = [partly]
    answers = Answers()
    changes.submit(proposal(0), answers)
    changes.submit(proposal(1), answers)
    changes.start()
    assert [answer.error_code for _, answer in answers.first(2)] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]


@pytest.mark.parametrize(("version", "topic_id"), [(3, UUID_ZERO), (2, TOPIC_ID), (0, TOPIC_ID)])
def test_older_controllers_and_topics_without_an_id_are_served(
    changes: IsrChanges, controller: Controller, version: int, topic_id: bytes
) -> None:
    """By name, and without the epochs of the members."""
    controller.version = version
    answers = Answers()
    changes.submit(proposal(topic_id=topic_id), answers)
    changes.start()
    assert answers.first(1)[0][1].isr == (1, 2)


def test_an_answer_that_cannot_be_taken_stops_nothing(changes: IsrChanges) -> None:
    """The next one is given all the same."""

    def flawed(sent: IsrProposal, answer: IsrAnswer) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "out of the blue")

    answers = Answers()
    changes.submit(proposal(0), flawed)
    changes.submit(proposal(1), answers)
    changes.start()
    answers.first(1)


def test_stopping_ends_the_tries(changes: IsrChanges, controller: Controller) -> None:
    """And what is submitted later is not sent."""
    controller.replies = [broken] * 10_000
    answers = Answers()
    changes.submit(proposal(), answers)
    changes.start()
    controller.wait_for_requests(2)
    changes.stop()
    count = len(controller.requests)
    changes.submit(proposal(), answers)
    assert answers.all == []
    assert len(controller.requests) == count
