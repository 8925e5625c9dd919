"""What a leader knows during one epoch: the positions of its followers, and the ISR. Only rules: no log, no lock.

The ISR changes by a proposal to the controller, one at a time. Until the answer comes, both outcomes are possible. So
what must hold for every member of the ISR must hold for the committed and the proposed ISR together: the maximal ISR. A
follower that is about to join already holds back the high watermark, and one that is about to leave still does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
# Answers after which the ISR stays as it was. After other errors the change may have been made.
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
# Before the start of any clock: the follower has never been caught up.
_NEVER_MS = -(2**62)


class PartitionRole(Struct, frozen=True):
    """The controller's decision for a partition: leader, epochs, replicas."""

    leader_id: int
    leader_epoch: int
    # Version of the partition's state node in ZooKeeper.
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    # The replicas that a reassignment adds and removes.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader_recovery_state: int = 0


class FollowerFetch(NamedTuple):
    """What a follower's fetch says about the follower; -1 for what it does not say."""

    replica_id: int
    broker_epoch: int
    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


class RemoteReplica(Struct):
    """A follower as its leader sees it."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = _NEVER_MS
    broker_epoch: int = UNKNOWN_EPOCH
    # When it last fetched, and where the leader's log ended then.
    last_fetch_ms: int = _NEVER_MS
    leader_end_at_last_fetch: int = 0

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has everything, or had everything a short time ago."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_max_ms


class IsrProposal(Struct, frozen=True, eq=False):
    """A change of the ISR that the leader proposes to the controller."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    # (broker id, broker epoch; -1 if unknown)
    isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = 0


class IsrAnswer(NamedTuple):
    """The controller's answer, with the state of the partition if there is no error."""

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
        """Whether the change may have been made. Only the controller's next request decides."""
        return self.error_code in _UNCERTAIN


class Leadership:
    """The followers and the ISR of a partition that this broker leads. The partition's lock protects it."""

    def __init__(
        self, node_id: int, role: PartitionRole, start_offset: int, now_ms: int, earlier: Leadership | None = None
    ) -> None:
        """Start an epoch at `start_offset`. `earlier` is the previous leadership, if this broker led until now."""
        self.node_id = node_id
        self.role = role
        # A follower must reach this offset before it joins the ISR: below, it may hold records that this epoch lacks.
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
                # Its position does not count any more: it may have followed another leader in between, without our
                # knowledge, and have truncated its log.
                follower.broker_epoch = known.broker_epoch
            # Members of the ISR get some time to send their first fetch.
            follower.last_caught_up_ms = now_ms if replica in role.isr else _NEVER_MS
            follower.last_fetch_ms = _NEVER_MS
            self.followers[replica] = follower

    # Followers

    def follower(self, fetch: FollowerFetch) -> RemoteReplica:
        """Return the follower that fetches; raise KafkaError if it is no replica, or has an outdated broker epoch."""
        known = self.followers.get(fetch.replica_id)
        if known is None:
            # A reassignment may have reached the follower before it reached us.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {fetch.replica_id} is not a replica here yet")
        if UNKNOWN_EPOCH < fetch.broker_epoch < known.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {fetch.replica_id} has registered again since")
        return known

    def fetched(self, follower: RemoteReplica, fetch: FollowerFetch, leader_end: int, now_ms: int) -> bool:
        """Record that a follower has everything below its fetch offset.

        Return whether its log start has changed.
        """
        has_other_start = follower.log_start_offset != fetch.log_start_offset
        if fetch.offset >= leader_end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        elif fetch.offset >= follower.leader_end_at_last_fetch:
            # It has everything up to the end at its last fetch, so it was caught up then.
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset = fetch.offset
        follower.log_start_offset = fetch.log_start_offset
        follower.last_fetch_ms = now_ms
        follower.leader_end_at_last_fetch = leader_end
        if fetch.broker_epoch > follower.broker_epoch:
            follower.broker_epoch = fetch.broker_epoch
        return has_other_start

    def fetched_at_end(self, fetch: FollowerFetch, committed_end: int, now_ms: int) -> bool:
        """Record that an in-sync follower still fetches where the log ends, all of which is committed.

        Return False, and record nothing, if the fetch says anything else.
        """
        follower = self.followers.get(fetch.replica_id)
        if (
            follower is None
            or self.role.leader_epoch != fetch.current_leader_epoch
            or fetch.replica_id not in self.role.isr
            or not follower.log_end_offset == fetch.offset == committed_end
            or follower.log_start_offset != fetch.log_start_offset
            or follower.broker_epoch != fetch.broker_epoch
        ):
            return False
        if now_ms > follower.last_fetch_ms:
            follower.last_fetch_ms = now_ms
        if now_ms > follower.last_caught_up_ms:
            follower.last_caught_up_ms = now_ms
        return True

    # High watermark

    def committed_end(self, leader_end: int, now_ms: int, lag_max_ms: int, is_alive: Callable[[int], bool]) -> int:
        """Return the offset up to which every replica of the maximal ISR has the log.

        A follower that is caught up but not in the ISR counts too, if it is alive. It will join in a moment, and
        otherwise the high watermark would be ahead of it each time.
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
        """Return the offset up to which this broker and every live follower have deleted the log. Needs no lock.

        Replicas out of sync count too: one that joins the ISR later could become leader with deleted records.
        """
        starts = [each.log_start_offset for broker, each in self.followers.items() if is_alive(broker)]
        return min([own_start, *starts])

    # In sync or not

    def lagging(self, leader_end: int, now_ms: int, lag_max_ms: int) -> frozenset[int]:
        """Return the members of the ISR that have been behind for too long."""
        return frozenset(
            broker
            for broker in self.role.isr
            if broker in self.followers and not self.followers[broker].is_caught_up(leader_end, now_ms, lag_max_ms)
        )

    def may_join(self, broker: int, high_watermark: int) -> bool:
        """Whether a follower has all committed records, and all records from before this epoch."""
        end = self.followers[broker].log_end_offset
        return broker not in self.maximal_isr and end >= high_watermark and end >= self.start_offset

    def propose(self, partition: TopicPartition, topic_id: bytes, isr: frozenset[int], own_epoch: int) -> IsrProposal:
        """Start a change of the ISR. Only one may be in progress."""
        assert self.pending is None
        members = tuple(
            (broker, own_epoch if broker == self.node_id else self.followers[broker].broker_epoch)
            for broker in self.role.replicas
            if broker in isr
        )
        role = self.role
        # What an unclean election lost is lost: from now on this log is the content of the partition.
        self.pending = IsrProposal(partition, topic_id, role.leader_epoch, role.partition_epoch, members)
        self.maximal_isr = role.isr | isr
        return self.pending

    def committed(self, answer: IsrAnswer) -> None:
        """Take over the ISR that the controller has written."""
        self.role = replace(
            self.role,
            isr=frozenset(answer.isr),
            partition_epoch=answer.partition_epoch,
            leader_recovery_state=answer.leader_recovery_state,
        )
        self.withdraw()

    def withdraw(self) -> None:
        """Return to the committed ISR: the change was refused and will not be made."""
        self.pending = None
        self.maximal_isr = self.role.isr
