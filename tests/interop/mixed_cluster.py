"""Two brokers of ours and one of Apache Kafka in one cluster, and records that must survive in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.faults.cluster import REQUEST_TIMEOUT_MS, Cluster
from tests.faults.cluster_state import ClusterState, PartitionState, StateUnknownError
from tests.faults.replica_logs import replica_log
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import CODECS, DEADLINE_S
from tests.kit.kafka_process import KafkaProcess
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest

# Broker 2 is ours, too.
OURS, KAFKA = 1, 3
_ELECT_LEADERS_VERSION = 2
_OPTIONS = (
    "inter.broker.protocol.version=3.9",
    "min.insync.replicas=2",
    "auto.create.topics.enable=false",
    "replica.lag.time.max.ms=3000",
    "replica.fetch.backoff.ms=200",
    "controlled.shutdown.retry.backoff.ms=1000",
    # Leaders move when a test says so.
    "auto.leader.rebalance.enable=false",
    "log.segment.delete.delay.ms=100",
)


class MixedCluster(Cluster):
    """Brokers 1 and 2 are ours, broker 3 is Kafka's; whoever starts first is the controller."""

    def __init__(self, folder: Path, session_timeout_s: int, *more: str) -> None:
        session = (f"zookeeper.session.timeout.ms={session_timeout_s * 1000}", "zookeeper.connection.timeout.ms=60000")
        options = (*_OPTIONS, *session, *more)
        super().__init__(folder, *options)
        self.brokers[KAFKA] = KafkaProcess(folder / "kafka", self.zookeeper.connect, *options, broker_id=KAFKA)

    def start_with_controller(self, controller: int) -> None:
        """Start everything; the controller first."""
        self.zookeeper.start()
        self._state = ClusterState(self.zookeeper.connect, self.client_host)
        self.start_brokers(controller)
        self.start_brokers(*(broker for broker in self.brokers if broker != controller))
        assert self.state.controller() == controller

    def controller(self) -> int:
        """Return the controller, when there is one."""

        def running() -> int | None:
            controller = self.state.controller()
            return controller if controller in self._running() else None

        return until(running, "a controller", not_yet=StateUnknownError)

    def elect_preferred(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Have the first replica of each partition lead."""
        request = ElectLeadersRequest(topic_partitions=None, timeout_ms=REQUEST_TIMEOUT_MS)
        answer = self.request(self.controller(), Api.ELECT_LEADERS, _ELECT_LEADERS_VERSION, request)
        assert answer.error_code == ErrorCode.NONE, answer
        for number, (preferred, *_) in enumerate(replicas):
            self.wait_for_partition(topic, number, partial(_is_led_by, preferred))

    def reassign(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Move partitions to other brokers, and wait until they are there and nowhere else."""
        partitions = [
            ReassignablePartition(partition_index=number, replicas=list(brokers))
            for number, brokers in enumerate(replicas)
        ]
        topics = [ReassignableTopic(name=topic, partitions=partitions)]
        request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
        answer = self.request(self.controller(), Api.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        assert answer.error_code == ErrorCode.NONE, answer
        wanted = {number: list(brokers) for number, brokers in enumerate(replicas)}
        until(lambda: self.state.assignment(topic) == wanted, f"{topic} is at {wanted}")
        self.wait_for_full_isr(topic, replicas)
        for number, brokers in enumerate(replicas):
            self.wait_for_folders(topic, number, brokers)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until its name may be used again, which for Kafka is a bit later."""
        super().delete_topic(topic)
        until(lambda: not self.state.is_being_deleted(topic), f"{topic} is gone for good")

    def wait_for_folders(self, topic: str, partition: int, brokers: Sequence[int]) -> None:
        """Wait until these brokers have a log of a partition, and the others have not."""

        def holders() -> list[int]:
            return [number for number, each in self.brokers.items() if each.partition_dir(topic, partition).exists()]

        until(lambda: holders() == sorted(brokers), f"{topic}-{partition} is on {brokers} only")

    def states(self, topic: str, replicas: Sequence[Sequence[int]]) -> list[PartitionState]:
        """Return the states of all partitions of a topic."""
        return [self.state.partition(topic, number) for number in range(len(replicas))]


def _is_led_by(broker: int, state: PartitionState) -> bool:
    return state.leader == broker


class Traffic:
    """One idempotent producer for a test's whole life, and all that it has sent."""

    def __init__(self, cluster: MixedCluster, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = range(len(replicas))
        self._sent: list[list[bytes]] = [[] for _ in self._partitions]
        self._offsets: list[list[int]] = [[] for _ in self._partitions]
        self._errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "compression.type": CODECS[-1],
                "linger.ms": 0,
                "batch.num.messages": 50,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 5000,
                "log_level": 0,
                "log.connection.close": False,
            }
        )

    def begin(self, count: int = 200) -> None:
        """Send records to all partitions, and do not wait."""
        for partition in self._partitions:
            for _ in range(count):
                value = b"record %d of partition %d" % (len(self._sent[partition]), partition)
                self._sent[partition].append(value)
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)

    def finish(self) -> None:
        """Wait until all is acknowledged: nothing may fail, be lost, or be there twice."""
        assert self._producer.flush(DEADLINE_S) == 0
        assert self._errors == []
        for partition in self._partitions:
            assert self._offsets[partition] == list(range(len(self._sent[partition])))

    def send(self) -> None:
        """Send records, and wait."""
        self.begin()
        self.finish()

    def check_readable(self) -> None:
        """Read everything from the beginning."""
        for partition in self._partitions:
            expected = self._sent[partition]
            read = Confluent().consume(self._cluster.bootstrap, self._topic, len(expected), partition=partition)
            assert [record.value for record in read] == expected

    def delete_first(self, count: int) -> None:
        """Delete the first records; brokers answer when all replicas have."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        wanted = [TopicPartition(self._topic, partition, count) for partition in self._partitions]
        for deleted in admin.delete_records(wanted, operation_timeout=DEADLINE_S).values():
            assert deleted.result(DEADLINE_S).low_watermark == count

    def wait_for_full_isr(self, replicas: Sequence[Sequence[int]]) -> None:
        """Wait until all replicas are in sync."""
        self._cluster.wait_for_full_isr(self._topic, replicas)

    def compare(self, replicas: Sequence[Sequence[int]]) -> None:
        """Compare what brokers have that no longer run, byte by byte."""
        for partition, brokers in enumerate(replicas):
            end = len(self._sent[partition])
            name = f"{self._topic}-{partition}"
            folders = [self._cluster.brokers[broker].partition_dir(self._topic, partition) for broker in brokers]
            logs = [replica_log(name, 0, folder, end).batches for folder in folders]
            assert logs[0][-1].last_offset == end - 1
            assert all(log == logs[0] for log in logs)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._offsets[partition].append(offset)


def check_replicas(cluster: MixedCluster, *topics: tuple[Traffic, Sequence[Sequence[int]]]) -> None:
    """Wait until all replicas of all topics are in sync, end all brokers, and compare what they have.

    All topics at once: the last broker that is alive takes the others out of the ISR.
    """
    for traffic, replicas in topics:
        traffic.wait_for_full_isr(replicas)
    for process in cluster.brokers.values():
        process.kill()
    for traffic, replicas in topics:
        traffic.compare(replicas)
