"""A cluster in one process: the real controller, on a simulated ZooKeeper, with brokers that only answer it.

Brokers count what they are sent and take it for good. Requests are encoded as for a real connection, so the processor
time of the controller is all there, apart from that of its sockets and of its ZooKeeper client.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from bench.support.simulated_zookeeper import Ensemble, SimulatedZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.topics import Topics, TopicSpec
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.controller import Controller
from ottla.broker.controller.isr_updates import IsrOutcome, IsrUpdate
from ottla.broker.controller.term import Term
from ottla.client.net.blocking_connection import BlockingConnection, ConnectionFailedError
from ottla.client.net.connector import Connector
from ottla.protocol.api import Api
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaResponse
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

T = TypeVar("T")

_FIRST_PORT: Final = 10_000
_POLL_SECONDS: Final = 0.005
_ANSWERS: Final[dict[Api, Any]] = {
    Api.LEADER_AND_ISR: LeaderAndIsrResponse(error_code=0),
    Api.UPDATE_METADATA: UpdateMetadataResponse(error_code=0),
    Api.STOP_REPLICA: StopReplicaResponse(error_code=0, partition_errors=[]),
}


class _Connection(BlockingConnection):
    """A connection to a simulated broker."""

    def __init__(self, cluster: SimulatedCluster, broker_id: int) -> None:
        super().__init__("simulated", broker_id, client_id=None, connect_timeout_ms=1, request_timeout_ms=1)
        self._cluster = cluster
        self._broker_id = broker_id

    def request_encoded(self, api: Api, version: int, body: bytes) -> Any:
        """Count a request, and answer that all is well."""
        if self._broker_id not in self._cluster.live:
            raise ConnectionFailedError(f"broker {self._broker_id} is dead")
        self._cluster.count(api, body)
        return _ANSWERS[api]


class _Network(Connector):
    """Connects controllers to simulated brokers, by their ports."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def connection(self, host: str, port: int, **_: Any) -> BlockingConnection:
        """Return a connection."""
        return _Connection(self._cluster, port - _FIRST_PORT)


def _update_isrs(
    leader: int, epoch: int, updates: Mapping[TopicPartition, IsrUpdate], term: Term
) -> dict[TopicPartition, IsrOutcome]:
    return term.isr_updates.update(leader, epoch, updates)


