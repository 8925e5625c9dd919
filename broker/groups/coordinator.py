"""The group coordinator: finds the group of a request, changes it under its lock, and carries out the effects.

The records of a change are appended under the group's lock, so that the log has them in order. Replies are sent after
the lock is released; replies that depend on a write are sent when the write is committed. Lock order: group, partition,
log. Code that runs under a group's lock never takes the lock of another group.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Final

import structlog

from ottla.broker.common.clocks import monotonic_ms
from ottla.broker.common.purgatory import Purgatory
from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.appends import Append, Done
from ottla.broker.coordination.placement import CONSUMER_OFFSETS, partition_for
from ottla.broker.coordination.shards import Loaded, Shard, Shards
from ottla.broker.coordination.stored_records import StoredRecord, TransactionalProducer
from ottla.broker.coordination.work import Work
from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.classic.messages import (
    NO_MEMBER_ID,
    GroupConfig,
    GroupSnapshot,
    GroupState,
    JoinReply,
    JoinRequest,
    LeaveMember,
    SyncReply,
    SyncRequest,
)
from ottla.broker.groups.coordinated_group import CoordinatedGroup, Timer
from ottla.broker.groups.counts import GroupCounts
from ottla.broker.groups.effects import Effects
from ottla.broker.groups.loading import LoadedGroup, replay_log
from ottla.broker.groups.offsets.offset_store import OffsetStore
from ottla.broker.groups.records import group_record
from ottla.broker.groups.write_errors import group_error
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log import Log
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, KafkaError

log = structlog.get_logger(__name__)

# Restores a group of another kind than classic, given the coordinator, the group id, and its records by key version.
LoadOther = Callable[["GroupCoordinator", str, dict[int, list[StoredRecord]]], Any]

_TICK_RETRY_MS: Final = 1_000
_NOT_A_CLASSIC_GROUP: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class GroupCoordinator:
    """The groups of the partitions of `__consumer_offsets` that this broker leads."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        partitions: Partitions,
        partition_count: Callable[[], int | None],
        *,
        clock: Callable[[], int],
        now_ms: Callable[[], int] = monotonic_ms,
        on_loaded: Callable[[], object] = lambda: None,
    ) -> None:
        """`clock` returns the time since 1970, which is stored; `now_ms` returns the time for timers.

        `partition_count` returns the number of partitions of `__consumer_offsets`; None while it is unknown.
        """
        self.config = config
        self.partitions = partitions
        self.clock = clock
        self.now_ms = now_ms
        self._partition_count = partition_count
        # Groups wait here for their next deadline: of a session, a join or a sync.
        self.rebalances = Purgatory("rebalance", lambda: now_ms() / 1000)
        self.work = Work("groups")
        self.shards: Shards[CoordinatedGroup] = Shards(
            CONSUMER_OFFSETS,
            partitions,
            self.work,
            self._load,
            self._shard_loaded,
            lambda entry: self.close(entry, ErrorCode.NOT_COORDINATOR),
        )
        # Called when the groups of a partition are loaded, to continue the requests that wait for them.
        self.on_loaded = on_loaded
        # Set by `ConsumerGroups`: restores a group from its records.
        self.load_other: LoadOther | None = None
        # Set by `ConsumerGroups`: deletes an empty group, under its lock, so that a classic one can replace it.
        self.make_room: Callable[[CoordinatedGroup], bool] = lambda entry: False
        # Called with the names of topics whose metadata has changed.
        self.on_topics_changed: Callable[[Set[str]], None] = lambda topics: None
        self.counts = GroupCounts()
        self._is_stopping = False

    # Life cycle

    def start(self) -> None:
        """Start to load partitions and to run timers."""
        self.rebalances.start()
        self.work.start()

    def stop(self) -> None:
        """Answer all waiting requests, and refuse further ones with COORDINATOR_NOT_AVAILABLE."""
        self._is_stopping = True
        self.work.stop()
        for entry in self:
            self.close(entry, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.rebalances.stop()

    def role_changed(self, partition: Partition) -> None:
        """Load or give up the groups of a partition whose role has changed. Other topics are ignored."""
        self.shards.role_changed(partition)

    def topics_changed(self, topics: Set[str]) -> None:
        """Handle a change of the metadata of topics."""
        if topics:
            self.on_topics_changed(topics)

    def became_leader(self, partition: int, epoch: int) -> None:
        """Load the groups of a partition."""
        self.shards.became_leader(partition, epoch)

    def resigned(self, partition: int, epoch: int) -> None:
        """Give up the groups of a partition."""
        self.shards.resigned(partition, epoch)

    def _load(self, index: int, source: Log, is_wanted: Callable[[], bool]) -> Loaded[CoordinatedGroup] | None:
        replay = replay_log(source, self.config().offsets_load_buffer_size, is_wanted)
        if replay is None:
            return None
        groups = {group_id: self._loaded(group_id, found, index) for group_id, found in replay.groups().items()}
        return Loaded(groups, replay.end_offset, replay.record_count)

    def _shard_loaded(self, shard: Shard[CoordinatedGroup]) -> None:
        for entry in list(shard.entries.values()):
            with entry.lock:
                self._set_timer(entry)
        self.on_loaded()

    def _loaded(self, group_id: str, found: LoadedGroup, partition: int) -> CoordinatedGroup:
        snapshot, now = found.snapshot, self.now_ms()
        state_since_ms = self.clock()
        group: Any = None
        if found.others and self.load_other is not None:
            group = self.load_other(self, group_id, found.others)
        if group is None and snapshot is not None:
            group = ClassicGroup.load(snapshot, self._group_config(), _new_id, now)
            state_since_ms = snapshot.state_timestamp_ms
        if group is None:
            group = ClassicGroup(group_id, self._group_config(), _new_id)
        return CoordinatedGroup(group, found.offsets, partition, state_since_ms)

    # Finding

    def __iter__(self) -> Iterator[CoordinatedGroup]:
        for shard in self.shards:
            yield from list(shard.entries.values())

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded."""
        return any(shard.is_loading for shard in self.shards)

    def partition_of(self, group_id: str) -> int | None:
        """Return the partition of `__consumer_offsets` that a group belongs to; None while it is unknown."""
        count = self._partition_count()
        return None if count is None else partition_for(group_id, count)

    def is_expected(self, group_id: str) -> bool:
        """Whether this broker is about to coordinate the group, but has not loaded it yet."""
        partition = self.partition_of(group_id)
        if partition is None:
            return any(True for _ in self.shards)
        shard = self.shards.get(partition)
        return shard is not None and shard.is_loading

    def is_ready(self, group_id: str) -> bool:
        """Whether this broker coordinates a group and has loaded its partition."""
        partition = self.partition_of(group_id)
        shard = None if partition is None else self.shards.get(partition)
        return shard is not None and not shard.is_loading

    def shard_of(self, group_id: str, *, may_be_empty: bool = False) -> Shard[CoordinatedGroup]:
        """Return the shard of a group; KafkaError if the id is invalid or the shard is elsewhere or not loaded."""
        if not group_id and not may_be_empty:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = self.partition_of(group_id)
        shard = None if partition is None else self.shards.get(partition)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def with_group(self, group_id: str, *, may_be_empty: bool = False) -> CoordinatedGroup | None:
        """Return a group; None if it does not exist. KafkaError if its shard is elsewhere or not loaded."""
        return self.shard_of(group_id, may_be_empty=may_be_empty).entries.get(group_id)

    def group_or_new(
        self, group_id: str, make: Callable[[str], Any] | None = None, *, may_be_empty: bool = False
    ) -> CoordinatedGroup:
        """Return a group. A missing group is created by `make`, or as a classic one."""
        shard = self.shard_of(group_id, may_be_empty=may_be_empty)
        entry = shard.entries.get(group_id)
        if entry is not None:
            return entry
        with shard.lock:
            if self.shards.get(shard.index) is not shard:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            entry = shard.entries.get(group_id)
            if entry is None:
                group = make(group_id) if make is not None else ClassicGroup(group_id, self._group_config(), _new_id)
                entry = CoordinatedGroup(group, OffsetStore(), shard.index, self.clock())
                shard.entries[group_id] = entry
        return entry

    def _group_config(self) -> GroupConfig:
        config = self.config()
        return GroupConfig(
            config.group_initial_rebalance_delay_ms,
            config.group_max_size,
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
        )

    # Requests of members of classic groups

    def join(self, group_id: str, request: JoinRequest, respond: Callable[[JoinReply], None]) -> None:
        """Add a member to the next generation. The first member without an id creates the group."""
        entry = self.with_group(group_id)
        if entry is None:
            if request.member_id != NO_MEMBER_ID:
                respond(JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            entry = self.group_or_new(group_id)

        def join(now: int) -> Effects:
            if not isinstance(entry.group, ClassicGroup) and self.make_room(entry):
                entry.group = ClassicGroup(group_id, self._group_config(), _new_id)
            if isinstance(entry.group, ClassicGroup):
                return entry.group.join(request, respond, now)
            return Effects([lambda: respond(JoinReply(_NOT_A_CLASSIC_GROUP, request.member_id))])

        self.change(entry, join)

    def sync(self, group_id: str, request: SyncRequest, respond: Callable[[SyncReply], None]) -> None:
        """Send a member its assignment when it is stored."""
        entry = self.with_group(group_id)

        def sync(now: int) -> Effects:
            if entry is not None and isinstance(entry.group, ClassicGroup):
                return entry.group.sync(request, respond, now)
            return Effects([lambda: respond(SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))])

        if entry is None:
            respond(SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self.change(entry, sync)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Extend a member's session. Its deadline only moves to later, so the timer can stay as it is."""
        entry = self.with_group(group_id)
        if entry is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        with entry.lock:
            if not isinstance(entry.group, ClassicGroup):
                return ErrorCode.UNKNOWN_MEMBER_ID
            return entry.group.heartbeat(member_id, instance_id, generation, self.now_ms())

    def leave(self, group_id: str, members: Sequence[LeaveMember]) -> list[ErrorCode]:
        """Remove members from a group; return one error code per member."""
        entry = self.with_group(group_id)
        errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)

        def leave(now: int) -> Effects:
            nonlocal errors
            assert entry is not None
            if not isinstance(entry.group, ClassicGroup):
                return Effects()
            errors, effects = entry.group.leave(members, now)
            return effects

        if entry is not None:
            self.change(entry, leave)
        return errors

    # Effects

    def change(self, entry: CoordinatedGroup, operation: Callable[[int], Effects]) -> None:
        """Call `operation` with the current time under the group's lock, and carry out its effects."""
        with entry.lock:
            was_completing = entry.group.state is GroupState.COMPLETING_REBALANCE
            effects = operation(self.now_ms())
            if was_completing and entry.group.state is GroupState.STABLE:
                self.counts.rebalanced()
            append = self._begin(entry, effects)
        self._finish(entry, effects, append)

    def close(self, entry: CoordinatedGroup, error: ErrorCode) -> None:
        """Mark a group as dead on this broker, and answer its waiting requests with `error`."""
        self.change(entry, lambda now: entry.group.close(error))

    def append(self, partition: int, records: Sequence[StoredRecord], done: Done) -> None:
        """Write records to a partition as one batch; `done` learns how that ended, and no thread waits for it.

        A group's lock must not be held: `done` may be called at once.
        """
        self.await_append(self.begin_append(partition, records), done)

    def begin_append(
        self, partition: int, records: Sequence[StoredRecord], producer: TransactionalProducer | None = None
    ) -> Append:
        """Write records, perhaps in a producer's transaction, without waiting; a group's lock may be held."""
        codec = Codec(self.config().offsets_topic_compression_codec)
        return Append(self.shards.partition(partition), records, self.clock(), codec, producer)

    def await_append(self, append: Append, done: Done) -> None:
        """Have `done` called when what was written is committed, or will not be. No lock may be held."""
        append.then(self.config().offsets_commit_timeout_ms, done)

    def _begin(self, entry: CoordinatedGroup, effects: Effects) -> Append | None:
        """Do what must happen under the group's lock."""
        entry.note_state(self.clock())
        self._set_timer(entry)
        if effects.write is None:
            return None
        return self.begin_append(entry.partition, self._records(effects.write.snapshot, entry))

    def _records(
        self, stored: GroupSnapshot | tuple[StoredRecord, ...], entry: CoordinatedGroup
    ) -> Sequence[StoredRecord]:
        """Return the records to write. The record of a classic group is made from its snapshot here."""
        if isinstance(stored, GroupSnapshot):
            return [group_record(stored._replace(state_timestamp_ms=entry.state_since_ms))]
        return stored

    def _finish(self, entry: CoordinatedGroup, effects: Effects, append: Append | None) -> None:
        for reply in effects.replies:
            try:
                reply()
            except Exception:  # a failed reply to one client must not stop the others
                log.exception("group_reply_failed", group=entry.group_id)
        write = effects.write
        if append is not None and write is not None:
            done = write.done
            self.await_append(append, lambda error: self.change(entry, lambda now: done(group_error(error))))

    # Timers

    def _set_timer(self, entry: CoordinatedGroup) -> None:
        """Set the timer to the next deadline of the group. The caller holds its lock.

        An earlier timer is kept: when it fires, it sets the next one.
        """
        deadline_ms = None if entry.is_dead else entry.group.next_deadline_ms
        timer = entry.timer
        if timer is not None and deadline_ms is not None and timer.deadline_ms <= deadline_ms:
            return
        if timer is None and deadline_ms is None:
            return
        entry.timer = None if deadline_ms is None else Timer(entry, deadline_ms, self._tick)
        if timer is not None:
            self.rebalances.check(entry)
        if entry.timer is not None and deadline_ms is not None:
            self.rebalances.watch(entry.timer, [entry], max(deadline_ms - self.now_ms(), 0) / 1000)

    def _tick(self, entry: CoordinatedGroup) -> None:
        def tick(now: int) -> Effects:
            entry.timer = None
            return Effects() if entry.is_dead else entry.group.tick(now)

        try:
            self.change(entry, tick)
        except Exception:  # without a timer the group would never make progress
            log.exception("group_tick_failed", group=entry.group_id)
            with entry.lock:
                entry.timer = Timer(entry, self.now_ms() + _TICK_RETRY_MS, self._tick)
            self.rebalances.watch(entry.timer, [entry], _TICK_RETRY_MS / 1000)


def _new_id() -> str:
    return str(uuid.uuid4())
