"""A member of a consumer group, and its steps from the current to the target assignment.

        target changed                   the member no longer owns what it must revoke
STABLE ----------------> UNREVOKED_PARTITIONS -----------------------------------+
   |  nothing to revoke                                                          |
   +---------------------------------------+-------------------------------------+
                                           v
                  STABLE, or UNRELEASED_PARTITIONS while other members own some of its target

A member reaches the epoch of the target when it has revoked all partitions that are not in the target. It receives new
partitions as their previous owners revoke them. So a partition never has two owners: its owner is the member that it is
assigned to, or the member that was asked to revoke it and has not confirmed that yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ottla.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionSet, TopicIdPartition
from ottla.broker.groups.consumer.messages import (
    LEAVE_STATIC_EPOCH,
    UNCHANGED,
    ConsumerHeartbeat,
    MemberState,
)


class ConsumerMember(Struct, frozen=True):
    """The state of a member. It is immutable, so the group compares two states to find out what has changed."""

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
    # Still accepted in heartbeats, because the reply with the new epoch may have been lost.
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: PartitionSet = NO_PARTITIONS
    revoking: PartitionSet = NO_PARTITIONS

    @property
    def owned(self) -> PartitionSet:
        """The partitions that no other member may get."""
        return self.assigned | self.revoking

    @property
    def subscription_length(self) -> int:
        """The number of characters in the topic names and the regular expression."""
        return len(self.topic_regex or "") + sum(map(len, self.topic_names))

    @property
    def is_away(self) -> bool:
        """Whether this is a static member that has left temporarily."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member owns exactly its target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def updated(self, heartbeat: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member with the values that the heartbeat changes."""
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
            # An empty expression removes the current one.
            topic_regex=self.topic_regex if said_regex is None else said_regex or None,
            server_assignor=self.server_assignor if heartbeat.server_assignor is None else heartbeat.server_assignor,
        )

    def subscribes_as(self, other: ConsumerMember) -> bool:
        """Whether both members have the same subscription."""
        return (self.topic_names, self.topic_regex) == (other.topic_names, other.topic_regex)

    def may_heartbeat_at(self, epoch: int, owned: PartitionSet | None) -> bool:
        """Whether the epoch is current, or it is the previous one and the member owns only assigned partitions."""
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
        """Return the member after its next step to the target; `owned` is None if the heartbeat does not report it."""
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
        """Return this static member after it left temporarily. It keeps its assigned partitions."""
        return replace(
            self,
            epoch=LEAVE_STATIC_EPOCH,
            previous_epoch=self.epoch,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
        )

    def rejoining(self, member_id: str) -> ConsumerMember:
        """Return the member as it joins again, at epoch 0. It keeps its assigned partitions."""
        return replace(
            self,
            member_id=member_id,
            epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
        )
