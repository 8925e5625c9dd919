"""Brokers that register, leave, change or lose disks, and what happens to their replicas.

A replica whose log cannot be served goes offline, and another replica leads. Then its broker gets one offer to follow
that leader. If it accepts, having replaced a damaged log by an empty one, the replica is online again. Otherwise it
stays offline until its broker registers again, or reports its disks again.

If a broker could not take a role for another reason, for example because it could not read options from ZooKeeper, the
role is offered again. Each pause is twice as long as the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog
from msgspec import Struct

from ottla.broker.controller.context import RegisteredBroker, Replica
from ottla.broker.controller.office import Office
from ottla.broker.controller.partition_states import PartitionState, ReplicaState
from ottla.broker.controller.reassignments.reassignment import Reassignments
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import NO_LEADER
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

log = structlog.get_logger(__name__)

_OFFER_SECONDS: Final = 1.0
_OFFER_SECONDS_MAX: Final = 60.0
# Errors of a broker that will never take the role: it has a newer one, or the topic or the replica was replaced.
_FINAL: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class _Refusal(Struct):
    """A role to offer again: whether an offer is pending, and how long the next one waits."""

    is_offer_due: bool = False
    wait_seconds: float = _OFFER_SECONDS


class BrokerEvents:
    """The events of brokers in one term."""

    def __init__(self, office: Office, deletion: TopicDeletion, reassignments: Reassignments) -> None:
        self._office = office
        self._context = office.context
        self._outbox = office.outbox
        self._transitions = office.transitions
        self._deletion = deletion
        self._reassignments = reassignments
        # Lost replicas that got their offer to follow, whatever the answer was.
        self._offered: set[Replica] = set()
        # Replicas with roles that their brokers, in their current registration, could not take.
        self._refused: dict[Replica, _Refusal] = {}
        office.on_answer.setdefault(Api.LEADER_AND_ISR, []).append(self._leadership_answered)
        office.on_fell_behind = self._tell_everything
        office.after_event = self._offer_to_follow

    # Start of the term

    def load(self) -> None:
        """Read the live brokers, and watch them."""
        self._office.reader.log_dir_failures(self._office.notice(self._log_dirs_changed))
        self._context.brokers = self._office.reader.brokers(self._office.notice(self._brokers_changed))

    def open_channels(self) -> None:
        """Open the channels to all brokers."""
        for broker in self._context.brokers:
            self._open_channel(broker)

    def _open_channel(self, broker: int) -> None:
        self._office.reader.broker(broker, self._office.notice(self._broker_changed, broker))
        self._office.channels.open(broker)

    # Registering and leaving

    def _brokers_changed(self) -> None:
        present = self._office.reader.brokers(self._office.notice(self._brokers_changed))
        known = self._context.brokers
        gone = [broker for broker in known if broker not in present]
        joined = [broker for broker in present if broker not in known]
        # The broker is back under the same id before we saw it leave. It has forgotten all that it was told.
        bounced = [broker for broker in present if broker in known and present[broker].epoch != known[broker].epoch]
        if gone or bounced:
            self._left([*gone, *bounced])
        if joined or bounced:
            self._office.send()
            self._joined([present[broker] for broker in (*joined, *bounced)])

    def _joined(self, brokers: Iterable[RegisteredBroker]) -> None:
        joined = {broker.id: broker for broker in brokers}
        log.info("brokers_joined", brokers=sorted(joined))
        self._context.brokers |= joined
        for broker in joined:
            self._open_channel(broker)
        self._outbox.add_brokers()
        self._outbox.add_joined(joined)
        replicas = [each for each in self._context.replicas_on(joined) if each.topic not in self._context.deleting]
        self._transitions.move_replicas(replicas, ReplicaState.ONLINE)
        self._transitions.bring_online()
        self._reassignments.brokers_joined(joined)
        self._deletion.brokers_joined(joined)

    def _left(self, brokers: Iterable[int]) -> None:
        left = set(brokers)
        log.info("brokers_left", brokers=sorted(left))
        for broker in left:
            self._context.brokers.pop(broker, None)
            self._office.channels.close(broker)
        self._context.shutting_down -= left
        self._context.offline_replicas = {each for each in self._context.offline_replicas if each.broker not in left}
        self._offered = {each for each in self._offered if each.broker not in left}
        self._refused = {each: refusal for each, refusal in self._refused.items() if each.broker not in left}
        self._replicas_lost(list(self._context.replicas_on(left)))
        self._reassignments.brokers_left(left)
        # Even if no partition changed, the others must remove the broker from their metadata.
        self._outbox.add_metadata([])

    def _replicas_lost(self, replicas: list[Replica]) -> None:
        """Elect other leaders for the partitions of replicas that are lost with their broker or disk."""
        kept = [replica for replica in replicas if replica.topic not in self._context.deleting]
        led = [
            replica.topic_partition
            for replica in kept
            if (state := self._context.leadership.get(replica.topic_partition)) and state.leader == replica.broker
        ]
        self._transitions.move_partitions(led, PartitionState.OFFLINE)
        self._transitions.bring_online()
        self._transitions.move_replicas(kept, ReplicaState.OFFLINE)
        self._deletion.replicas_failed(replica for replica in replicas if replica.topic in self._context.deleting)

    # Changes

    def _broker_changed(self, broker: int) -> None:
        """Take over new endpoints or racks. Brokers that registered or left are seen by the watch on all."""
        known = self._context.brokers.get(broker)
        if known is None:
            return
        present = self._office.reader.broker(broker, self._office.notice(self._broker_changed, broker))
        if present is None or present.epoch != known.epoch or present.node == known.node:
            return
        self._context.brokers[broker] = present
        self._outbox.add_brokers()
        if present.node.endpoints != known.node.endpoints:
            self._office.channels.close(broker)
            self._office.channels.open(broker)
            self._tell_everything(broker)

    def _tell_everything(self, broker: int) -> None:
        """Send a broker everything again, after messages to it were dropped. What it knows already does no harm."""
        if broker not in self._context.brokers:
            return
        self._outbox.add_brokers([broker])
        self._outbox.add_metadata(self._context.partitions(), [broker])
        replicas = [each for each in self._context.replicas_on([broker]) if each not in self._context.offline_replicas]
        kept = [replica for replica in replicas if replica.topic not in self._context.deleting]
        self._transitions.move_replicas(kept, ReplicaState.ONLINE)
        self._deletion.replicas_failed(replica for replica in replicas if replica.topic in self._context.deleting)
        self._reassignments.brokers_joined([broker])
        self._deletion.brokers_joined([broker])

    # Disks

    def _log_dirs_changed(self) -> None:
        """Ask brokers that lost a disk for the lost partitions: send their partitions again, and they answer which they
        lack.
        """
        for broker in self._office.reader.log_dir_failures(self._office.notice(self._log_dirs_changed)):
            log.warning("broker_lost_log_dir", broker=broker)
            self._offered = {replica for replica in self._offered if replica.broker != broker}
            self._tell_everything(broker)
            self._offer(replica for replica in self._context.offline_replicas if replica.broker == broker)

    def _leadership_answered(self, broker: int, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
        registered = self._context.brokers.get(broker)
        is_of_this_life = registered is not None and registered.epoch == request.broker_epoch
        if response.error_code != ErrorCode.NONE or not is_of_this_life:
            return
        codes = {
            (topic.topic_id, error.partition_index): error.error_code
            for topic in response.topics
            for error in topic.partition_errors
            if error.error_code != ErrorCode.NONE
        }
        lost: set[Replica] = set()
        found: set[Replica] = set()
        refused: dict[Replica, int] = {}
        for topic in request.topic_states if codes or self._context.offline_replicas or self._refused else ():
            for state in topic.partition_states:
                replica = Replica(topic.topic_name, state.partition_index, broker)
                code = codes.get((topic.topic_id, state.partition_index))
                if code is not None and code not in _FINAL:
                    refused[replica] = code
                    continue
                self._refused.pop(replica, None)
                if code is None:
                    found.add(replica)
                elif code == ErrorCode.KAFKA_STORAGE_ERROR and replica in self._context.replica_states:
                    lost.add(replica)
        if refused:
            self._roles_refused(broker, request.broker_epoch, refused)
        lost -= self._context.offline_replicas
        found &= self._context.offline_replicas & self._offered
        if lost:
            log.warning("replicas_lost_with_log_dir", broker=broker, count=len(lost))
            self._context.offline_replicas |= lost
            self._replicas_lost(sorted(lost))
        if found:
            log.info("replicas_found_again", broker=broker, count=len(found))
            self._context.offline_replicas -= found
            kept = [replica for replica in sorted(found) if replica.topic not in self._context.deleting]
            self._transitions.move_replicas(kept, ReplicaState.ONLINE)
            self._transitions.bring_online()

    def _roles_refused(self, broker: int, broker_epoch: int, codes: Mapping[Replica, int]) -> None:
        """Offer roles again later that a broker could not take; one offer at a time for each."""
        new = {replica: code for replica, code in codes.items() if replica not in self._refused}
        if new:
            names = sorted({ErrorCode.of(code).name for code in new.values()})
            some = [str(replica.topic_partition) for replica in sorted(new)[:20]]
            log.warning("roles_not_taken", broker=broker, count=len(new), partitions=some, errors=names)
        due: dict[float, list[Replica]] = {}
        for replica in codes:
            refusal = self._refused.setdefault(replica, _Refusal())
            if not refusal.is_offer_due:
                refusal.is_offer_due = True
                due.setdefault(refusal.wait_seconds, []).append(replica)
                refusal.wait_seconds = min(2 * refusal.wait_seconds, _OFFER_SECONDS_MAX)
        for wait_seconds, replicas in due.items():
            self._office.post_after(wait_seconds, self._offer_again, broker, broker_epoch, replicas)

    def _offer_again(self, broker: int, broker_epoch: int, replicas: Iterable[Replica]) -> None:
        """Send a broker the current roles of replicas, except for those that it has taken meanwhile."""
        if self._context.broker_epoch(broker) != broker_epoch:
            return
        for replica in replicas:
            refusal = self._refused.get(replica)
            state = self._context.leadership.get(replica.topic_partition)
            is_assigned = replica in self._context.replica_states and replica.topic not in self._context.deleting
            if refusal is None or state is None or not is_assigned:
                self._refused.pop(replica, None)
                continue
            refusal.is_offer_due = False
            self._outbox.add_leader_and_isr([broker], replica.topic_partition, state)

    def _offer_to_follow(self) -> None:
        """Offer each lost replica once to follow the leader that was elected in its place."""
        waiting = self._context.offline_replicas - self._offered
        states = {replica: self._context.leadership.get(replica.topic_partition) for replica in sorted(waiting)}
        self._offer(
            replica
            for replica, state in states.items()
            if state is not None and state.leader not in (NO_LEADER, replica.broker)
        )

    def _offer(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            state = self._context.leadership.get(replica.topic_partition)
            if state is not None and replica.topic not in self._context.deleting:
                self._offered.add(replica)
                self._outbox.add_leader_and_isr([replica.broker], replica.topic_partition, state)
