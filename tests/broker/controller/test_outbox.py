"""The messages of an event: what all brokers are told is held and encoded once, whatever their number."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ottla.broker.cluster.znodes import BrokerNode
from ottla.broker.controller.context import ControllerContext, RegisteredBroker, ReplicaAssignment
from ottla.broker.controller.messages import shared_metadata
from ottla.broker.controller.messages.batch import BrokerBatch
from ottla.broker.controller.messages.outbox import Outbox
from ottla.broker.controller.partition_states import LeaderAndIsr
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
BROKERS = (1, 2, 3)
EPOCHS = {1: 10, 2: 1 << 40, 3: 30}


@pytest.fixture
def context() -> ControllerContext:
    """Three live brokers, and a topic of two partitions on the first two of them."""
    context = ControllerContext(1, 7)
    for broker in BROKERS:
        node = BrokerNode(host="h", port=9, endpoints=["PLAINTEXT://h:9"])
        context.brokers[broker] = RegisteredBroker(broker, EPOCHS[broker], node)
    context.topic_ids["a"] = b"a" * 16
    context.assignments["a"] = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))}
    context.leadership = {A0: state(1), A1: state(2)}
    return context


@pytest.fixture
def outbox(context: ControllerContext) -> Outbox:
    """The messages of an event."""
    return Outbox(context, "PLAINTEXT")


def state(leader: int, epoch: int = 0) -> LeaderAndIsr:
    """Make the state of a partition."""
    return LeaderAndIsr(leader, epoch, (1, 2), 7, 0)


def lead(context: ControllerContext, outbox: Outbox, partition: TopicPartition, new: LeaderAndIsr) -> None:
    """Give a partition to a leader, as an election does."""
    context.leadership[partition] = new
    outbox.add_leader_and_isr((1, 2), partition, new)


def epochs_told(batch: BrokerBatch) -> list[dict[TopicPartition, int]]:
    """Return the leader epochs by partition, of each UpdateMetadata, as a broker decodes it."""
    told = []
    for request in batch.requests():
        if request.api is Api.UPDATE_METADATA:
            assert request.body is not None
            message = decode(UpdateMetadataRequest, request.version, request.body)
            assert message == request.message
            assert message.broker_epoch == batch.broker_epoch
            assert [topic.topic_id for topic in message.topic_states] == [b"a" * 16] * len(message.topic_states)
            told.append(
                {
                    TopicPartition(topic.topic_name, each.partition_index): each.leader_epoch
                    for topic in message.topic_states
                    for each in topic.partition_states
                }
            )
    return told


def test_metadata_is_encoded_once_for_all_brokers(
    context: ControllerContext, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own epoch in it. Only replicas are told of roles."""
    encoded: list[Message] = []

    def counted(message: Message, version: int) -> bytes:
        encoded.append(message)
        return encode(message, version)

    monkeypatch.setattr(shared_metadata, "encode", counted)
    for partition in (A0, A1):
        lead(context, outbox, partition, state(1, epoch=4))
    batches = outbox.take()

    assert {broker: batch.broker_epoch for broker, batch in batches.items()} == EPOCHS
    assert [epochs_told(batches[broker]) for broker in BROKERS] == [[{A0: 4, A1: 4}]] * 3
    assert len(encoded) == 1
    assert len({id(batch.metadata) for batch in batches.values()}) == 1
    assert [len(batches[broker].leader_and_isr) for broker in BROKERS] == [2, 2, 0]
    assert outbox.take() == {}


def test_brokers_that_join_are_told_everything_and_then_what_has_changed(
    context: ControllerContext, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also these two are encoded once, in whatever order the brokers are served."""
    encoded: list[Message] = []

    def counted(message: Message, version: int) -> bytes:
        encoded.append(message)
        return encode(message, version)

    monkeypatch.setattr(shared_metadata, "encode", counted)
    outbox.add_joined(BROKERS)
    lead(context, outbox, A1, state(1, epoch=4))
    batches = outbox.take()
    assert [epochs_told(batches[broker]) for broker in BROKERS] == [[{A0: 0, A1: 0}, {A1: 4}]] * 3
    assert len(encoded) == 2


@pytest.mark.parametrize("order", [("all", "own"), ("own", "all")])
def test_what_one_broker_is_told_by_itself_gives_way_to_what_is_newer(
    context: ControllerContext, outbox: Outbox, order: Collection[str]
) -> None:
    """Whichever comes last in the event; others do not hear of it."""
    for epoch, kind in enumerate(order, start=1):
        context.leadership[A0] = state(1, epoch)
        outbox.add_metadata([A0], [3] if kind == "own" else None)
    batches = outbox.take()
    newest_for_all = 1 if order == ("all", "own") else 2
    assert epochs_told(batches[1]) == epochs_told(batches[2]) == [{A0: newest_for_all}]
    assert epochs_told(batches[3]) == [{A0: 2}]


def test_a_batch_that_takes_in_another_leaves_alone_what_others_share(
    context: ControllerContext, outbox: Outbox
) -> None:
    """A slow broker's batch grows, and the others send what they have."""
    lead(context, outbox, A0, state(1, epoch=1))
    first = outbox.take()
    for epoch in (2, 3):
        lead(context, outbox, A1, state(1, epoch=epoch))
        later = outbox.take()
        assert first[1].absorb(later[1])
        assert epochs_told(later[2]) == [{A1: epoch}]
    assert epochs_told(first[1]) == [{A0: 1, A1: 3}]
    assert epochs_told(first[2]) == [{A0: 1}]
