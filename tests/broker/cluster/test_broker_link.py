"""The way to the controller, and the shutdown that goes over it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.broker.replication.peer import Peer, peer

from ottla.broker.app.controlled_shutdown import shut_down_controlled
from ottla.broker.cluster.broker_link import BrokerLink, address_of_controller
from ottla.broker.cluster.metadata import BrokerEndpoint, LiveBroker, MetadataSnapshot
from ottla.broker.config import BrokerConfig
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

TIMEOUT_S = 30
REQUEST = ControlledShutdownRequest(broker_id=1, broker_epoch=7)
VERSIONS = {Api.CONTROLLED_SHUTDOWN: Versions(0, 3)}
ORDERS = RemainingPartition(topic_name="orders", partition_index=3)


def snapshot(controller_id: int, **ports: Peer) -> MetadataSnapshot:
    """Metadata with brokers `b1`, `b2` at their peers."""
    brokers = {
        int(name[1:]): LiveBroker(int(name[1:]), None, {"PLAINTEXT": BrokerEndpoint(*port.endpoint, 0)})
        for name, port in ports.items()
    }
    return MetadataSnapshot(controller_id=controller_id, brokers=brokers)


class Cluster:
    """Brokers that answer shutdowns as the test says, and what this broker knows of them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.asked: list[tuple[int, int, Any]] = []
        self.replies: list[ControlledShutdownResponse | None] = []
        self.known = MetadataSnapshot()
        config = BrokerConfig.of({"log.dirs": "unused"})
        self.link = BrokerLink(address_of_controller(lambda: self.known, lambda: config), lambda: config, "broker-1")
        stack.callback(self.link.close)

    def broker(self, broker_id: int, newest: int = 3) -> Peer:
        """Run a broker."""

        def answer(api: Api, version: int, request: Any) -> Message | None:
            self.asked.append((broker_id, version, request))
            return self.replies.pop(0) if self.replies else remaining()

        return self._stack.enter_context(peer(answer, {Api.CONTROLLED_SHUTDOWN: Versions(0, newest)}))

    def ask(self) -> Any:
        """Send a request to the controller."""
        return self.link.request(Api.CONTROLLED_SHUTDOWN, lambda version: REQUEST)


def remaining(*partitions: RemainingPartition, error: ErrorCode = ErrorCode.NONE) -> ControlledShutdownResponse:
    """Answer a shutdown."""
    return ControlledShutdownResponse(error_code=error, remaining_partitions=list(partitions))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster without brokers."""
    with ExitStack() as stack:
        yield Cluster(stack)


def test_requests_go_to_whoever_is_controller(cluster: Cluster) -> None:
    """On one connection, until another broker is."""
    one, two = cluster.broker(1), cluster.broker(2)
    cluster.known = snapshot(1, b1=one, b2=two)
    cluster.ask()
    cluster.ask()
    cluster.known = snapshot(2, b1=one, b2=two)
    cluster.ask()
    assert [broker for broker, _, _ in cluster.asked] == [1, 1, 2]
    assert (one.connected, two.connected) == (1, 1)


def test_the_newest_common_version_is_spoken(cluster: Cluster) -> None:
    """As the controller says what it knows."""
    cluster.known = snapshot(1, b1=cluster.broker(1, newest=2))
    cluster.ask()
    assert [version for _, version, _ in cluster.asked] == [2]


def test_without_a_controller_there_is_an_error(cluster: Cluster) -> None:
    """It is typed, and later requests work."""
    with pytest.raises(KafkaError) as caught:
        cluster.ask()
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    cluster.known = snapshot(1, b1=cluster.broker(1))
    assert cluster.ask() == remaining()


def test_a_broken_connection_is_made_anew(cluster: Cluster) -> None:
    """With the next request."""
    cluster.known = snapshot(1, b1=cluster.broker(1))
    cluster.replies = [None]
    with pytest.raises(KafkaError):
        cluster.ask()
    assert cluster.ask() == remaining()


def test_a_closed_link_sends_nothing(cluster: Cluster) -> None:
    """Before its first request or after."""
    cluster.known = snapshot(1, b1=cluster.broker(1))
    cluster.link.close()
    with pytest.raises(KafkaError):
        cluster.ask()
    assert cluster.asked == []


# Controlled shutdown


def test_a_shutdown_is_done_when_nothing_remains(cluster: Cluster) -> None:
    """One request is enough then."""
    cluster.known = snapshot(2, b2=cluster.broker(2))
    assert shut_down_controlled(cluster.link, 1, 7, retries=3, backoff_ms=60_000) == []
    assert [(request.broker_id, request.broker_epoch) for _, _, request in cluster.asked] == [(1, 7)]


def test_a_shutdown_is_tried_again_while_partitions_remain(cluster: Cluster) -> None:
    """And after errors, of the controller and on the way."""
    cluster.known = snapshot(2, b2=cluster.broker(2))
    cluster.replies = [remaining(ORDERS), None, remaining(error=ErrorCode.NOT_CONTROLLER)]
    assert shut_down_controlled(cluster.link, 1, 7, retries=4, backoff_ms=1) == []
    assert len(cluster.asked) == 4


def test_a_shutdown_ends_after_its_tries_with_what_remains(cluster: Cluster) -> None:
    """The broker goes down all the same."""
    cluster.known = snapshot(2, b2=cluster.broker(2))
    cluster.replies = [remaining(ORDERS)] * 9
    assert shut_down_controlled(cluster.link, 1, 7, retries=2, backoff_ms=1) == [TopicPartition("orders", 3)]
    assert len(cluster.asked) == 2


def test_a_shutdown_without_a_controller_is_told_apart(cluster: Cluster) -> None:
    """From one after which nothing remains."""
    assert shut_down_controlled(cluster.link, 1, 7, retries=2, backoff_ms=1) is None


def test_a_hurry_ends_the_tries(cluster: Cluster) -> None:
    """Instead of the next pause."""
    hurry = threading.Event()
    hurry.set()
    assert shut_down_controlled(cluster.link, 1, 7, retries=3, backoff_ms=60_000, hurry=hurry) is None
