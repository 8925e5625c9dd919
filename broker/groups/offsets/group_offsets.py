"""Commits, fetches, deletes and expires the offsets of groups.

The offsets of one commit are appended as one batch, so they take effect together, once the batch is committed. Nothing
waits for tombstones to be committed: if a failover loses a tombstone, the offset expires again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Final, NamedTuple

import structlog

from ottla.broker.coordination.appends import Done
from ottla.broker.coordination.shards import Shard
from ottla.broker.coordination.stored_records import StoredRecord, TransactionalProducer, batch_of
from ottla.broker.groups.classic.messages import CONSUMER_PROTOCOL_TYPE, GroupState
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.effects import Effects
from ottla.broker.groups.offsets.expiry import expired_offsets
from ottla.broker.groups.offsets.offset_store import CommittedOffset, Offsets, aside, is_set_aside, topic_id_aside
from ottla.broker.groups.records import offset_record
from ottla.broker.groups.write_errors import commit_error, transactional_commit_error
from ottla.broker.storage.producers.producers import FROM_COORDINATOR
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

_TOMBSTONES_IN_BATCH: Final = 1000
_MINUTE_MS: Final = 60_000
_ANY_RECORD: Final = StoredRecord(b"", None)
_NO_TOPICS: Final[Mapping[str, bytes]] = {}
# A leader without a ZooKeeper session is still the leader if a follower fetched from it within this time.
_FOLLOWER_HEARD_MS: Final = 2_000


class Committer(NamedTuple):
    """The sender of a commit. A client outside of the group has neither member id nor generation."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class FetchedOffset(NamedTuple):
    """The committed offset of a partition; None if there is none, or if a transaction may still change it."""

    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE


