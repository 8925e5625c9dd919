"""Three real brokers, and what tests of reassignment ask of them: moving partitions, producing, reading, looking."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster.configs import ConfigOperation
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

PATIENCE_S = 60.0
_OPTIONS = (
    "zookeeper.session.timeout.ms=3000",
    "zookeeper.connection.timeout.ms=60000",
    "replica.lag.time.max.ms=5000",
    "default.replication.factor=1",
)


class Cluster:
    """Brokers 1, 2 and 3; the first one is the controller."""

    def __init__(self, brokers: Sequence[BrokerProcess]) -> None:
        self.brokers = {broker.broker_id: broker for broker in brokers}

    @property
    def bootstrap(self) -> str:
        """Addresses of all that live."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def ask(self, api: Api, version: int, body: Message) -> Any:
        """Ask the controller; again where another broker became it meanwhile."""

        def answer() -> Any:
            response = self._ask(self._controller(), api, version, body)
            return None if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER else response

        return until(answer, f"the controller answers {api.label}", not_yet=KafkaError)

    def metadata(self, topic: str) -> tuple[int, list[int], list[int]]:
        """Return leader, replicas and ISR of the one partition of a topic."""
        body = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        found = self._ask(next(iter(self.brokers)), Api.METADATA, 9, body).topics[0].partitions
        return (found[0].leader_id, found[0].replica_nodes, sorted(found[0].isr_nodes)) if found else (-1, [], [])

    def create_topic(self, topic: str, replicas: list[int]) -> None:
        """Create a topic with one partition, and wait for its leader."""
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        wanted = CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
        )
        until(lambda: self._known_brokers() == set(self.brokers), "all brokers know each other")
        created = self.ask(Api.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[wanted])).topics[0]
        assert created.error_code == 0, created
        until(lambda: self.metadata(topic)[0] == replicas[0], f"{topic} has a leader")

    def alter(self, topic: str, target: list[int]) -> None:
        """Begin to move the one partition of a topic."""
        partition = ReassignablePartition(partition_index=0, replicas=target)
        body = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[partition])])
        response = self.ask(Api.ALTER_PARTITION_REASSIGNMENTS, 0, body)
        assert response.responses[0].partitions[0].error_code == 0, response

    def moving(self) -> list[str]:
        """Return the topics that are on their way."""
        response = self.ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest())
        return [topic.name for topic in response.topics]

    def set_option(self, kind: ConfigResourceType, name: str, **options: str) -> None:
        """Set options, which are written with underscores."""
        configs = [
            AlterableConfig(name=option.replace("_", "."), config_operation=ConfigOperation.SET, value=value)
            for option, value in options.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        body = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (result,) = self.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, body).responses
        assert result.error_code == 0, result

    def _controller(self) -> int:
        found: int = self._ask(next(iter(self.brokers)), Api.METADATA, 9, MetadataRequest(topics=[])).controller_id
        return found

    def _known_brokers(self) -> set[int]:
        known = [
            {node.node_id for node in self._ask(broker, Api.METADATA, 9, MetadataRequest(topics=[])).brokers}
            for broker in self.brokers
        ]
        return set.intersection(*known)

    def _ask(self, broker: int, api: Api, version: int, body: Message) -> Any:
        found = self.brokers.get(broker)
        if found is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(broker))
        made = BlockingConnection(
            found.host, found.port, client_id="test", connect_timeout_ms=30_000, request_timeout_ms=30_000
        )
        with closing(made) as connection:
            return connection.request(api, version, body)


class Load:
    """A producer that goes on until it is stopped; `acknowledged` has what all replicas in sync have."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for what is on its way."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.002):
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._delivered(number))
            self._producer.poll(0)
            number += 1

    def _delivered(self, number: int) -> Callable[[Any, Any], None]:
        def note(error: Any, _message: Any) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failures.append(str(error))

        return note


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Read at least so many records from the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[bytes] = []

    def read() -> None:
        found.extend(message.value() or b"" for message in consumer.consume(1000, 1.0) if message.error() is None)

    try:
        until(lambda: len(found) >= count, lambda: f"{count} records, but {len(found)}", meanwhile=read)
        return found
    finally:
        consumer.close()


def fill(bootstrap: str, topic: str, count: int, size: int) -> None:
    """Produce records of one size."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 20_000})
    for number in range(count):
        producer.produce(topic, str(number).encode().ljust(size, b"."))
    assert producer.flush(PATIENCE_S) == 0


def folders(broker: BrokerProcess, topic: str) -> list[Path]:
    """The logs that a broker has of a topic, without those that wait to be deleted."""
    return [each for each in broker.log_dir.glob(f"{topic}-*") if not each.name.endswith("-delete")]


def moving_cluster(make_broker: MakeBroker, zookeeper: ZooKeeper) -> Cluster:
    """Start three brokers."""
    return Cluster([make_broker(*_OPTIONS, zookeeper=zookeeper.connect, broker_id=broker) for broker in (1, 2, 3)])
