"""Topics that are created, enlarged and marked for deletion."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import SetData
from ottla.broker.cluster.topics import topic_id_of
from ottla.broker.controller.context import Replica, assignments_of
from ottla.broker.controller.office import Notice, Office
from ottla.broker.controller.partition_states import PartitionState, ReplicaState
from ottla.broker.controller.reassignments.reassignment import Reassignments
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

log = structlog.get_logger(__name__)


class TopicEvents:
    """The events of topics in one term."""

    def __init__(self, office: Office, deletion: TopicDeletion, reassignments: Reassignments) -> None:
        self._office = office
        self._context = office.context
        self._transitions = office.transitions
        self._deletion = deletion
        self._reassignments = reassignments
        office.on_answer.setdefault(Api.STOP_REPLICA, []).append(self._replicas_stopped)

    def load(self) -> None:
        """Read the topics and the marks for deletion, and watch them."""
        topics = self._office.zookeeper.children(znodes.TOPICS, self._office.notice(self._topics_changed))
        self._load_topics(topics)
        self._context.leadership = self._office.store.read(self._context.partitions())
        self._context.deleting = set(self._marked_for_deletion())

    # Topics

    def _topics_changed(self) -> None:
        present = set(self._office.zookeeper.children(znodes.TOPICS, self._office.notice(self._topics_changed)))
        for topic in self._context.assignments.keys() - present:
            self._context.forget(topic)
        created = sorted(present - self._context.assignments.keys())
        if created:
            self._load_topics(created)
            self._partitions_created(self._context.partitions(created))
            # A mark that came before its topic was known was ignored so far.
            self._deletions_changed()

    def restored(self, topic: str) -> None:
        """Enter a topic that was brought back, and elect leaders among its replicas."""
        self._load_topics([topic])
        partitions = self._context.partitions([topic])
        replicas = self._context.replicas(partitions)
        self._context.leadership |= self._office.store.read(partitions)
        self._context.partition_states |= dict.fromkeys(partitions, PartitionState.OFFLINE)
        self._context.replica_states |= dict.fromkeys(replicas, ReplicaState.OFFLINE)
        self._transitions.move_partitions(partitions, PartitionState.ONLINE)
        online = [replica for replica in replicas if self._context.is_working(replica)]
        self._transitions.move_replicas(online, ReplicaState.ONLINE)

    def _topic_changed(self, topic: str) -> None:
        node = self._office.reader.topics([topic], self._topic_notice).get(topic)
        known = self._context.assignments.get(topic)
        if node is None or known is None:
            return
        added = {index: each for index, each in assignments_of(node).items() if index not in known}
        if not added:
            return
        if topic in self._context.deleting:
            self._take_back(topic, node)
            return
        known.update(added)
        self._partitions_created([TopicPartition(topic, index) for index in added])

    def _take_back(self, topic: str, node: znodes.TopicNode) -> None:
        """Undo an addition of partitions to a topic that is being deleted."""
        kept = {index: node.partitions[index] for index in self._context.assignments[topic] if index in node.partitions}
        self._office.fence.write(SetData(znodes.topic_path(topic), replace(node, partitions=kept).encode()))
        log.warning("partitions_not_added", topic=topic, reason="the topic is being deleted")

    def _partitions_created(self, partitions: list[TopicPartition]) -> None:
        log.info(
            "partitions_created", partitions=[str(partition) for partition in partitions[:20]], count=len(partitions)
        )
        replicas = self._context.replicas(partitions)
        self._transitions.move_partitions(partitions, PartitionState.NEW)
        self._transitions.move_replicas(replicas, ReplicaState.NEW)
        self._transitions.move_partitions(partitions, PartitionState.ONLINE)
        self._transitions.move_replicas(replicas, ReplicaState.ONLINE)

    def _load_topics(self, topics: list[str]) -> None:
        for topic, node in self._office.reader.topics(topics, self._topic_notice).items():
            self._context.assignments[topic] = assignments_of(node)
            topic_id = topic_id_of(node)
            if topic_id is not None:
                self._context.topic_ids[topic] = topic_id

    def _topic_notice(self, topic: str) -> Notice:
        return self._office.notice(self._topic_changed, topic)

    # Deletions

    def _deletions_changed(self) -> None:
        marked = self._marked_for_deletion()
        if new := [topic for topic in marked if topic not in self._context.deleting]:
            log.info("topics_marked_for_deletion", topics=new)
            self._deletion.enqueue(new)

    def _marked_for_deletion(self) -> list[str]:
        """Return the topics to delete; remove the marks of topics that do not exist or must not be deleted."""
        zookeeper = self._office.zookeeper
        marked = zookeeper.children(znodes.DELETE_TOPICS, self._office.notice(self._deletions_changed))
        known = [topic for topic in marked if topic in self._context.assignments]
        unknown = [topic for topic in marked if topic not in self._context.assignments]
        needless = [topic for topic in unknown if zookeeper.exists(znodes.topic_path(topic)) is None]
        if not self._office.config().delete_topic_enable:
            needless, known = marked, []
        self._office.fence.delete([znodes.delete_topic_path(topic) for topic in needless])
        return known

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
        self._reassignments.replicas_stopped([*deleted, *not_deleted])
        self._deletion.replicas_failed(not_deleted)
        self._deletion.replicas_deleted(deleted)
