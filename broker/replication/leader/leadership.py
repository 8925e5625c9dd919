"""What a leader knows during one epoch: where its followers are, and who is in sync. Rules only: no log, no lock.

The ISR changes by a proposal to the controller, one at a time. Until it is answered both outcomes are possible, so
whatever must hold for every member of the ISR has to hold for the committed one and the proposed one together: the
maximal ISR. A follower that is about to join holds the high watermark back already; one that is about to leave does so
still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
# Answers after which the ISR stays as it was. After others the change may have been made: the controller will tell.
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
_UNCERTAIN = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
# Long before any clock began to run: a follower that has never been caught up.
_NEVER_MS = -(2**62)


@dataclass(frozen=True, slots=True)
class PartitionRole:
    """What the controller decided: leader, epochs, replicas."""

    leader_id: int
    leader_epoch: int
    # Version of the partition's state node.
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    # Those of the replicas that a reassignment brings and takes away.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader_recovery_state: int = 0


class FollowerFetch(NamedTuple):
    """What a follower says about itself when it fetches; -1 where it does not."""

    replica_id: int
    broker_epoch: int
    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


@dataclass(slots=True)
class RemoteReplica:
    """A follower as its leader sees it."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = _NEVER_MS
    broker_epoch: int = UNKNOWN_EPOCH
    # When it fetched last, and where the leader's log ended then.
    last_fetch_ms: int = _NEVER_MS
    leader_end_at_last_fetch: int = 0

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has everything, or had a moment ago."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_max_ms


@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """A change of the ISR that the leader asks the controller for."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    # (broker id, broker epoch; -1 where it is not known)
    isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = 0


class IsrAnswer(NamedTuple):
    """What the controller answered; the state of the partition where there is no error."""

    error_code: ErrorCode
    leader_id: int = NO_LEADER
    leader_epoch: int = UNKNOWN_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0

    @property
    def is_refusal(self) -> bool:
        """Whether the ISR stays as it was."""
        return self.error_code in _REFUSED

    @property
    def is_uncertain(self) -> bool:
        """Whether the change may have been made, so that only the controller's next word tells."""
        return self.error_code in _UNCERTAIN


class Leadership:
    """Followers and ISR of a partition that this broker leads. The partition's lock protects it."""

    def __init__(
        self, node_id: int, role: PartitionRole, start_offset: int, now_ms: int, earlier: Leadership | None = None
    ) -> None:
        """Begin an epoch at `start_offset`. `earlier`: what this broker knows if it led up to now, in any epoch."""
        self.node_id = node_id
        self.role = role
        # A follower may join the ISR from here on: below, it may hold records that this epoch does not have.
        self.start_offset = start_offset
        self.pending: IsrProposal | None = None
        self.maximal_isr = role.isr
        self.followers: dict[int, RemoteReplica] = {}
        for replica in role.replicas:
            if replica == node_id:
                continue
            known = earlier.followers.get(replica) if earlier is not None else None
            follower = RemoteReplica()
            if known is not None and earlier is not None and earlier.role.leader_epoch == role.leader_epoch:
                follower = replace(known)
            elif known is not None:
                # Its position does not count any more: it may have followed a leader in between that we did not hear
                # of, and have cut its log.
                follower.broker_epoch = known.broker_epoch
            # Members of the ISR get their time to appear.
            follower.last_caught_up_ms = now_ms if replica in role.isr else _NEVER_MS
            follower.last_fetch_ms = _NEVER_MS
            self.followers[replica] = follower

    # Followers

    def follower(self, fetch: FollowerFetch) -> RemoteReplica:
        """Return the follower that fetches; KafkaError where it is none, or comes from an earlier life."""
        known = self.followers.get(fetch.replica_id)
        if known is None:
            # A reassignment may have told it of its role before it told us.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {fetch.replica_id} has no replica here, yet")
        if UNKNOWN_EPOCH < fetch.broker_epoch < known.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {fetch.replica_id} has registered anew since")
        return known

    def fetched(self, follower: RemoteReplica, fetch: FollowerFetch, leader_end: int, now_ms: int) -> bool:
        """Note that a follower has everything below the offset from which it fetches.

        Return whether its log begins elsewhere than was known.
        """
        has_other_start = follower.log_start_offset != fetch.log_start_offset
        if fetch.offset >= leader_end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        elif fetch.offset >= follower.leader_end_at_last_fetch:
            # It has what there was when it fetched the last time, so it was caught up then.
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset = fetch.offset
        follower.log_start_offset = fetch.log_start_offset
        follower.last_fetch_ms = now_ms
        follower.leader_end_at_last_fetch = leader_end
        if fetch.broker_epoch > follower.broker_epoch:
            follower.broker_epoch = fetch.broker_epoch
        return has_other_start

    # High watermark

    def committed_end(self, leader_end: int, now_ms: int, lag_max_ms: int, is_alive: Callable[[int], bool]) -> int:
        """Return up to where every replica of the maximal ISR has the log.

        A follower that is caught up but not in the ISR counts too, if it lives: it will join in a moment, and would
        else find the high watermark ahead of it each time.
        """
        end = leader_end
        for broker, follower in self.followers.items():
            if follower.log_end_offset < end and (
                broker in self.maximal_isr
                or (follower.is_caught_up(leader_end, now_ms, lag_max_ms) and is_alive(broker))
            ):
                end = follower.log_end_offset
        return end

    # Low watermark

    def low_watermark(self, own_start: int, is_alive: Callable[[int], bool]) -> int:
        """Return up to where this broker and every live follower have deleted the log. Needs no lock.

        Those out of sync count too: one that joins the ISR later could lead with records that were deleted.
        """
        starts = [each.log_start_offset for broker, each in self.followers.items() if is_alive(broker)]
        return min([own_start, *starts])

    # In sync or not

    def lagging(self, leader_end: int, now_ms: int, lag_max_ms: int) -> frozenset[int]:
        """Return the members of the ISR that have not been caught up for too long."""
        return frozenset(
            broker
            for broker in self.role.isr
            if broker in self.followers and not self.followers[broker].is_caught_up(leader_end, now_ms, lag_max_ms)
        )

    def may_join(self, broker: int, high_watermark: int) -> bool:
        """Whether a follower has all that is committed, and all that was there when the epoch began."""
        end = self.followers[broker].log_end_offset
        return broker not in self.maximal_isr and end >= high_watermark and end >= self.start_offset

    def propose(self, partition: TopicPartition, topic_id: bytes, isr: frozenset[int], own_epoch: int) -> IsrProposal:
        """Begin a change of the ISR; there is one at a time."""
        assert self.pending is None
        members = tuple(
            (broker, own_epoch if broker == self.node_id else self.followers[broker].broker_epoch)
            for broker in self.role.replicas
            if broker in isr
        )
        role = self.role
        # Whatever was lost in an unclean election is lost: this log is what the partition holds from now on.
        self.pending = IsrProposal(partition, topic_id, role.leader_epoch, role.partition_epoch, members)
        self.maximal_isr = role.isr | isr
        return self.pending

    def committed(self, answer: IsrAnswer) -> None:
        """Take the ISR that the controller has written."""
        self.role = replace(
            self.role,
            isr=frozenset(answer.isr),
            partition_epoch=answer.partition_epoch,
            leader_recovery_state=answer.leader_recovery_state,
        )
        self.withdraw()

    def withdraw(self) -> None:
        """Go back to the committed ISR: the change was refused, and will not be made."""
        self.pending = None
        self.maximal_isr = self.role.isr