class SimulatedCluster:
    """Brokers 1 to N, of which the first two can be controllers."""

    def __init__(self, broker_count: int, *, deadline_seconds: float = 1800) -> None:
        """Every wait ends with an error after the deadline."""
        self.ensemble = Ensemble()
        self.live: dict[int, SimulatedZooKeeper] = {}
        self.broker_count = broker_count
        self._deadline_seconds = deadline_seconds
        self._config = BrokerConfig.of({"broker.id": "1", "auto.leader.rebalance.enable": "false"})
        # The requests that brokers have got, and their bytes.
        self.requests = 0
        self.request_bytes = 0
        # The largest UpdateMetadata request: the one to a broker that joins.
        self.largest_metadata = b""
        self._counting = threading.Lock()
        self._controllers: dict[int, Controller] = {}
        self._admin = SimulatedZooKeeper(self.ensemble)
        self._metadata = MetadataCache()
        self._topics = Topics(self._admin, self._metadata, lambda: self._config)
        for path in znodes.PERSISTENT_PATHS:
            self._admin.ensure_path(path)
        for broker_id in range(1, broker_count + 1):
            self.start_broker(broker_id)
        for broker_id in (1, 2):
            self._stand(broker_id)
        self.settle()

    @property
    def controller(self) -> Controller:
        """The active controller; waits until there is one."""
        self._wait(lambda: any(each.is_active for each in self._controllers.values()), "no controller")
        return next(each for each in self._controllers.values() if each.is_active)

    def submit(self, work: Callable[[Term], T]) -> T:
        """Run some work on the controller's thread, as the handlers of requests do; return its result."""
        while True:
            outcomes: queue.SimpleQueue[T | KafkaError] = queue.SimpleQueue()
            self.controller.submit(work, outcomes.put)
            outcome = outcomes.get(timeout=self._deadline_seconds)
            if not isinstance(outcome, KafkaError):
                return outcome
            # The controller has resigned; the next one is about to be elected.
            time.sleep(_POLL_SECONDS)

    def count(self, api: Api, body: bytes) -> None:
        """Count a request to a broker."""
        with self._counting:
            self.requests += 1
            self.request_bytes += len(body)
            if api is Api.UPDATE_METADATA and len(body) > len(self.largest_metadata):
                self.largest_metadata = body

    def settle(self) -> None:
        """Wait until the controller has handled all events, and all brokers have answered."""
        term = self.submit(lambda term: term)
        self._wait(lambda: term.queue_size == 0, "brokers do not answer")
        # Answers of brokers are events, too.
        self.submit(lambda term: None)

    def start_broker(self, broker_id: int) -> None:
        """Register a broker."""
        session = SimulatedZooKeeper(self.ensemble)
        node = znodes.BrokerNode(
            host="simulated",
            port=_FIRST_PORT + broker_id,
            endpoints=[f"PLAINTEXT://simulated:{_FIRST_PORT + broker_id}"],
            listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"},
        )
        self.live[broker_id] = session
        session.create(znodes.broker_path(broker_id), node.encode(), ephemeral=True)
        self._update_live_brokers()

    def kill_broker(self, broker_id: int) -> None:
        """End a broker's session, as if it had died. A controller on it is gone without a word."""
        session = self.live.pop(broker_id)
        controller = self._controllers.pop(broker_id, None)
        session.close()
        if controller is not None:
            controller.session_expired()
            controller.close()
        self._update_live_brokers()

    def catch_up(self, broker_id: int) -> None:
        """Let the leaders of a broker's partitions ask for its return to their ISRs, as when it has all records."""
        context = self.submit(lambda term: term.context)
        by_leader: dict[int, dict[TopicPartition, IsrUpdate]] = {}
        for partition, state in context.leadership.items():
            if broker_id in context.assignment(partition).replicas and broker_id not in state.isr:
                members = tuple((each, context.broker_epoch(each)) for each in (*state.isr, broker_id))
                update = IsrUpdate(state.leader_epoch, state.partition_epoch, members)
                by_leader.setdefault(state.leader, {})[partition] = update
        for leader, updates in by_leader.items():
            self.submit(partial(_update_isrs, leader, context.broker_epoch(leader), updates))

    def create_topic(self, name: str, partitions: int, replication_factor: int) -> None:
        """Write a topic to ZooKeeper, as the handler of CreateTopics does; the controller does the rest."""
        self._topics.create(TopicSpec(name, partitions, replication_factor))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Mark topics for deletion, and wait until they are gone."""
        deleted = list(names)
        for name in deleted:
            self._topics.delete(name)
        self._wait(lambda: not any(map(self._has_topic, deleted)), "topics are still there")

    def _has_topic(self, name: str) -> bool:
        # Without a session, so that asking again and again does not count.
        with self.ensemble.lock:
            return self.ensemble.exists(znodes.topic_path(name), None, 0) is not None

    def close(self) -> None:
        """Stop the controllers."""
        for controller in self._controllers.values():
            controller.close()

    def _stand(self, broker_id: int) -> None:
        """Let a broker stand for election."""
        controller = Controller(
            self.live[broker_id], broker_id, lambda: self._config, clocks=Clocks(), connector=_Network(self)
        )
        self._controllers[broker_id] = controller
        controller.start()
        self._wait(lambda: any(each.is_active for each in self._controllers.values()), "no controller")

    def _update_live_brokers(self) -> None:
        endpoint = [UpdateMetadataEndpoint(host="simulated", port=1, listener="PLAINTEXT", security_protocol=0)]
        brokers = [UpdateMetadataBroker(id=each, endpoints=endpoint, rack=None) for each in self.live]
        self._metadata.update(
            UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[], live_brokers=brokers)
        )

    def _wait(self, condition: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + self._deadline_seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(failure)
            time.sleep(_POLL_SECONDS)
