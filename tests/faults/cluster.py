"""Three brokers and a ZooKeeper that a test may harm: on the loopback interface, or each on a host of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.faults.access import OPEN, Access
from tests.faults.cluster_state import ClusterState, PartitionState, StateUnknownError
from tests.faults.namespaces import NamespaceNetwork
from tests.faults.protection import PROTOCOL as PROTECTED
from tests.faults.protection import Protection
from tests.kit.apache_kafka import UnavailableError, skip_or_fail
from tests.kit.broker_process import BrokerProcess
from tests.kit.hosts import LOOPBACK, Host
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.client.local_cluster.errors import JavaNotFoundError, ZooKeeperNotFoundError
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BROKER_IDS = (1, 2, 3)
SESSION_TIMEOUT_S = 3.0
LAG_LIMIT_S = 3.0
# Several seconds of a machine that does something else are not a failure.
REQUEST_TIMEOUT_MS = 15_000
CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, METADATA_VERSION, ACLS_VERSION = 5, 4, 9, 2
HOST_NAMES = ("broker-1", "broker-2", "broker-3", "zookeeper", "client")

_OPTIONS = (
    f"zookeeper.session.timeout.ms={int(SESSION_TIMEOUT_S * 1000)}",
    # As long as a session by default, which a busy machine needs more than once.
    "zookeeper.connection.timeout.ms=60000",
    f"replica.lag.time.max.ms={int(LAG_LIMIT_S * 1000)}",
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "auto.create.topics.enable=false",
    "controlled.shutdown.retry.backoff.ms=1000",
    # One partition for all groups, so that we know who coordinates; as many replicas as everything else has.
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=3",
    "group.min.session.timeout.ms=1000",
    # The same for transactions, and what clients leave open ends soon.
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)
# For a cluster of one broker.
ALONE = (
    "default.replication.factor=1",
    "min.insync.replicas=1",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
)


class Cluster:
    """Brokers 1, 2 and 3, unless a test wants fewer; each keeps its address and its data over restarts.

    All listeners are PLAINTEXT, or all are SASL_SSL and nobody does anything without a right to.
    """

    def __init__(
        self,
        folder: Path,
        *overrides: str,
        network: NamespaceNetwork | None = None,
        process: type[BrokerProcess] = BrokerProcess,
        protocol: str = "PLAINTEXT",
        broker_ids: Sequence[int] = BROKER_IDS,
    ) -> None:
        self.network = network
        self._protection: Protection | None = None
        if protocol == PROTECTED:
            addresses = [self._host(f"broker-{broker}").address for broker in broker_ids]
            self._protection = Protection(folder / "protection", addresses)
            overrides += tuple(self._protection.broker_options())
        self.client_host = self._host("client")
        self.zookeeper = ZooKeeperServer(folder / "zookeeper", where=self._host("zookeeper"))
        self.brokers = {
            broker: process(
                folder / f"broker-{broker}",
                self.zookeeper.connect,
                *_OPTIONS,
                *overrides,
                broker_id=broker,
                where=self._host(f"broker-{broker}"),
                protocol=protocol,
            )
            for broker in broker_ids
        }
        self._state: ClusterState | None = None
        self._paused: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def access(self) -> Access:
        """How the clients of a workload get in."""
        return OPEN if self._protection is None else self._protection.clients

    @property
    def state(self) -> ClusterState:
        """What ZooKeeper knows."""
        assert self._state is not None, "the cluster was not started"
        return self._state

    def start(self) -> None:
        """Start everything, the brokers together, and wait until they know each other."""
        try:
            self.zookeeper.start()
        except (JavaNotFoundError, ZooKeeperNotFoundError) as error:
            skip_or_fail(UnavailableError(str(error)))
        self._state = ClusterState(self.zookeeper.connect, self.client_host)
        if self._protection is not None:
            self.client_host.call(partial(self._protection.create_users, self.zookeeper.connect))
        self.start_brokers(*self.brokers)
        if self._protection is not None:
            self._give_rights(self._protection)

    def start_brokers(self, *brokers: int) -> None:
        """Start some brokers at the same time, and wait until all of the cluster see them."""
        in_parallel([self.brokers[broker].start_on_free_ports for broker in brokers])
        until(lambda: self._is_known(set(brokers)), f"everybody knows the brokers {brokers}")

    def restore(self) -> None:
        """Heal what a test has done: packets that are dropped, brokers that are paused or gone, no ZooKeeper.

        A broker that ended although nobody ended it is a failure of its own.
        """
        crashed = [broker for broker in self._running() if self.brokers[broker].has_ended]
        assert not crashed, f"brokers {crashed} have ended by themselves"
        if self.network is not None:
            self.network.heal()
        if self.zookeeper.pid is None:
            self.zookeeper.start()
        self.zookeeper.resume()
        # One that was killed in its sleep has nothing to wake up for.
        for broker in self._paused.intersection(self._running()):
            self.resume(broker)
        self._paused.clear()
        gone = set(self.brokers) - set(self._running())
        if gone:
            self.start_brokers(*gone)
        until(lambda: self._is_known(set(self.brokers)), "all brokers know each other again")
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            if self.state.has_topic(topic):
                self.wait_for_full_isr(topic, [list(self.brokers)])

    def close(self) -> None:
        """End everything at once."""
        if self._state is not None:
            self._state.close()
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()
        if self.network is not None:
            self.network.close()

    def pause(self, broker: int) -> None:
        """Stop a broker from running, and wait until it does not."""
        if not Path("/proc/self/stat").exists():
            pytest.skip("this system has no /proc, which tells whether a process is stopped")
        self._paused.add(broker)
        self.brokers[broker].pause()

    def resume(self, broker: int) -> None:
        """Let a broker run on."""
        self._paused.discard(broker)
        self.brokers[broker].resume()

    def request(self, broker: int, api: Api, version: int, message: Message) -> Any:
        """Ask one broker, as a client on the client's host that may do all; KafkaError where it does not answer."""
        process = self.brokers[broker]
        access = OPEN if self._protection is None else self._protection.administrator

        def ask() -> Any:
            connection = BlockingConnection(
                process.host,
                process.port,
                client_id="faults",
                connect_timeout_ms=REQUEST_TIMEOUT_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                **access.connection,
            )
            with closing(connection):
                return connection.request(api, version, message)

        return self.client_host.call(ask)

    def create_topic(self, topic: str, replicas: Sequence[Sequence[int]], **configs: str) -> None:
        """Create a topic with the replicas of each partition, the leader first; wait until all are in sync."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
                for number, brokers in enumerate(replicas)
            ],
            configs=[CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS)
        answer = self.request(self.state.controller(), Api.CREATE_TOPICS, CREATE_TOPICS_VERSION, request)
        assert answer.topics[0].error_code == 0, answer
        self.wait_for_full_isr(topic, replicas)
        for number in range(len(replicas)):
            known = partial(self._is_led_for_all, topic, number)
            until(known, f"all know who leads {topic}-{number}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it is gone from ZooKeeper."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=REQUEST_TIMEOUT_MS)
        answer = self.request(self.state.controller(), Api.DELETE_TOPICS, DELETE_TOPICS_VERSION, request)
        assert answer.responses[0].error_code == 0, answer
        until(lambda: not self.state.has_topic(topic), f"{topic} is gone")

    def topic_as_seen_by(self, broker: int, topic: str) -> MetadataResponseTopic:
        """Return what a broker tells clients about a topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self.request(broker, Api.METADATA, METADATA_VERSION, request)
        seen: MetadataResponseTopic = answer.topics[0]
        return seen

    def wait_for_partition(self, topic: str, partition: int, holds: Callable[[PartitionState], bool]) -> PartitionState:
        """Wait until something holds for a partition in ZooKeeper; return its state then."""

        def wanted() -> PartitionState | None:
            state = self.state.partition(topic, partition)
            return state if holds(state) else None

        return until(wanted, f"the wanted state of {topic}-{partition}", not_yet=StateUnknownError)

    def wait_for_full_isr(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Wait until every partition has a leader, and all its replicas are in sync."""
        for number, brokers in enumerate(replicas):
            self.wait_for_partition(topic, number, partial(_is_in_sync, set(brokers)))

    def _host(self, name: str) -> Host:
        return LOOPBACK if self.network is None else self.network.hosts[name]

    def _give_rights(self, protection: Protection) -> None:
        created = self.request(next(iter(self.brokers)), Api.CREATE_ACLS, ACLS_VERSION, protection.rights())
        assert not any(result.error_code for result in created.results), created

        def are_known() -> bool:
            question = protection.question()
            answers = [self.request(broker, Api.DESCRIBE_ACLS, ACLS_VERSION, question) for broker in self._running()]
            return all(map(protection.is_known, answers))

        until(are_known, "all brokers know the rights of the clients")

    def _running(self) -> list[int]:
        return [broker for broker, process in self.brokers.items() if process.is_running]

    def _is_known(self, brokers: set[int]) -> bool:
        request = MetadataRequest(topics=[])
        try:
            answers = [self.request(one, Api.METADATA, METADATA_VERSION, request) for one in self._running()]
        except KafkaError:
            return False
        return all(brokers <= {known.node_id for known in answer.brokers} for answer in answers)

    def _is_led_for_all(self, topic: str, partition: int) -> bool:
        seen = [self.topic_as_seen_by(broker, topic).partitions for broker in self._running()]
        return all(len(partitions) > partition and _by_index(partitions)[partition] >= 0 for partitions in seen)


def _is_in_sync(brokers: set[int], state: PartitionState) -> bool:
    return state.isr == brokers and state.leader in brokers


def _by_index(partitions: Sequence[MetadataResponsePartition]) -> dict[int, int]:
    return {one.partition_index: one.leader_id for one in partitions}


def in_parallel(calls: Sequence[Callable[[], object]]) -> None:
    """Make several calls at the same time; raise what the first that failed raised."""
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
