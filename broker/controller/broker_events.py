"""Brokers that come, go, change, and lose disks, and what becomes of their replicas.

A replica whose log a broker cannot serve goes offline, and another one leads. Then its broker is offered once to follow
that leader: if it accepts, having begun an empty log in place of a damaged one, the replica is online again. Otherwise
it stays offline until its broker registers anew, or tells of its disks again.

A role that a broker could not take for another reason, such as ZooKeeper being out of its reach when it needed options,
is offered again, after twice as long each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

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
# What a broker answers for a role that it will not take at another time either: an older one than it has, or of a topic
# or a replica that is another's by now.
_FINAL: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(slots=True)
class _Refusal:
    """A role that is offered again: whether an offer is on its way, and how long the next one waits."""

    is_offer_due: bool = False
    wait_seconds: float = _OFFER_SECONDS


class BrokerEvents:
    """What happens to brokers in one term."""

    def __init__(self, office: Office, deletion: TopicDeletion, reassignments: Reassignments) -> None:
        self._office = office
        self._context = office.context
        self._outbox = office.outbox
        self._transitions = office.transitions
        self._deletion = deletion
        self._reassignments = reassignments
        # Replicas that were offered to follow after they were lost, whatever their brokers answered.
        self._offered: set[Replica] = set()
        # Replicas whose roles their brokers, in their present lives, could not take.
        self._refused: dict[Replica, _Refusal] = {}
        office.on_answer.setdefault(Api.LEADER_AND_ISR, []).append(self._leadership_answered)
        office.on_fell_behind = self._tell_everything
        office.after_event = self._offer_to_follow

    # Taking office

    def load(self) -> None:
        """Learn which brokers live, and watch them."""
        self._office.reader.log_dir_failures(self._office.notice(self._log_dirs_changed))
        self._context.brokers = self._office.reader.brokers(self._office.notice(self._brokers_changed))

    def open_channels(self) -> None:
        """Open the ways to all brokers."""
        for broker in self._context.brokers:
            self._open_channel(broker)

    def _open_channel(self, broker: int) -> None:
        self._office.reader.broker(broker, self._office.notice(self._broker_changed, broker))
        self._office.channels.open(broker)

    # Coming and going

    def _brokers_changed(self) -> None:
        present = self._office.reader.brokers(self._office.notice(self._brokers_changed))
        known = self._context.brokers
        gone = [broker for broker in known if broker not in present]
        joined = [broker for broker in present if broker not in known]
        # Back under the same id before we saw it go: all that it was told is forgotten.
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
        # Even where no partition was touched, the others must drop the broker from their metadata.
        self._outbox.add_metadata([])

    def _replicas_lost(self, replicas: list[Replica]) -> None:
        """Find other leaders for what replicas led that are gone with their broker or disk."""
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

    # Changing

    def _broker_changed(self, broker: int) -> None:
        """Take in other endpoints or another rack; one that came or went is seen by the watch on all."""
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
        """Tell a broker all again, after what waited for it was dropped; what it knows already does no harm."""
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
        """Ask brokers that lost a disk, by telling them their partitions again: they answer which ones they lack."""
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
        """Offer roles again later that a broker could not take; each has one offer under way."""
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
        """Tell a broker the present roles of replicas, but for those that it has taken meanwhile."""
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
        """Offer once, to each replica that was lost, to follow the leader that was elected in its place."""
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
