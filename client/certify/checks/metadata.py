"""What Metadata and its relatives say about brokers and topics."""

from __future__ import annotations

from typing import Any, Final

from ottla.client.certify.check import Checks, expect, expect_error, expect_that
from ottla.client.certify.trial import Trial
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import UUID_ZERO

CHECKS: Final = Checks("metadata", "Brokers, topics and leaders")

_UNKNOWN_ID: Final = b"ottla-certify-id"


async def _topics(trial: Trial, *names: str, **options: Any) -> Any:
    rows = [MetadataRequestTopic(name=name) for name in names]
    return await trial.ask(Api.METADATA, MetadataRequest(topics=rows, allow_auto_topic_creation=False), **options)


@CHECKS.check({Api.METADATA: 5})
async def topic(trial: Trial) -> None:
    """A topic is described with all its partitions; leaders are live brokers, and are in sync."""
    made = await trial.topic(partitions=3)
    response = await _topics(trial, made.name)
    (row,) = response.topics
    expect_error("the topic", row.error_code, ErrorCode.NONE)
    expect("the partitions", sorted(each.partition_index for each in row.partitions), [0, 1, 2])
    live = {broker.node_id for broker in response.brokers}
    for each in row.partitions:
        expect_that(each.leader_id in live, "a leader among the live brokers", f"leader {each.leader_id}")
        expect_that(each.leader_id in each.isr_nodes, "the leader in the ISR", f"ISR {each.isr_nodes}")
        expect_that(set(each.isr_nodes) <= set(each.replica_nodes), "an ISR of replicas", f"ISR {each.isr_nodes}")
        expect("replicas of a topic with one replica", len(each.replica_nodes), 1)


@CHECKS.check({Api.METADATA: 4})
async def unknown_topic(trial: Trial) -> None:
    """An unknown topic is UNKNOWN_TOPIC_OR_PARTITION, and is not created if the request forbids that."""
    name = trial.name("unknown")
    trial.will_delete(name)
    for _ in range(2):
        (row,) = (await _topics(trial, name)).topics
        expect_error("an unknown topic", row.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@CHECKS.check({Api.METADATA: 4})
async def invalid_name(trial: Trial) -> None:
    """A name that no topic can have is INVALID_TOPIC_EXCEPTION."""
    (row,) = (await _topics(trial, "no/topic")).topics
    expect_error("the topic no/topic", row.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)


@CHECKS.check({Api.METADATA: 1})
async def all_and_none(trial: Trial) -> None:
    """From version 1 on, an empty list asks for no topic, and null for all topics."""
    made = await trial.topic()
    none = await trial.ask(Api.METADATA, MetadataRequest(topics=[]))
    expect("topics in the answer to an empty list", len(none.topics), 0)
    everything = await trial.ask(Api.METADATA, MetadataRequest(topics=None))
    names = {row.name for row in everything.topics}
    expect_that(made.name in names, "the new topic among all topics", f"{len(names)} other topics")


@CHECKS.check({Api.METADATA: 12})
async def topic_ids(trial: Trial) -> None:
    """A topic has an id, by which it can be asked for; an unknown id is UNKNOWN_TOPIC_ID."""
    made = await trial.topic()
    expect_that(made.topic_id != UUID_ZERO, "an id of the new topic", "no id")
    rows = [MetadataRequestTopic(name=None, topic_id=each) for each in (made.topic_id, _UNKNOWN_ID)]
    response = await trial.ask(Api.METADATA, MetadataRequest(topics=rows, allow_auto_topic_creation=False), version=12)
    found = {row.topic_id: row for row in response.topics}
    expect("the ids in the answer", set(found), {made.topic_id, _UNKNOWN_ID})
    expect("the name of the topic", found[made.topic_id].name, made.name)
    expect_error("an unknown id", found[_UNKNOWN_ID].error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@CHECKS.check({Api.METADATA: 2}, brokers=2)
async def one_cluster(trial: Trial) -> None:
    """All brokers name the same cluster id and the same brokers."""
    answers = [await trial.ask(Api.METADATA, MetadataRequest(topics=[]), node=node) for node in trial.brokers]
    expect("different cluster ids", len({answer.cluster_id for answer in answers}), 1)
    expect("different lists of brokers", len({_addresses(answer.brokers, "node_id") for answer in answers}), 1)


@CHECKS.check({Api.METADATA: 2, Api.DESCRIBE_CLUSTER: 0})
async def describe_cluster(trial: Trial) -> None:
    """DescribeCluster names the cluster id and the brokers that Metadata names."""
    metadata = await trial.ask(Api.METADATA, MetadataRequest(topics=[]))
    cluster = await trial.ask(Api.DESCRIBE_CLUSTER, DescribeClusterRequest(include_cluster_authorized_operations=False))
    expect("the cluster id", cluster.cluster_id, metadata.cluster_id)
    expect("the brokers", _addresses(cluster.brokers, "broker_id"), _addresses(metadata.brokers, "node_id"))


@CHECKS.check({Api.DESCRIBE_TOPIC_PARTITIONS: 0})
async def describe_topic_partitions(trial: Trial) -> None:
    """DescribeTopicPartitions names the partitions and leaders that Metadata names."""
    made = await trial.topic(partitions=3)
    (row,) = (await _topics(trial, made.name)).topics
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=made.name)])
    (described,) = (await trial.ask(Api.DESCRIBE_TOPIC_PARTITIONS, request)).topics
    expect_error("the topic", described.error_code, ErrorCode.NONE)

    def leaders(topic: Any) -> dict[int, int]:
        return {each.partition_index: each.leader_id for each in topic.partitions}

    expect("the leaders", leaders(described), leaders(row))


def _addresses(rows: Any, id_field: str) -> frozenset[tuple[int, str, int]]:
    return frozenset((getattr(row, id_field), row.host, row.port) for row in rows)
