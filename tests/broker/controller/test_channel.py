"""Channels: in order, again until it works, and never in the way of the controller."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs
from tests.broker.controller.fake_brokers import FakeBroker
from tests.broker.sessions import TIMEOUT_S
from tests.kit.waiting import until

from ottla.broker.controller.messages import channel as channel_module
from ottla.broker.controller.messages.batch import BrokerBatch, ControllerRequest
from ottla.broker.controller.messages.channel import BrokerChannel, Channels
from ottla.client.net.backoff import Backoff
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

Answers = queue.SimpleQueue[tuple[int, ControllerRequest, Any]]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """A broker that answers."""
    broker = FakeBroker()
    yield broker
    broker.close()


def connection(fake: FakeBroker) -> BlockingConnection:
    """Make a connection to it."""
    where = fake.listener
    return BlockingConnection(where.host, where.port, client_id="1", connect_timeout_ms=5000, request_timeout_ms=5000)


def overflow(broker_id: int) -> None:
    """Fail: nothing may be dropped."""
    pytest.fail(f"what waited for {broker_id} was dropped")


def metadata(controller_epoch: int) -> BrokerBatch:
    """Make a batch that is told by its epoch."""
    return BrokerBatch(1, controller_epoch, 1, metadata={})


def test_requests_arrive_and_answers_come_back(fake: FakeBroker) -> None:
    """With the request that they answer."""
    answers: Answers = queue.SimpleQueue()
    channels = Channels(lambda _: connection(fake), lambda *answer: answers.put(answer), overflow)
    channels.open(7)
    channels.send({7: metadata(3), 8: metadata(4)})
    broker_id, request, response = answers.get(timeout=TIMEOUT_S)
    assert broker_id == 7
    assert request.message.controller_epoch == 3
    assert response == UpdateMetadataResponse(error_code=0)
    channels.close(7)
    channels.close(7)
    channels.send({7: metadata(5)})
    channels.close_all()
    assert len(fake.requests) == 1


def test_a_broker_without_an_address_is_not_written_to() -> None:
    """It may get one later."""
    channels = Channels(lambda _: None, lambda *_: None, overflow)
    channels.open(7)
    channels.send({7: metadata(3)})
    channels.close_all()


class Stubborn:
    """A connection whose answers the test decides."""

    def __init__(self) -> None:
        self.attempts: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.outcomes: queue.SimpleQueue[Exception | int] = queue.SimpleQueue()

    def request_encoded(self, api: object, version: int, body: bytes) -> UpdateMetadataResponse:
        """Tell of the attempt, and do what the test says."""
        self.attempts.put(decode(UpdateMetadataRequest, version, body).controller_epoch)
        outcome = self.outcomes.get(timeout=TIMEOUT_S)
        if isinstance(outcome, Exception):
            raise outcome
        return UpdateMetadataResponse(error_code=outcome)

    def close(self) -> None:
        """End a request under way."""
        self.outcomes.put(KafkaError(ErrorCode.NETWORK_EXCEPTION))


def test_what_a_broker_has_not_answered_is_counted() -> None:
    """What waits, and what is under way; batches that were merged are one."""
    stubborn = Stubborn()
    channels = Channels(lambda _: stubborn, lambda *_: None, overflow)  # type: ignore[arg-type, return-value]
    channels.open(1)
    assert channels.queue_size == 0
    channels.send({1: metadata(1)})
    assert stubborn.attempts.get(timeout=TIMEOUT_S) == 1
    for epoch in (2, 3):
        channels.send({1: metadata(epoch)})
    assert channels.queue_size == 2
    for _ in range(2):
        stubborn.outcomes.put(0)
    until(lambda: channels.queue_size == 0)
    channels.close_all()


class Recorded(Backoff):
    """Waits that are noted, and not waited."""

    waits: ClassVar[list[float]] = []

    def next(self) -> float:
        """Note a wait."""
        self.waits.append(super().next())
        return 0.0


def test_a_request_that_fails_again_and_again_is_sent_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a limit, with one line in the log; after an answer it begins anew."""
    monkeypatch.setattr(channel_module, "Backoff", Recorded)
    Recorded.waits.clear()
    stubborn = Stubborn()
    channel = BrokerChannel(1, stubborn, lambda *_: None, overflow)  # type: ignore[arg-type]
    with capture_logs() as lines:
        for epoch, failures in ((1, 9), (2, 1)):
            channel.send(metadata(epoch))
            for _ in range(failures):
                assert stubborn.attempts.get(timeout=TIMEOUT_S) == epoch
                stubborn.outcomes.put(KafkaError(ErrorCode.NETWORK_EXCEPTION))
            assert stubborn.attempts.get(timeout=TIMEOUT_S) == epoch
            stubborn.outcomes.put(0)
        channel.close()
        channel._thread.join(TIMEOUT_S)
    assert [round(wait, 1) for wait in Recorded.waits] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0, 0.1], rel=0.3
    )
    assert [line["event"] for line in lines] == ["controller_request_failed"] * 2


def test_the_head_is_sent_again_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing overtakes it; what waits behind it is merged; an error in the answer is an answer."""
    monkeypatch.setattr(channel_module, "Backoff", Recorded)
    stubborn = Stubborn()
    answers: Answers = queue.SimpleQueue()
    channel = BrokerChannel(1, stubborn, lambda *answer: answers.put(answer), overflow)  # type: ignore[arg-type]
    channel.send(metadata(1))
    assert stubborn.attempts.get(timeout=TIMEOUT_S) == 1
    channel.send(metadata(2))
    channel.send(metadata(3))
    stubborn.outcomes.put(KafkaError(ErrorCode.NETWORK_EXCEPTION))
    assert stubborn.attempts.get(timeout=TIMEOUT_S) == 1
    stubborn.outcomes.put(ErrorCode.STALE_BROKER_EPOCH)
    assert stubborn.attempts.get(timeout=TIMEOUT_S) == 2
    stubborn.outcomes.put(0)
    assert [answers.get(timeout=TIMEOUT_S)[2].error_code for _ in range(2)] == [ErrorCode.STALE_BROKER_EPOCH, 0]
    channel.close()
    assert stubborn.attempts.empty()


def test_closing_ends_a_request_under_way() -> None:
    """A broker that is gone is not waited for."""
    stubborn = Stubborn()
    channel = BrokerChannel(1, stubborn, lambda *_: pytest.fail("answered"), overflow)  # type: ignore[arg-type]
    channel.send(metadata(1))
    stubborn.attempts.get(timeout=TIMEOUT_S)
    channel.close()
    channel._thread.join(TIMEOUT_S)
    assert not channel._thread.is_alive()


def test_a_queue_that_grows_without_end_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller is told, and tells the broker everything anew."""
    monkeypatch.setattr(channel_module, "BATCHES_MAX", 2)
    stubborn = Stubborn()
    told = threading.Event()
    channel = BrokerChannel(5, stubborn, lambda *_: None, lambda broker: told.set() if broker == 5 else None)  # type: ignore[arg-type]
    channel.send(metadata(1))
    stubborn.attempts.get(timeout=TIMEOUT_S)
    for topic_id in (b"1" * 16, b"2" * 16, b"3" * 16):
        assert not told.is_set()
        stop = {TopicPartition("a", 0): StopReplicaPartitionState(partition_index=0, delete_partition=True)}
        channel.send(BrokerBatch(1, 1, 1, stop=stop, topic_ids={"a": topic_id}))
    assert told.is_set()
    channel.close()
