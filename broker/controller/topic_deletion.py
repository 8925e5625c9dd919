"""Deleting topics.

    1. All brokers are told to forget the topic; its partitions go Offline, then NonExistent.
    2. Its replicas go Offline and DeletionStarted: each broker is told to stop and delete them.
    3. A broker's answer makes its replica DeletionSuccessful, or DeletionIneligible if it failed.
    4. When all are successful, the nodes below the topic are deleted, and then topic, options and mark in one write.
       So when the name is free, nothing is left of the old topic that a new one could get.

While a replica failed, or is on a dead broker or disk, the topic is ineligible: it waits until that broker comes back.
A topic with a partition that is being reassigned waits until that is done. Another controller can repeat every step,
because the mark below /admin/delete_topics is deleted last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import Delete, MultiError, NoNodeError, NotEmptyError, Operation
from ottla.broker.cluster.topics import topic_id_of
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.controller.context import ControllerContext, Replica
from ottla.broker.controller.election import Fence
from ottla.broker.controller.kept_topics import KeptTopics
from ottla.broker.controller.messages.outbox import Outbox
from ottla.broker.controller.partition_states import PartitionState, ReplicaState
from ottla.broker.controller.transitions import Transitions

log = structlog.get_logger(__name__)


class TopicDeletion:
    """The topics that are being deleted, in one term."""

    def __init__(
        self,
        context: ControllerContext,
        zookeeper: ZooKeeper,
        fence: Fence,
        outbox: Outbox,
        transitions: Transitions,
        kept_topics: KeptTopics,
    ) -> None:
        self._context = context
        self._zookeeper = zookeeper
        self._fence = fence
        self._outbox = outbox
        self._transitions = transitions
        self._kept_topics = kept_topics
        # Topics that the brokers were told to forget.
        self._announced: set[str] = set()

    def enqueue(self, topics: Iterable[str]) -> None:
        """Delete topics from now on."""
        self._context.deleting |= set(topics)
        self.resume()

    def replicas_deleted(self, replicas: Iterable[Replica]) -> None:
        """Note that brokers have deleted their replicas."""
        self._transitions.move_replicas(self._under_deletion(replicas), ReplicaState.DELETION_SUCCESSFUL)
        self.resume()

    def replicas_failed(self, replicas: Iterable[Replica]) -> None:
        """Note that replicas could not be deleted, or that their broker is gone."""
        failed = self._under_deletion(replicas)
        self._transitions.move_replicas(failed, ReplicaState.DELETION_INELIGIBLE)
        self._context.ineligible |= {replica.topic for replica in failed}

    def brokers_joined(self, brokers: Iterable[int]) -> None:
        """Retry what waited for these brokers."""
        replicas = self._context.replicas_on(list(brokers))
        self._context.ineligible -= {replica.topic for replica in replicas}
        self.resume()

    def resume(self) -> None:
        """Take each topic one step further, if possible."""
        reassigned = {partition.topic for partition in self._context.reassigning}
        for topic in sorted(self._context.deleting - reassigned):
            # Every answer of a broker leads here, so this looks at no more replicas than it must.
            if all(state is ReplicaState.DELETION_SUCCESSFUL for state in self._states(topic)):
                self._complete(topic, self._replicas(topic))
            elif topic not in self._context.ineligible and ReplicaState.DELETION_STARTED not in self._states(topic):
                self._start(topic, self._replicas(topic))

    def _replicas(self, topic: str) -> list[Replica]:
        return self._context.replicas(self._context.partitions([topic]))

    def _states(self, topic: str) -> Iterator[ReplicaState]:
        for index, assignment in self._context.assignments.get(topic, {}).items():
            for broker in assignment.replicas:
                yield self._context.replica_state(Replica(topic, index, broker))

    def _start(self, topic: str, replicas: list[Replica]) -> None:
        partitions = self._context.partitions([topic])
        # Before the brokers hear of it: they must know whether to keep the logs and the committed offsets.
        if self._kept_topics.keep(topic):
            self._remove_nodes(topic)
            return
        if topic not in self._announced:
            self._announced.add(topic)
            existing = [
                partition
                for partition in partitions
                if self._context.partition_state(partition) is not PartitionState.NON_EXISTENT
            ]
            self._transitions.move_partitions(existing, PartitionState.OFFLINE)
            self._transitions.move_partitions(existing, PartitionState.NON_EXISTENT)
            self._outbox.add_metadata(partitions)
        done = ReplicaState.DELETION_SUCCESSFUL
        left = [replica for replica in replicas if self._context.replica_state(replica) is not done]
        self._transitions.move_replicas(left, ReplicaState.OFFLINE)
        online = [replica for replica in left if self._context.is_working(replica)]
        dead = [replica for replica in left if not self._context.is_working(replica)]
        self._transitions.move_replicas(online, ReplicaState.DELETION_STARTED)
        self._transitions.move_replicas(dead, ReplicaState.DELETION_INELIGIBLE)
        if dead:
            self._context.ineligible.add(topic)
            log.info("topic_deletion_waits", topic=topic, brokers=sorted({replica.broker for replica in dead}))

    def _complete(self, topic: str, replicas: list[Replica]) -> None:
        self._transitions.move_replicas(replicas, ReplicaState.NON_EXISTENT)
        self._remove_nodes(topic)

    def _remove_nodes(self, topic: str) -> None:
        try:
            self._fence.delete(self._known_paths(topic))
            self._delete_topic(topic)
        except NotEmptyError:
            # There are more nodes below it than a controller creates.
            self._fence.delete(self._paths_below(znodes.topic_path(topic)))
            self._delete_topic(topic)
        self._context.forget(topic)
        self._announced.discard(topic)
        log.info("topic_deleted", topic=topic)

    def _delete_topic(self, topic: str) -> None:
        """Delete mark, options and topic together, except for nodes that somebody else has deleted meanwhile.

        From that moment on, a topic that is kept can be brought back.
        """
        mark = znodes.delete_topic_path(topic)
        gone = [mark, znodes.config_path(znodes.TOPIC_CONFIGS, topic), znodes.topic_path(topic)]
        left: list[Operation] = [*self._kept_topics.completion(topic), *map(Delete, gone)]
        while left:
            outcome = self._fence.multi_many([left])[0]
            if not isinstance(outcome, MultiError):
                return
            if not isinstance(outcome.reason, NoNodeError):
                raise outcome.reason
            left.remove(outcome.operation)
            if outcome.operation.path == mark and not self._is_still_there(topic):
                # The first try succeeded and its answer was lost. By now the name may belong to a new topic.
                return

    def _is_still_there(self, topic: str) -> bool:
        path = znodes.topic_path(topic)
        node = self._zookeeper.read_or_none(path)
        return node is not None and topic_id_of(
            znodes.TopicNode.decode(node.data, path)
        ) == self._context.topic_ids.get(topic)

    def _known_paths(self, topic: str) -> list[str]:
        """Return the nodes below a topic that a controller creates, children before their parents."""
        paths = [
            path
            for partition in self._context.partitions([topic])
            for path in (znodes.state_path(*partition), znodes.partition_path(*partition))
        ]
        return [*paths, znodes.partitions_path(topic)]

    def _paths_below(self, path: str) -> list[str]:
        """Return all nodes below a node, children before their parents."""
        try:
            children = [f"{path}/{child}" for child in self._zookeeper.children(path)]
        except NoNodeError:
            return []
        return [below for child in children for below in (*self._paths_below(child), child)]

    def _under_deletion(self, replicas: Iterable[Replica]) -> list[Replica]:
        started = ReplicaState.DELETION_STARTED
        return [replica for replica in replicas if self._context.replica_state(replica) is started]