class GroupOffsets:
    """The committed offsets of all groups of a coordinator."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        may_lead_alone: Callable[[], bool] = lambda: True,
        topic_name: Callable[[str], str | None] = lambda topic_id: None,
    ) -> None:
        """`may_lead_alone` returns False while another broker may be the leader without this one knowing.

        `topic_name` returns the name of the topic with an id, given as text; None if there is none.
        """
        self._coordinator = coordinator
        self._topic_name = topic_name
        self._may_lead_alone = may_lead_alone

    def start(self) -> None:
        """Start to expire offsets at regular intervals."""
        self._schedule()

    # Committing

    def commit(self, group_id: str, committer: Committer, offsets: Offsets, done: Done) -> None:
        """Store offsets, then call `done` with the result. A commit without a generation creates a missing group."""
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

    # Transactions

    def begin_verification(
        self, group_id: str, producer: TransactionalProducer
    ) -> tuple[TopicPartition, TransactionalProducer]:
        """Return the partition of a group, and the producer, with a guard if the coordinator must be asked about it."""
        shard = self._coordinator.shard_of(group_id)
        partition = self._coordinator.shards.partition(shard.index)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        # Only the producer of this batch counts.
        batch = batch_of([_ANY_RECORD], self._coordinator.clock(), producer=producer)
        return partition.partition, producer._replace(guard=partition.begin_verification(batch, FROM_COORDINATOR))

    def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: TransactionalProducer,
        offsets: Offsets,
        done: Done,
    ) -> None:
        """Store offsets that take effect when the producer's transaction is committed."""
        coordinator = self._coordinator
        entry = coordinator.with_group(group_id)
        if entry is None:
            if committer.generation >= 0:
                done(ErrorCode.ILLEGAL_GENERATION)
                return
            entry = coordinator.group_or_new(group_id)
        staged: Offsets = {}
        with entry.lock:
            error = entry.group.check_transactional_commit(*committer)
            if error is ErrorCode.NONE and offsets:
                records = [offset_record(group_id, *each) for each in offsets.items()]
                append = coordinator.begin_append(entry.partition, records, producer)
                if append.error is None:
                    # Before the write is committed: the marker that ends the transaction may be known first.
                    staged = {
                        partition: each._replace(log_offset=append.first_offset) for partition, each in offsets.items()
                    }
                    entry.offsets.put_pending(producer.producer_id, staged)
        if error is not ErrorCode.NONE or not offsets:
            done(error)
            return

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                with entry.lock:
                    entry.offsets.drop_pending(producer.producer_id, staged)
            done(transactional_commit_error(error))

        coordinator.await_append(append, written)

    def transaction_ended(self, partition: int, producer_id: int, *, is_committed: bool) -> None:
        """Apply or drop the offsets of a transaction whose marker a partition of `__consumer_offsets` has.

        Groups that are still being loaded are told before they serve requests: they may have been read without the
        marker.
        """
        shards = self._coordinator.shards
        shard = shards.get(partition)

        def end(groups: dict[str, CoordinatedGroup]) -> None:
            for entry in list(groups.values()):
                if entry.offsets.has_transactions:
                    with entry.lock:
                        entry.offsets.end_transaction(producer_id, is_committed=is_committed)

        if shard is not None and not shards.change_when_loaded(shard, end):
            end(shard.entries)

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
        """Return the committed offsets of some partitions, or of all partitions if `partitions` is None."""
        shard = self._coordinator.shard_of(group_id, may_be_empty=True)
        self._check_sure(shard)
        entry = shard.entries.get(group_id)
        if entry is None:
            return {} if partitions is None else dict.fromkeys(partitions, FetchedOffset(None))
        with entry.lock:
            error = entry.group.check_fetch(member_id, member_epoch)
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
            store = entry.offsets
            moved = self._restored(entry)
            restored = {now: store.get(before) for before, now in moved.items()}
            if moved:
                # If this cannot be written now, the next fetch tries again.
                self._rename(entry, moved)
            wanted = {**store.shown(), **restored} if partitions is None else partitions
            return {
                partition: FetchedOffset(None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                if require_stable and store.is_unstable(partition)
                else FetchedOffset(store.get(partition) or restored.get(partition))
                for partition in wanted
            }

    def _check_sure(self, shard: Shard[CoordinatedGroup]) -> None:
        """Raise KafkaError if the offsets on this broker may be lost or outdated.

        (a) A new coordinator may have loaded commits that are not on all in-sync replicas yet. A failover could still
            lose them, so clients wait until the high watermark has passed them. With too few replicas in sync that
            would never happen. Then the offsets are returned, as in Kafka: every acknowledged commit is among them.
        (b) A broker that was paused or cut off may have been replaced without knowing it, and the new coordinator may
            have newer commits. This broker is still the coordinator while its ZooKeeper session is valid, or while
            an in-sync replica fetches from it: replicas do not fetch from a replaced leader.
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
        """Delete offsets of topics without subscription; KafkaError if the group does not allow any deletion."""
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
        """Delete an empty group and all its offsets."""
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

    def partitions_deleted(self, partitions: Sequence[TopicPartition], kept: Mapping[str, bytes] = _NO_TOPICS) -> None:
        """Remove the offsets of deleted partitions from all groups before this returns.

        A topic with the same name may be created next, and commits to it must stay. Groups that are still being loaded
        lose the offsets before they serve requests. Offsets of topics that are `kept`, by name with their ids, are set
        aside: they count again when a topic with this id is back.
        """
        deleted, shards = frozenset(partitions), self._coordinator.shards

        def remove(groups: dict[str, CoordinatedGroup]) -> None:
            for group_id, entry in list(groups.items()):
                self._remove_deleted(entry, deleted, kept)
                if entry.is_dead:
                    groups.pop(group_id, None)

        for shard in shards if deleted else ():
            if not shards.change_when_loaded(shard, remove):
                for entry in list(shard.entries.values()):
                    self._remove_deleted(entry, deleted, kept)

    def _remove_deleted(
        self, entry: CoordinatedGroup, deleted: Set[TopicPartition], kept: Mapping[str, bytes] = _NO_TOPICS
    ) -> None:
        def remove(_now: int) -> Effects:
            if entry.is_dead or not entry.offsets.has_any(deleted):
                return Effects()
            if kept:
                self._rename(
                    entry,
                    {
                        partition: aside(kept[partition.topic], partition.partition)
                        for partition in entry.offsets.of_partitions(deleted)
                        if partition.topic in kept
                    },
                )
            gone = entry.offsets.of_partitions(deleted)
            error, effects = self._remove(entry, gone) if gone else (ErrorCode.NONE, Effects())
            if error is not ErrorCode.NONE:
                # Without tombstones the offsets may come back after a failover, until they expire.
                entry.offsets.remove(gone)
                log.warning("offsets_of_deleted_topics_not_written", group=entry.group_id, error=error.name)
            return effects

        self._change(entry, remove)

    def _rename(self, entry: CoordinatedGroup, names: Mapping[TopicPartition, TopicPartition]) -> None:
        """Move committed offsets to other partitions, each in one batch with its tombstone. The caller holds the lock.

        What cannot be written stays as it is.
        """
        moves = [(old, new, known) for old, new in names.items() if (known := entry.offsets.get(old)) is not None]
        for first in range(0, len(moves), _TOMBSTONES_IN_BATCH):
            piece = moves[first : first + _TOMBSTONES_IN_BATCH]
            records = [offset_record(entry.group_id, new, known) for _, new, known in piece]
            records += [offset_record(entry.group_id, old, None) for old, _, _ in piece]
            append = self._coordinator.begin_append(entry.partition, records)
            if append.error is not None:
                log.warning("offsets_not_moved", group=entry.group_id, error=append.error.name)
                return
            entry.offsets.remove([old for old, _, _ in piece])
            entry.offsets.put({new: known._replace(log_offset=append.first_offset) for _, new, known in piece})
            entry.offsets.has_set_aside = True

    def _restored(self, entry: CoordinatedGroup) -> dict[TopicPartition, TopicPartition]:
        """Return the offsets that were set aside and whose topics are back, with the partitions that they are of now.

        A commit since then counts more. The caller holds the lock.
        """
        store = entry.offsets
        if not store.has_set_aside:
            return {}
        waiting = [partition for partition in store.committed if is_set_aside(partition)]
        store.has_set_aside = bool(waiting)
        found: dict[TopicPartition, TopicPartition] = {}
        for partition in waiting:
            name = self._topic_name(topic_id_aside(partition))
            now = None if name is None else TopicPartition(name, partition.partition)
            if now is not None and store.get(now) is None:
                found[partition] = now
        return found

    def _remove(
        self,
        entry: CoordinatedGroup,
        partitions: Sequence[TopicPartition],
        *,
        with_group: bool = False,
        are_expired: bool = False,
    ) -> tuple[ErrorCode, Effects]:
        """Append tombstones and remove the offsets. The caller holds the group's lock.

        An empty group without offsets is deleted under the same lock, so that no commit can come in between.
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
        """Call `remove` under the group's lock, and drop the group if that has ended it."""
        self._coordinator.change(entry, remove)
        shard = self._coordinator.shards.get(entry.partition)
        if entry.is_dead and shard is not None:
            shard.remove(entry.group_id, entry)

    # Expiring

    def _schedule(self) -> None:
        pause_seconds = self._coordinator.config().offsets_retention_check_interval_ms / 1000
        self._coordinator.work.submit(self._expire_and_schedule, pause_seconds)

    def _expire_and_schedule(self) -> None:
        try:
            self.expire()
        finally:
            self._schedule()

    def expire(self) -> int:
        """Remove expired offsets, and empty groups without offsets; return the number of removed offsets."""
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
