"""One term of a controller: from its election until it resigns.

Everything here runs on the controller's thread. Watches, answers of brokers and requests are events. Each event is
handled to its end, and then its messages are sent. A watch only says that something changed: its event reads what is
there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from ottla.broker.controller.auto_balance import AutoBalance
from ottla.broker.controller.broker_events import BrokerEvents
from ottla.broker.controller.controlled_shutdown import ControlledShutdown
from ottla.broker.controller.election import Elected
from ottla.broker.controller.isr_updates import IsrUpdates
from ottla.broker.controller.kept_topics import KeptTopics
from ottla.broker.controller.leader_elections import LeaderElections
from ottla.broker.controller.office import ControllerTools, Office
from ottla.broker.controller.partition_states import (
    LeaderAndIsr,
    PartitionState,
    ReplicaState,
    offline_election,
    restarted_members,
)
from ottla.broker.controller.reassignments.move_queue import MoveQueue
from ottla.broker.controller.reassignments.reassignment import Reassignments
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.broker.controller.topic_events import TopicEvents
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

T = TypeVar("T")

# By then, brokers that were started together with the controller have registered and are in sync.
_FIRST_REBALANCE_SECONDS: Final = 5.0


class Term:
    """What one elected controller knows and does."""

    def __init__(self, tools: ControllerTools, elected: Elected) -> None:
        office = Office(tools, elected)
        self._office = office
        self.context = office.context
        self.kept_topics = KeptTopics(office)
        self._deletion = TopicDeletion(
            office.context, office.zookeeper, office.fence, office.outbox, office.transitions, self.kept_topics
        )
        self.reassignments = Reassignments(
            office.context,
            office.zookeeper,
            office.fence,
            office.outbox,
            office.transitions,
            self._deletion,
            office.notice,
        )
        self._brokers = BrokerEvents(office, self._deletion, self.reassignments)
        self._topics = TopicEvents(office, self._deletion, self.reassignments)
        self.kept_topics.on_restored = self._topics.restored
        self.isr_updates = IsrUpdates(office.context, office.store, office.outbox, self.reassignments.isr_changed)
        self.elections = LeaderElections(office)
        self.moves = MoveQueue(office, self.reassignments, self.elections)
        self.auto_balance = AutoBalance(office, self.moves)
        self.controlled_shutdown = ControlledShutdown(office.context, office.transitions)

    @property
    def epoch(self) -> int:
        """The epoch of this term."""
        return self.context.epoch

    @property
    def queue_size(self) -> int:
        """The number of batches of messages that brokers have not answered yet. Any thread may ask."""
        return self._office.channels.queue_size

    def run(self, work: Callable[[Term], T]) -> T:
        """Run some work, and send its messages, even if it raises: brokers must hear of what it has written."""
        try:
            result = work(self)
        except KafkaError:
            self._office.finish()
            raise
        self._office.finish()
        return result

    def options_changed(self, topic: str | None) -> None:
        """Handle that the options of a topic, or of all, have changed; from any thread."""
        self._office.post(self._office.transitions.bring_online, topic)

    def close(self) -> None:
        """End the term: nothing more is written or sent."""
        self._office.close()

    # Start of the term

    def begin(self) -> None:
        """Read the cluster, send it to the brokers, and elect leaders for partitions without one."""
        office = self._office
        office.reader.prepare()
        self._brokers.load()
        self._topics.load()
        self._brokers.open_channels()
        # Any of them may have started while there was no controller.
        office.outbox.add_joined(self.context.brokers)
        self._begin_replicas()
        self._begin_partitions()
        office.send()
        self.reassignments.resume()
        self.moves.resume()
        self._deletion.resume()
        self.kept_topics.begin()
        self.elections.begin(_FIRST_REBALANCE_SECONDS)
        self.auto_balance.begin()
        office.finish()

    def _begin_replicas(self) -> None:
        context = self.context
        replicas = context.replicas(context.partitions())
        for replica in replicas:
            is_live = replica.broker in context.brokers
            context.replica_states[replica] = ReplicaState.ONLINE if is_live else ReplicaState.DELETION_INELIGIBLE
        kept = [replica for replica in replicas if replica.topic not in context.deleting]
        live = [replica for replica in kept if replica.broker in context.brokers]
        dead = [replica for replica in kept if replica.broker not in context.brokers]
        self._office.transitions.move_replicas(live, ReplicaState.ONLINE)
        self._office.transitions.move_replicas(dead, ReplicaState.OFFLINE)

    def _begin_partitions(self) -> None:
        context = self.context
        for partition in context.partitions():
            state = context.leadership.get(partition)
            if state is None:
                context.partition_states[partition] = PartitionState.NEW
            elif state.leader in context.brokers:
                context.partition_states[partition] = PartitionState.ONLINE
            else:
                context.partition_states[partition] = PartitionState.OFFLINE
        restarted = self._with_restarted_members()
        self._office.transitions.bring_online()
        self._office.transitions.elect(restarted, self._election)

    def _with_restarted_members(self) -> list[TopicPartition]:
        """Return partitions with a leader whose ISR has members that restarted while there was no controller."""
        context = self.context
        epochs = context.broker_epochs
        return [
            partition
            for partition, state in context.leadership.items()
            if context.partition_states[partition] is PartitionState.ONLINE
            and partition.topic not in context.deleting
            and restarted_members(state, epochs)
        ]

    def _election(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        replicas = self.context.assignment(partition).replicas
        return offline_election(replicas, state, self.context.online_replicas(partition), unclean=False)
