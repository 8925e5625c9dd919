"""One term of a controller: from its election until it resigns.

Everything here runs on the controller's thread. Watches and answers of brokers post events; each event is handled to
its end, and then what it has to say is sent. A watch only says that something changed: the event reads what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from msgspec.structs import replace

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import SetData
from ottla.broker.cluster.topics import topic_id_of
from ottla.broker.cluster.tree import Tree
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.batch import ControllerRequest
from ottla.broker.controller.channel import Channels
from ottla.broker.controller.context import ControllerContext, RegisteredBroker, Replica, assignments_of
from ottla.broker.controller.election import Elected, Fence
from ottla.broker.controller.isr_updates import IsrUpdates
from ottla.broker.controller.loading import ClusterReader
from ottla.broker.controller.outbox import Outbox
from ottla.broker.controller.partition_states import PartitionState, ReplicaState
from ottla.broker.controller.reassignment import Reassignments
from ottla.broker.controller.state_store import StateStore
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.broker.controller.transitions import Transitions
from ottla.client.connection import Connection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

log = structlog.get_logger(__name__)

T = TypeVar("T")

Post = Callable[[Callable[[], None]], None]


@dataclass(frozen=True)
class _Notice:
    """Posts an event; equal ones are one watch to ZooKeeper."""

    term: Term
    handler: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def __call__(self) -> None:
        self.term.post(self.handler, *self.arguments)


class Term:
    """What one elected controller knows and does."""

    def __init__(self, zookeeper: Tree, broker_id: int, elected: Elected, config: BrokerConfig, post: Post) -> None:
        """`post` queues an event for the controller's thread."""
        self._zookeeper = zookeeper
        self._config = config
        self._post = post
        self._closed = False
        self._listener = config.control_plane_listener_name or config.inter_broker_listener.name
        self.context = ControllerContext(broker_id, elected.epoch)
        self._fence = Fence(zookeeper, elected)
        self._reader = ClusterReader(zookeeper, self._fence)
        self._store = StateStore(zookeeper, self._fence)
        self._outbox = Outbox(self.context, config.inter_broker_listener.name)
        self._transitions = Transitions(self.context, self._store, self._outbox)
        self._deletion = TopicDeletion(self.context, zookeeper, self._fence, self._outbox, self._transitions)
        self.reassignments = Reassignments(
            self.context,
            zookeeper,
            self._fence,
            self._outbox,
            self._transitions,
            self._deletion,
            lambda handler: _Notice(self, handler),
        )
        self.isr_updates = IsrUpdates(self.context, self._store, self._outbox)
        self.isr_updates.on_change = self.reassignments.isr_changed
        self._channels = Channels(self._connection, self._answered, self._fell_behind)

    @property
    def epoch(self) -> int:
        """The epoch of this term."""
        return self.context.epoch

    def post(self, handler: Callable[..., None], *arguments: object) -> None:
        """Queue an event of this term, from any thread; it is dropped when the term is over by then."""

        def event() -> None:
            if not self._closed:
                handler(*arguments)
                self._send()

        self._post(event)

    def run(self, work: Callable[[Term], T]) -> T:
        """Do a piece of work, and send what it has to say, also when it is refused: what it has written is told."""
        try:
            result = work(self)
        except KafkaError:
            self._send()
            raise
        self._send()
        return result

    def close(self) -> None:
        """End the term: nothing more is written or sent."""
        self._closed = True
        self._channels.close_all()

    # Taking office

    def begin(self) -> None:
        """Learn what there is, tell the brokers, and get leaders for partitions that have none."""
        self._reader.prepare()
        self._reader.log_dir_failures(_Notice(self, self._log_dirs_changed))
        self.context.brokers = self._reader.brokers(_Notice(self, self._brokers_changed))
        topics = self._zookeeper.children(znodes.TOPICS, _Notice(self, self._topics_changed))
        self._load_topics(topics)
        self.context.leadership = self._store.read(self.context.partitions())
        self.context.deleting = set(self._marked_for_deletion())
        for broker in self.context.brokers:
            self._watch_broker(broker)
            self._channels.open(broker)
        self._outbox.add_metadata([])
        self._send()
        self._begin_replicas()
        self._begin_partitions()
        self._send()
        self.reassignments.resume()
        self._deletion.resume()
        self._send()

    def _begin_replicas(self) -> None:
        replicas = self.context.replicas(self.context.partitions())
        for replica in replicas:
            is_live = replica.broker in self.context.brokers
            self.context.replica_states[replica] = ReplicaState.ONLINE if is_live else ReplicaState.DELETION_INELIGIBLE
        kept = [replica for replica in replicas if replica.topic not in self.context.deleting]
        self._transitions.move_replicas(
            [replica for replica in kept if replica.broker in self.context.brokers], ReplicaState.ONLINE
        )
        self._transitions.move_replicas(
            [replica for replica in kept if replica.broker not in self.context.brokers], ReplicaState.OFFLINE
        )

    def _begin_partitions(self) -> None:
        for partition in self.context.partitions():
            state = self.context.leadership.get(partition)
            if state is None:
                self.context.partition_states[partition] = PartitionState.NEW
            elif state.leader in self.context.brokers:
                self.context.partition_states[partition] = PartitionState.ONLINE
            else:
                self.context.partition_states[partition] = PartitionState.OFFLINE
        self._transitions.bring_online()

    # Brokers

    def _brokers_changed(self) -> None:
        present = self._reader.brokers(_Notice(self, self._brokers_changed))
        known = self.context.brokers
        gone = [broker for broker in known if broker not in present]
        joined = [broker for broker in present if broker not in known]
        # Back under the same id before we saw it go: all that it was told is forgotten.
        bounced = [broker for broker in present if broker in known and present[broker].epoch != known[broker].epoch]
        if gone or bounced:
            self._brokers_left([*gone, *bounced])
        if joined or bounced:
            self._send()
            self._brokers_joined([present[broker] for broker in (*joined, *bounced)])

    def _brokers_joined(self, brokers: Iterable[RegisteredBroker]) -> None:
        joined = {broker.id: broker for broker in brokers}
        log.info("brokers_joined", brokers=sorted(joined))
        before = list(self.context.brokers)
        self.context.brokers |= joined
        for broker in joined:
            self._watch_broker(broker)
            self._channels.open(broker)
        self._outbox.add_metadata([], before)
        self._outbox.add_metadata(self.context.partitions(), joined)
        replicas = [each for each in self.context.replicas_on(list(joined)) if each.topic not in self.context.deleting]
        self._transitions.move_replicas(replicas, ReplicaState.ONLINE)
        self._transitions.bring_online()
        self.reassignments.brokers_joined(joined)
        self._deletion.brokers_joined(joined)

    def _brokers_left(self, brokers: Iterable[int]) -> None:
        left = set(brokers)
        log.info("brokers_left", brokers=sorted(left))
        for broker in left:
            self.context.brokers.pop(broker, None)
            self.context.shutting_down.discard(broker)
            self._channels.close(broker)
        self.context.offline_replicas = {each for each in self.context.offline_replicas if each.broker not in left}
        self._replicas_lost(list(self.context.replicas_on(list(left))))
        self.reassignments.brokers_left(left)
        # Even where no partition was touched, the others must drop the broker from their metadata.
        self._outbox.add_metadata([])

    def _replicas_lost(self, replicas: list[Replica]) -> None:
        """Find other leaders for what replicas led that are gone with their broker or disk."""
        kept = [replica for replica in replicas if replica.topic not in self.context.deleting]
        led = [
            replica.topic_partition
            for replica in kept
            if (state := self.context.leadership.get(replica.topic_partition)) and state.leader == replica.broker
        ]
        self._transitions.move_partitions(led, PartitionState.OFFLINE)
        self._transitions.bring_online()
        self._transitions.move_replicas(kept, ReplicaState.OFFLINE)
        self._deletion.replicas_failed(replica for replica in replicas if replica.topic in self.context.deleting)

    def _log_dirs_changed(self) -> None:
        """Ask brokers that lost a disk, by telling them their partitions again: they answer which ones they lack."""
        for broker in self._reader.log_dir_failures(_Notice(self, self._log_dirs_changed)):
            log.warning("broker_lost_log_dir", broker=broker)
            self._tell_everything(broker)

    def _leadership_answered(self, broker: int, response: LeaderAndIsrResponse) -> None:
        lost = [
            (topic.topic_id, error.partition_index)
            for topic in response.topics
            for error in topic.partition_errors
            if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ]
        if not lost or broker not in self.context.brokers:
            return
        names = {topic_id: topic for topic, topic_id in self.context.topic_ids.items()}
        replicas = [Replica(names.get(topic_id, ""), index, broker) for topic_id, index in lost]
        newly_lost = [
            replica
            for replica in replicas
            if replica in self.context.replica_states and replica not in self.context.offline_replicas
        ]
        log.warning("replicas_lost_with_log_dir", broker=broker, count=len(newly_lost))
        self.context.offline_replicas |= set(newly_lost)
        self._replicas_lost(newly_lost)

    def _watch_broker(self, broker: int) -> None:
        self._reader.broker(broker, _Notice(self, self._broker_changed, (broker,)))

    def _broker_changed(self, broker: int) -> None:
        """Take in other endpoints or another rack; one that came or went is seen by the watch on all."""
        known = self.context.brokers.get(broker)
        if known is None:
            return
        present = self._reader.broker(broker, _Notice(self, self._broker_changed, (broker,)))
        if present is None or present.epoch != known.epoch or present.node == known.node:
            return
        self.context.brokers[broker] = present
        self._outbox.add_metadata([])
        if present.node.endpoints != known.node.endpoints:
            self._channels.close(broker)
            self._channels.open(broker)
            self._tell_everything(broker)

    def _fell_behind(self, broker: int) -> None:
        self.post(self._tell_everything, broker)

    def _tell_everything(self, broker: int) -> None:
        """Tell a broker all again, after what waited for it was dropped; what it knows already does no harm."""
        if broker not in self.context.brokers:
            return
        self._outbox.add_metadata(self.context.partitions(), [broker])
        replicas = [each for each in self.context.replicas_on([broker]) if each not in self.context.offline_replicas]
        kept = [replica for replica in replicas if replica.topic not in self.context.deleting]
        self._transitions.move_replicas(kept, ReplicaState.ONLINE)
        self._deletion.replicas_failed(replica for replica in replicas if replica.topic in self.context.deleting)
        self.reassignments.brokers_joined([broker])
        self._deletion.brokers_joined([broker])

    def _connection(self, broker: int) -> Connection | None:
        for endpoint in self.context.brokers[broker].node.parsed_endpoints():
            if endpoint.listener_name == self._listener:
                return Connection(
                    endpoint.address.host,
                    endpoint.address.port,
                    client_id=str(self.context.controller_id),
                    connect_timeout_ms=self._config.socket_connection_setup_timeout_ms,
                    request_timeout_ms=self._config.controller_socket_timeout_ms,
                )
        log.error("broker_lacks_listener", broker=broker, listener=self._listener)
        return None

    # Topics

    def _topics_changed(self) -> None:
        present = set(self._zookeeper.children(znodes.TOPICS, _Notice(self, self._topics_changed)))
        for topic in self.context.assignments.keys() - present:
            self.context.forget(topic)
        created = sorted(present - self.context.assignments.keys())
        if created:
            self._load_topics(created)
            self._partitions_created(self.context.partitions(created))
            # A mark that came before we knew of its topic was left alone.
            self._deletions_changed()

    def _topic_changed(self, topic: str) -> None:
        node = self._reader.topics([topic], self._topic_notice).get(topic)
        known = self.context.assignments.get(topic)
        if node is None or known is None:
            return
        added = {index: each for index, each in assignments_of(node).items() if index not in known}
        if not added:
            return
        if topic in self.context.deleting:
            self._take_back(topic, node)
            return
        known.update(added)
        self._partitions_created([TopicPartition(topic, index) for index in added])

    def _take_back(self, topic: str, node: znodes.TopicNode) -> None:
        """Undo an addition of partitions to a topic that is being deleted."""
        kept = {index: node.partitions[index] for index in self.context.assignments[topic] if index in node.partitions}
        self._fence.write(SetData(znodes.topic_path(topic), replace(node, partitions=kept).encode()))
        log.warning("partitions_not_added", topic=topic, reason="the topic is being deleted")

    def _partitions_created(self, partitions: list[TopicPartition]) -> None:
        log.info(
            "partitions_created", partitions=[str(partition) for partition in partitions[:20]], count=len(partitions)
        )
        replicas = self.context.replicas(partitions)
        self._transitions.move_partitions(partitions, PartitionState.NEW)
        self._transitions.move_replicas(replicas, ReplicaState.NEW)
        self._transitions.move_partitions(partitions, PartitionState.ONLINE)
        self._transitions.move_replicas(replicas, ReplicaState.ONLINE)

    def _load_topics(self, topics: list[str]) -> None:
        for topic, node in self._reader.topics(topics, self._topic_notice).items():
            self.context.assignments[topic] = assignments_of(node)
            topic_id = topic_id_of(node)
            if topic_id is not None:
                self.context.topic_ids[topic] = topic_id

    def _topic_notice(self, topic: str) -> _Notice:
        return _Notice(self, self._topic_changed, (topic,))

    # Deletions

    def _deletions_changed(self) -> None:
        marked = self._marked_for_deletion()
        if new := [topic for topic in marked if topic not in self.context.deleting]:
            log.info("topics_marked_for_deletion", topics=new)
            self._deletion.enqueue(new)

    def _marked_for_deletion(self) -> list[str]:
        """Return the topics to delete; marks of topics that do not exist, or must not be deleted, are removed."""
        marked = self._zookeeper.children(znodes.DELETE_TOPICS, _Notice(self, self._deletions_changed))
        known = [topic for topic in marked if topic in self.context.assignments]
        unknown = [topic for topic in marked if topic not in self.context.assignments]
        needless = [topic for topic in unknown if self._zookeeper.exists(znodes.topic_path(topic)) is None]
        if not self._config.delete_topic_enable:
            needless, known = marked, []
        self._fence.delete([znodes.delete_topic_path(topic) for topic in needless])
        return known

    def _answered(self, broker: int, request: ControllerRequest, response: Any) -> None:
        if request.api is Api.STOP_REPLICA:
            self.post(self._replicas_stopped, broker, request.message, response)
        elif request.api is Api.LEADER_AND_ISR:
            self.post(self._leadership_answered, broker, response)

    def _replicas_stopped(self, broker: int, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        failed = {
            (error.topic_name, error.partition_index)
            for error in response.partition_errors
            if error.error_code != ErrorCode.NONE
        }
        deleted: list[Replica] = []
        not_deleted: list[Replica] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                if state.delete_partition:
                    replica = Replica(topic.topic_name, state.partition_index, broker)
                    is_failed = response.error_code != ErrorCode.NONE or replica[:2] in failed
                    (not_deleted if is_failed else deleted).append(replica)
        self.reassignments.replicas_stopped([*deleted, *not_deleted])
        self._deletion.replicas_failed(not_deleted)
        self._deletion.replicas_deleted(deleted)

    def _send(self) -> None:
        self._channels.send(self._outbox.take())
