"""A broker of Apache Kafka 3.9 in one cluster with two of ours, with either of them as the controller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import ClientError, Sent
from tests.interop.mixed_cluster import KAFKA, OURS, MixedCluster, Traffic, check_replicas
from tests.kit.broker_process import topic_name
from tests.kit.java_tools import RunTool
from tests.kit.kafka_process import kafka_or_skip
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

# One led by Kafka, two by us.
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
# The first gets a leader of Kafka's, the others get ours; each kind gives a replica away and gets one.
BEFORE_THE_MOVE, AFTER_THE_MOVE = ((1, 2), (3, 1), (3, 2)), ((3, 1), (2, 3), (1, 2))
# Where sessions must not end, and where they should end soon.
LONG_SESSION_S, SHORT_SESSION_S = 60, 6
TOPIC_RESOURCE = 2
SET = 0

TOPICS = "org.apache.kafka.tools.TopicCommand"

either_controller = pytest.mark.parametrize("controller", [OURS, KAFKA], ids=["ours-controls", "kafka-controls"])
# For what takes half a minute: `make test` has our controller, with Kafka's broker below it.
mostly_our_controller = pytest.mark.parametrize(
    "controller", [OURS, pytest.param(KAFKA, marks=pytest.mark.long)], ids=["ours-controls", "kafka-controls"]
)


class MakeCluster(Protocol):
    """Starts a cluster with the wanted controller."""

    def __call__(self, controller: int, session_timeout_s: int = LONG_SESSION_S) -> MixedCluster:
        """Start it, and wait until all know each other."""
        ...


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Start a cluster that ends with the test."""
    kafka_or_skip()
    made: list[MixedCluster] = []

    def make(controller: int, session_timeout_s: int = LONG_SESSION_S) -> MixedCluster:
        cluster = MixedCluster(tmp_path, session_timeout_s)
        made.append(cluster)
        cluster.start_with_controller(controller)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@either_controller
def test_partitions_replicate_and_move_both_ways(controller: int, make_cluster: MakeCluster) -> None:
    """Records, the ISR and its changes, where logs start; and all have the same bytes in the end."""
    cluster, topic = make_cluster(controller), topic_name()
    cluster.create_topic(topic, REPLICAS)
    traffic = Traffic(cluster, topic, REPLICAS)
    traffic.send()

    registration = cluster.state.broker_epoch(2)
    cluster.pause(2)
    traffic.begin()
    for partition in (0, 2):
        cluster.wait_for_partition(topic, partition, lambda state: state.isr == {OURS, KAFKA})
    cluster.resume(2)
    traffic.finish()
    cluster.wait_for_full_isr(topic, REPLICAS)
    assert cluster.state.broker_epoch(2) == registration

    traffic.check_readable()
    traffic.delete_first(100)
    moved = move_between_the_two(cluster)
    check_replicas(cluster, (traffic, REPLICAS), (moved, AFTER_THE_MOVE))


@either_controller
def test_topics_and_options_are_the_same_for_all(controller: int, make_cluster: MakeCluster, run_tool: RunTool) -> None:
    """Whoever makes, changes and deletes a topic, and whomever a client asks."""
    cluster, topic = make_cluster(controller), topic_name()
    cluster.create_topic(topic, REPLICAS)
    for changer, name, value in ((KAFKA, "retention.ms", "1234567"), (OURS, "max.message.bytes", "1000")):
        set_option(cluster, changer, topic, name, value)
        for broker in cluster.brokers:
            until(partial(has_option, cluster, broker, topic, name, value), f"{broker} knows {name}")
    for partition in range(len(REPLICAS)):
        Confluent().produce(cluster.bootstrap, topic, [Sent(bytes(100))], partition=partition)
        with pytest.raises(ClientError) as refused:
            Confluent().produce(cluster.bootstrap, topic, [Sent(bytes(2000))], partition=partition)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE

    for asked in (OURS, KAFKA):
        at = ("--bootstrap-server", cluster.brokers[asked].bootstrap)
        described = run_tool(TOPICS, *at, "--describe", "--topic", topic)
        assert re.search(rf"Topic: {topic}\s+TopicId: \S+\s+PartitionCount: 3\s+ReplicationFactor: 3", described)
        found = re.findall(r"Leader: (\d)\s+Replicas: (\S+)\s+Isr: (\S+)", described)
        assert [(leader, replicas) for leader, replicas, _ in found] == [("1", "1,2,3"), ("2", "2,3,1"), ("3", "3,1,2")]
        assert all(set(isr.split(",")) == {"1", "2", "3"} for _, _, isr in found)

    cluster.delete_topic(topic)
    for partition in range(len(REPLICAS)):
        cluster.wait_for_folders(topic, partition, ())
    cluster.create_topic(topic, REPLICAS)
    Traffic(cluster, topic, REPLICAS).send()


@mostly_our_controller
def test_no_broker_takes_anything_with_it(controller: int, make_cluster: MakeCluster) -> None:
    """A broker that stops hands over to the other kind first; one that is killed is replaced; both come back."""
    cluster, topic = make_cluster(controller, SHORT_SESSION_S), topic_name()
    cluster.create_topic(topic, REPLICAS)
    traffic = Traffic(cluster, topic, REPLICAS)
    other = KAFKA if controller == OURS else OURS
    traffic.begin()
    # It can hand over to nobody if the others lag behind, and stops all the same.
    cluster.wait_for_full_isr(topic, REPLICAS)
    cluster.brokers[other].stop()
    left = [state for state in cluster.states(topic, REPLICAS) if state.leader == other or other in state.isr]
    assert left == [], "what the broker has not handed over"
    traffic.finish()
    come_back(cluster, traffic, topic, other)

    for broker in (other, controller):
        traffic.begin()
        cluster.brokers[broker].kill()
        traffic.finish()
        assert all(state.leader != broker for state in cluster.states(topic, REPLICAS))
        traffic.check_readable()
        come_back(cluster, traffic, topic, broker)
    check_replicas(cluster, (traffic, REPLICAS))


def move_between_the_two(cluster: MixedCluster) -> Traffic:
    """Have leaders of the other kind: a producer goes on with its sequence there, and what moved leaves nothing."""
    topic = topic_name()
    cluster.create_topic(topic, BEFORE_THE_MOVE)
    traffic = Traffic(cluster, topic, BEFORE_THE_MOVE)
    traffic.send()
    cluster.reassign(topic, AFTER_THE_MOVE)
    cluster.elect_preferred(topic, AFTER_THE_MOVE)
    traffic.send()
    traffic.check_readable()
    return traffic


def come_back(cluster: MixedCluster, traffic: Traffic, topic: str, broker: int) -> None:
    """Start a broker again and have it lead what it led."""
    traffic.send()
    cluster.start_brokers(broker)
    cluster.wait_for_full_isr(topic, REPLICAS)
    cluster.elect_preferred(topic, REPLICAS)
    traffic.send()


def set_option(cluster: MixedCluster, broker: int, topic: str, name: str, value: str) -> None:
    """Have one broker change an option of a topic."""
    change = AlterableConfig(name=name, config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer: Any = cluster.request(broker, Api.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


def has_option(cluster: MixedCluster, broker: int, topic: str, name: str, value: str) -> bool:
    """Ask one broker for an option of a topic."""
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name])
    answer: Any = cluster.request(broker, Api.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]))
    found: str | None = answer.results[0].configs[0].value
    return found == value
