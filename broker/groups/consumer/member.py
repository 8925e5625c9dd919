"""A member of a group of the new protocol, and its way to the partitions that it is to have.

        target changed                   owned no longer has what it must give back
STABLE ----------------> UNREVOKED_PARTITIONS -----------------------------------+
   |  nothing to give back                                                       |
   +---------------------------------------+-------------------------------------+
                                           v
                  STABLE, or UNRELEASED_PARTITIONS while others have some of its target

A member gets to the epoch of the target when it has given back what is not in it, and gets partitions as those that had
them give them back. So at any time a partition has at most one owner: the member that it is assigned to, or that was
asked to give it back and has not said that it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionSet, TopicIdPartition
from ottla.broker.groups.consumer.messages import (
    LEAVE_STATIC_EPOCH,
    UNCHANGED,
    ConsumerHeartbeat,
    MemberState,
)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member at one moment. Each change makes another one, so that what has changed is seen by comparing."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = UNCHANGED
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    server_assignor: str | None = None

    epoch: int = 0
    # The one before, in which it still counts: the answer that told it of the new one may be lost.
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: PartitionSet = NO_PARTITIONS
    revoking: PartitionSet = NO_PARTITIONS

    @property
    def owned(self) -> PartitionSet:
        """What nobody else may have."""
        return self.assigned | self.revoking

    @property
    def subscription_length(self) -> int:
        """How many characters it takes to say what it reads."""
        return len(self.topic_regex or "") + sum(map(len, self.topic_names))

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that has left for a while."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all that it is to have at an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def told(self, heartbeat: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member with what it says anew."""
        said_timeout_ms, said_regex = heartbeat.rebalance_timeout_ms, heartbeat.topic_regex
        said_names = heartbeat.topic_names
        return replace(
            self,
            instance_id=self.instance_id if heartbeat.instance_id is None else heartbeat.instance_id,
            rack_id=self.rack_id if heartbeat.rack_id is None else heartbeat.rack_id,
            client_id=heartbeat.client_id,
            client_host=heartbeat.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms if said_timeout_ms == UNCHANGED else said_timeout_ms,
            topic_names=self.topic_names if said_names is None else tuple(sorted(set(said_names))),
            # An empty expression takes back the one before.
            topic_regex=self.topic_regex if said_regex is None else said_regex or None,
            server_assignor=self.server_assignor if heartbeat.server_assignor is None else heartbeat.server_assignor,
        )

    def subscribes_as(self, other: ConsumerMember) -> bool:
        """Whether it reads the same topics."""
        return (self.topic_names, self.topic_regex) == (other.topic_names, other.topic_regex)

    def may_heartbeat_at(self, epoch: int, owned: PartitionSet | None) -> bool:
        """Whether it is at an epoch, or did not hear of its new one, and has nothing that it must not have."""
        if epoch == self.epoch:
            return True
        return epoch == self.previous_epoch and not self.is_away and owned is not None and owned <= self.assigned

    def reconciled(
        self,
        target_epoch: int,
        target: PartitionSet,
        owners: Mapping[TopicIdPartition, str],
        owned: PartitionSet | None,
    ) -> ConsumerMember:
        """Return the member one step further; `owned` is what it says that it has, None where it did not say."""
        if self.is_reconciled_to(target_epoch):
            return self
        if self.state is not MemberState.UNREVOKED_PARTITIONS:
            return self._next(self.epoch, target_epoch, target, owners, owned)
        if owned is None or owned & self.revoking:
            return self
        return self._next(self.epoch + 1, target_epoch, target, owners, owned)

    def _next(
        self,
        epoch: int,
        target_epoch: int,
        target: PartitionSet,
        owners: Mapping[TopicIdPartition, str],
        owned: PartitionSet | None,
    ) -> ConsumerMember:
        kept = self.assigned & target
        revoking = self.assigned - kept
        if revoking and (owned is None or owned & revoking):
            return replace(
                self,
                state=MemberState.UNREVOKED_PARTITIONS,
                epoch=epoch,
                previous_epoch=self._previous_to(epoch),
                assigned=kept,
                revoking=revoking,
            )
        unreleased = frozenset(each for each in target - kept if owners.get(each, self.member_id) != self.member_id)
        return replace(
            self,
            state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
            epoch=target_epoch,
            previous_epoch=self._previous_to(target_epoch),
            assigned=target - unreleased,
            revoking=NO_PARTITIONS,
        )

    def _previous_to(self, epoch: int) -> int:
        return self.previous_epoch if epoch == self.epoch else self.epoch

    def away(self) -> ConsumerMember:
        """Return a static member that leaves for a while: it has stopped reading, and keeps its partitions."""
        return replace(
            self,
            epoch=LEAVE_STATIC_EPOCH,
            previous_epoch=self.epoch,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
        )

    def anew(self, member_id: str) -> ConsumerMember:
        """Return the member as it joins once more, with nothing in its hands; its place and its partitions are kept."""
        return replace(
            self,
            member_id=member_id,
            epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
        )
