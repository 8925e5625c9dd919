"""Batches for brokers: what is sent in which order, and what may be merged."""

from __future__ import annotations

from typing import Any

from ottla.broker.controller.messages.batch import BrokerBatch
from ottla.protocol.api import Api
from ottla.protocol.codec import decode_from, encode_parts
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID, OTHER_ID = b"1" * 16, b"2" * 16


def leads(partition: TopicPartition, leader_epoch: int = 0, *, is_new: bool = False) -> BrokerBatch:
    """Make a batch that tells leadership and metadata of a partition."""
    common: dict[str, Any] = {
        "partition_index": partition.partition,
        "controller_epoch": 1,
        "leader": 1,
        "leader_epoch": leader_epoch,
        "isr": [1],
        "replicas": [1],
    }
    return BrokerBatch(
        1,
        1,
        100,
        leader_and_isr={partition: LeaderAndIsrPartitionState(partition_epoch=0, is_new=is_new, **common)},
        live_leaders={1: LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=1)},
        metadata={partition: UpdateMetadataPartitionState(zk_version=0, **common)},
        live_brokers=[UpdateMetadataBroker(id=leader_epoch, rack=None)],
        topic_ids={partition.topic: ID},
    )


def stops(partition: TopicPartition, *, delete: bool) -> BrokerBatch:
    """Make a batch that stops a replica."""
    state = StopReplicaPartitionState(partition_index=partition.partition, delete_partition=delete)
    return BrokerBatch(1, 1, 100, stop={partition: state}, topic_ids={partition.topic: ID})


def test_leadership_comes_before_metadata_before_stopping() -> None:
    """Each request names controller and broker with their epochs, and can be sent."""
    batch = leads(A0)
    assert batch.absorb(leads(A1))
    assert batch.absorb(stops(B0, delete=True))
    requests = list(batch.requests())
    assert [request.api for request in requests] == [Api.LEADER_AND_ISR, Api.UPDATE_METADATA, Api.STOP_REPLICA]
    for request in requests:
        data = b"".join(encode_parts(request.message, request.version))
        assert decode_from(request.api.request, request.version, data)[0] == request.message
        message = request.message
        assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (1, 1, 100)
    leadership, metadata, stopping = (request.message for request in requests)
    assert isinstance(leadership, LeaderAndIsrRequest)
    assert [(topic.topic_id, len(topic.partition_states)) for topic in leadership.topic_states] == [(ID, 2)]
    assert isinstance(metadata, UpdateMetadataRequest)
    assert [(topic.topic_id, len(topic.partition_states)) for topic in metadata.topic_states] == [(ID, 2)]
    assert isinstance(stopping, StopReplicaRequest)
    assert [topic.topic_name for topic in stopping.topic_states] == ["b"]


def test_brokers_hear_of_each_other_before_they_follow_each_other() -> None:
    """Also where that came with an earlier event; Kafka's brokers follow nobody whom they do not know."""
    batch = BrokerBatch(1, 1, 100, metadata={}, are_brokers_news=True)
    assert [request.api for request in batch.requests()] == [Api.UPDATE_METADATA]
    assert batch.absorb(leads(A0))
    requests = list(batch.requests())
    assert [request.api for request in requests] == [Api.UPDATE_METADATA, Api.LEADER_AND_ISR, Api.UPDATE_METADATA]
    first, last = requests[0].message, requests[2].message
    assert isinstance(first, UpdateMetadataRequest)
    assert isinstance(last, UpdateMetadataRequest)
    assert first.live_brokers == last.live_brokers == batch.live_brokers
    assert not first.topic_states
    assert last.topic_states


def test_a_broker_that_joins_hears_of_all_topics_before_it_leads_any() -> None:
    """Otherwise it would tell clients, for as long as its logs take to open, that their topics do not exist."""
    batch = leads(A0)
    batch.are_brokers_news = True
    batch.joined_metadata = batch.metadata
    assert batch.absorb(leads(A1))
    requests = list(batch.requests())

    assert [request.api for request in requests] == [Api.UPDATE_METADATA, Api.LEADER_AND_ISR, Api.UPDATE_METADATA]
    first, last = requests[0].message, requests[2].message
    assert [told(first), told(last)] == [{A0: 0}, {A1: 0}]
    assert isinstance(first, UpdateMetadataRequest)
    assert first.live_brokers == batch.live_brokers


def test_a_broker_that_joins_tells_clients_of_new_leaders_after_these_lead() -> None:
    """It hears first of what was when it joined, then of what the same event has changed, and of nothing twice."""
    batch = leads(A0)
    batch.joined_metadata = {**(leads(A0).metadata or {}), **(leads(A1).metadata or {})}
    assert [request.api for request in batch.requests()] == [Api.UPDATE_METADATA, Api.LEADER_AND_ISR]

    assert batch.absorb(leads(A0, leader_epoch=1))
    first, leadership, last = batch.requests()
    assert leadership.api is Api.LEADER_AND_ISR
    assert [told(first.message), told(last.message)] == [{A0: 0, A1: 0}, {A0: 1}]


def test_what_a_broker_was_to_hear_before_it_joined_does_not_come_after_it() -> None:
    """The metadata of all partitions is newer."""
    batch = leads(A0)
    later = BrokerBatch(1, 1, 100, joined_metadata=leads(A0, leader_epoch=1).metadata)
    assert batch.absorb(later)
    assert [told(request.message) for request in batch.requests() if request.api is Api.UPDATE_METADATA] == [{A0: 1}]


def told(message: object) -> dict[TopicPartition, int]:
    """Return the leader epochs in a request."""
    assert isinstance(message, UpdateMetadataRequest)
    return {
        TopicPartition(topic.topic_name, state.partition_index): state.leader_epoch
        for topic in message.topic_states
        for state in topic.partition_states
    }


def test_an_empty_batch_asks_for_nothing_and_no_metadata_is_not_empty_metadata() -> None:
    """Metadata without partitions tells who is alive."""
    assert list(BrokerBatch(1, 1, 1).requests()) == []
    assert [request.api for request in BrokerBatch(1, 1, 1, metadata={}).requests()] == [Api.UPDATE_METADATA]


def test_the_later_word_on_a_partition_counts() -> None:
    """But a partition that the broker has not heard of stays new, and a deletion stays one."""
    batch = leads(A0, 0, is_new=True)
    assert batch.absorb(leads(A0, 1))
    assert batch.leader_and_isr[A0].leader_epoch == 1
    assert batch.leader_and_isr[A0].is_new
    assert [broker.id for broker in batch.live_brokers] == [1]
    assert batch.absorb(BrokerBatch(1, 1, 100))
    assert [broker.id for broker in batch.live_brokers] == [1]

    stopping = stops(A0, delete=True)
    assert stopping.absorb(stops(A0, delete=False))
    assert stopping.stop[A0].delete_partition


def test_a_replica_is_stopped_before_it_is_started_again() -> None:
    """In one batch it would be the other way round."""
    batch = stops(A0, delete=True)
    assert not batch.absorb(leads(A0))
    assert not batch.leader_and_isr
    assert batch.absorb(leads(A1))


def test_a_topic_made_again_is_not_merged_with_its_predecessor() -> None:
    """They have one name and two ids."""
    later = leads(A1)
    later.topic_ids = {"a": OTHER_ID}
    batch = leads(A0)
    assert not batch.absorb(later)
    assert list(batch.leader_and_isr) == [A0]
