"""What groups do with their offsets: commit, fetch, delete, forget.

Offsets of one commit are one batch, so they count together or not at all, and they can be fetched when that batch is
committed. Tombstones are written without waiting: an offset that comes back by a failure at the wrong moment expires
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Final, NamedTuple

import structlog

from ottla.broker.groups.appends import Done, commit_error
from ottla.broker.groups.classic.messages import CONSUMER_PROTOCOL_TYPE, GroupState
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.effects import Effects
from ottla.broker.groups.offsets.expiry import expired_offsets
from ottla.broker.groups.offsets.offset_store import CommittedOffset, Offsets
from ottla.broker.groups.records import offset_record
from ottla.broker.groups.shards import Shard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

_TOMBSTONES_IN_BATCH: Final = 1000
_MINUTE_MS: Final = 60_000
# How long ago a follower may have fetched for a leader that ZooKeeper has not heard of lately to be still the leader.
_FOLLOWER_HEARD_MS: Final = 2_000


class Committer(NamedTuple):
    """Who commits; a simple consumer has neither member id nor generation."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class FetchedOffset(NamedTuple):
    """What a group has committed for a partition; None where it has nothing, or that may still change."""

    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE


class GroupOffsets:
    """The offsets of the groups that a coordinator has."""

    def __init__(self, coordinator: GroupCoordinator, may_lead_alone: Callable[[], bool] = lambda: True) -> None:
        """`may_lead_alone` is false while another broker may lead without this one knowing."""
        self._coordinator = coordinator
        self._may_lead_alone = may_lead_alone
        coordinator.shards.on_deleted = self._remove_deleted

    def start(self) -> None:
        """Begin to look for offsets that are too old."""
        self._schedule()

    # Committing

    def commit(self, group_id: str, committer: Committer, offsets: Offsets, done: Done) -> None:
        """Store offsets; `done` learns how that ended. Without a member the group is made if there is none."""
        coordinator = self._coordinator
        entry = coordinator.with_group(group_id, may_be_empty=True)
        if entry is None:
            if committer.generation >= 0:
                done(ErrorCode.ILLEGAL_GENERATION)
                return
            entry = coordinator.group_or_new(group_id, may_be_empty=True)
        with entry.lock:
            error = entry.group.check_commit(*committer, coordinator.now_ms())
            if error is ErrorCode.NONE and offsets:
                records = [offset_record(group_id, *each) for each in offsets.items()]
                append = coordinator.begin_append(entry.partition, records)
                entry.offsets.begin(offsets, append.first_offset)
        if error is not ErrorCode.NONE or not offsets:
            done(error)
            return

        def written(error: ErrorCode) -> None:
            with entry.lock:
                entry.offsets.end(offsets, append.first_offset, is_committed=error is ErrorCode.NONE)
            if error is ErrorCode.NONE:
                coordinator.counts.committed(len(offsets))
            done(commit_error(error))

        coordinator.await_append(append, written)

    # Fetching

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return what a group has committed for partitions; for all that it has where they are None."""
        shard = self._coordinator.shard_of(group_id, may_be_empty=True)
        self._check_sure(shard)
        entry = shard.groups.get(group_id)
        if entry is None:
            return {} if partitions is None else dict.fromkeys(partitions, FetchedOffset(None))
        with entry.lock:
            error = entry.group.check_fetch(member_id, member_epoch)
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
            store = entry.offsets
            wanted = list(store.committed) if partitions is None else partitions
            return {
                partition: FetchedOffset(None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                if require_stable and store.is_unstable(partition)
                else FetchedOffset(store.get(partition))
                for partition in wanted
            }

    def _check_sure(self, shard: Shard) -> None:
        """Refuse to tell offsets that may change without being committed anew.

        (a) A new coordinator may have read commits that not all replicas have. They count when all do, a moment later;
            until then they might be lost with it. While too few replicas are in sync that moment does not come, and
            it tells what it has read, as Kafka does: this has all that was ever acknowledged.
        (b) A broker that wakes up, or is cut off, has lost its office without having been told, and another has taken
            newer commits. It may speak while its session with ZooKeeper is sure, or while a replica in sync still
            fetches from it: none would from a leader that was replaced.
        """
        partition = self._coordinator.shards.partition(shard.index)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition.log.high_watermark < shard.end_offset and not partition.is_under_min_isr:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        role = partition.role
        if len(role.replicas) == 1 or self._may_lead_alone():
            return
        heard_since_ms = self._coordinator.clock() - _FOLLOWER_HEARD_MS
        followers = partition.follower_positions()
        if not any(
            follower.last_fetch_ms >= heard_since_ms for node, follower in followers.items() if node in role.isr
        ):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    # Deleting

    def delete(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Delete offsets that nobody uses; KafkaError where the group as a whole does not allow it."""
        entry = self._coordinator.with_group(group_id)
        if entry is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        used: set[str] = set()
        error = ErrorCode.NONE

        def remove(_now: int) -> Effects:
            nonlocal used, error
            group = entry.group
            if entry.is_dead:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            is_empty = group.state.value == GroupState.EMPTY.value
            if not is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            used = {each.topic for each in partitions if not is_empty and group.is_subscribed_to(each.topic)}
            free = [partition for partition in partitions if partition.topic not in used]
            error, effects = self._remove(entry, entry.offsets.of_partitions(free))
            return effects

        self._change(entry, remove)
        return {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if partition.topic in used else error
            for partition in partitions
        }

    def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group without members, with all its offsets."""
        entry = self._coordinator.with_group(group_id, may_be_empty=True)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        error = ErrorCode.NONE

        def remove(_now: int) -> Effects:
            nonlocal error
            effects = Effects()
            if entry.is_dead:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif entry.group.state.value != GroupState.EMPTY.value:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                error, effects = self._remove(entry, entry.offsets.all_partitions, with_group=True)
            return effects

        self._change(entry, remove)
        return error

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove the offsets of partitions that are gone from all groups.

        That happens before this returns: topics of the same names may come next, with commits that must stay. Where
        groups are still being read, it happens before they can be asked for anything.
        """
        deleted, shards = frozenset(partitions), self._coordinator.shards
        for shard in shards if deleted else ():
            if not shards.delete_when_loaded(shard, deleted):
                for entry in list(shard.groups.values()):
                    self._remove_deleted(entry, deleted)

    def _remove_deleted(self, entry: CoordinatedGroup, deleted: Set[TopicPartition]) -> None:
        def remove(_now: int) -> Effects:
            if entry.is_dead or not entry.offsets.has_any(deleted):
                return Effects()
            gone = entry.offsets.of_partitions(deleted)
            error, effects = self._remove(entry, gone) if gone else (ErrorCode.NONE, Effects())
            if error is not ErrorCode.NONE:
                # Without tombstones they may come back after a failover, and expire; nobody is told of them until then.
                entry.offsets.remove(gone)
                log.warning("offsets_of_deleted_topics_not_written", group=entry.group_id, error=error.name)
            return effects

        self._change(entry, remove)

    def _remove(
        self,
        entry: CoordinatedGroup,
        partitions: Sequence[TopicPartition],
        *,
        with_group: bool = False,
        are_expired: bool = False,
    ) -> tuple[ErrorCode, Effects]:
        """Write tombstones and forget what they stand for. The caller holds the group's lock.

        An empty group that has nothing left ends, too, under the same lock: nobody can commit to it in between.
        """
        is_over = with_group or (entry.group.is_empty and entry.offsets.is_empty_without(partitions))
        records = [offset_record(entry.group_id, partition, None) for partition in partitions]
        if is_over:
            records += entry.group.tombstones()
        for first in range(0, len(records), _TOMBSTONES_IN_BATCH):
            append = self._coordinator.begin_append(entry.partition, records[first : first + _TOMBSTONES_IN_BATCH])
            if append.error is not None:
                return commit_error(append.error), Effects()
        entry.offsets.remove(partitions)
        counts = self._coordinator.counts
        (counts.expired if are_expired else counts.deleted)(len(partitions))
        effects = entry.group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE) if is_over else Effects()
        return ErrorCode.NONE, effects

    def _change(self, entry: CoordinatedGroup, remove: Callable[[int], Effects]) -> None:
        """Have offsets removed under the group's lock, and forget the group where that has ended it."""
        self._coordinator.change(entry, remove)
        shard = self._coordinator.shards.get(entry.partition)
        if entry.is_dead and shard is not None:
            shard.remove(entry)

    # Forgetting

    def _schedule(self) -> None:
        pause_seconds = self._coordinator.config().offsets_retention_check_interval_ms / 1000
        self._coordinator.work.submit(self._expire_and_schedule, pause_seconds)

    def _expire_and_schedule(self) -> None:
        try:
            self.expire()
        finally:
            self._schedule()

    def expire(self) -> int:
        """Remove offsets whose time is over, and groups that have nothing left; return how many offsets."""
        coordinator = self._coordinator
        retention_ms = coordinator.config().offsets_retention_minutes * _MINUTE_MS
        now_ms, count, groups = coordinator.clock(), 0, 0

        def remove(entry: CoordinatedGroup, _now: int) -> Effects:
            nonlocal count, groups
            if entry.is_dead:
                return Effects()
            expired = expired_offsets(entry, now_ms, retention_ms)
            if not expired and not (entry.group.is_empty and entry.offsets.is_empty_without(())):
                return Effects()
            error, effects = self._remove(entry, expired, are_expired=True)
            if error is ErrorCode.NONE:
                count += len(expired)
                groups += entry.is_dead
            return effects

        for entry in coordinator:
            self._change(entry, partial(remove, entry))
        if count or groups:
            log.info("offsets_expired", offsets=count, groups=groups)
        return count


def lags(
    committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return by how many records a group is behind, where the end is known."""
    return {
        partition: max(ends[partition] - each.offset, 0) for partition, each in committed.items() if partition in ends
    }
