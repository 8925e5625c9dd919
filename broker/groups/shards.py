"""The partitions of `__consumer_offsets` that this broker leads, each with its groups.

When this broker becomes the leader of a partition, a background thread loads the groups, and requests to them are
refused until that is done. When it stops being the leader, it drops the groups at once. The two may race, so changes
with an older leader epoch are ignored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Set
from typing import Final

import structlog

from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.loading import LoadedGroup, replay_log
from ottla.broker.groups.placement import CONSUMER_OFFSETS
from ottla.broker.groups.work import Work
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partitions import Partitions
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

_RETRY_SECONDS: Final = 1.0

# Restores a group, given its id, the contents of the log, and the partition.
MakeGroup = Callable[[str, LoadedGroup, int], CoordinatedGroup]


class Shard:
    """The groups of one partition. `lock` protects adding and removing groups; looking one up needs no lock."""

    __slots__ = ("deleted", "end_offset", "epoch", "groups", "index", "is_loading", "lock")

    def __init__(self, index: int, epoch: int) -> None:
        self.index = index
        self.epoch = epoch
        self.is_loading = True
        # The end of the log when it was loaded. Commits before it may not be on all in-sync replicas yet.
        self.end_offset = 0
        self.groups: dict[str, CoordinatedGroup] = {}
        # Topic partitions that were deleted while this shard was being loaded.
        self.deleted: set[TopicPartition] = set()
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Shard {self.index} epoch={self.epoch} groups={len(self.groups)} loading={self.is_loading}>"

    def remove(self, entry: CoordinatedGroup) -> None:
        """Remove a group, unless another group has replaced it."""
        with self.lock:
            if self.groups.get(entry.group_id) is entry:
                del self.groups[entry.group_id]


class Shards:
    """All shards of this broker. Thread-safe."""

    def __init__(
        self,
        partitions: Partitions,
        work: Work,
        buffer_bytes: Callable[[], int],
        make_group: MakeGroup,
        on_loaded: Callable[[Shard], None],
        on_lost: Callable[[CoordinatedGroup], None],
    ) -> None:
        self._partitions = partitions
        self._work = work
        self._buffer_bytes = buffer_bytes
        self._make_group = make_group
        self._on_loaded = on_loaded
        self._on_lost = on_lost
        # Set by `GroupOffsets`: removes the offsets of deleted partitions from a group.
        self.on_deleted: Callable[[CoordinatedGroup, Set[TopicPartition]], None] = lambda entry, deleted: None
        self._lock = threading.Lock()
        self._shards: dict[int, Shard] = {}
        # The newest known leader epoch of each partition.
        self._epochs: dict[int, int] = {}

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._shards.values()))

    def get(self, index: int) -> Shard | None:
        """Return a shard; None if this broker does not lead the partition."""
        return self._shards.get(index)

    def partition(self, index: int) -> Partition | None:
        """Return the replica of a partition of `__consumer_offsets`; None if this broker has none."""
        return self._partitions.find(TopicPartition(CONSUMER_OFFSETS, index))

    def became_leader(self, index: int, epoch: int) -> None:
        """Start to load the groups of a partition, unless this broker already leads it."""
        with self._lock:
            if epoch < self._epochs.get(index, -1):
                return
            self._epochs[index] = epoch
            known = self._shards.get(index)
            if known is not None:
                known.epoch = epoch
                return
            shard = self._shards[index] = Shard(index, epoch)
        self._work.submit(lambda: self._load(shard))

    def resigned(self, index: int, epoch: int) -> None:
        """Drop the groups of a partition that this broker no longer leads."""
        with self._lock:
            if epoch < self._epochs.get(index, -1):
                return
            self._epochs[index] = epoch
            shard = self._shards.pop(index, None)
        if shard is not None:
            self._give_up(shard)

    def forget(self, index: int) -> None:
        """Drop a partition whose replica is gone, and its epoch: a recreated topic starts at epoch 0 again."""
        with self._lock:
            self._epochs.pop(index, None)
            shard = self._shards.pop(index, None)
        if shard is not None:
            self._give_up(shard)

    def delete_when_loaded(self, shard: Shard, deleted: Set[TopicPartition]) -> bool:
        """Schedule the removal of offsets of deleted partitions for the end of loading; False if it is loaded."""
        with self._lock:
            if shard.is_loading:
                shard.deleted |= deleted
            return shard.is_loading

    def _give_up(self, shard: Shard) -> None:
        with shard.lock:
            lost, shard.groups = shard.groups, {}
        for entry in lost.values():
            self._on_lost(entry)
        say = log.info if lost else log.debug
        say("groups_given_up", partition=shard.index, epoch=shard.epoch, groups=len(lost))

    def _is_current(self, shard: Shard) -> bool:
        return self._shards.get(shard.index) is shard

    def _load(self, shard: Shard) -> None:
        began = time.monotonic()
        partition = self.partition(shard.index)
        if partition is None or not self._is_current(shard):
            return
        try:
            replay = replay_log(partition.log, self._buffer_bytes(), lambda: self._is_current(shard))
            if replay is None:
                return
            groups = {
                group_id: self._make_group(group_id, found, shard.index) for group_id, found in replay.groups().items()
            }
            if not self._publish(shard, groups, replay.end_offset):
                return
        except Exception:  # serving only some of the groups would lose the others
            log.exception("groups_not_loaded", partition=shard.index, epoch=shard.epoch)
            self._work.submit(lambda: self._load(shard), _RETRY_SECONDS)
            return
        # Keep the log short: a new `__consumer_offsets` has many partitions without groups.
        say = log.info if groups else log.debug
        say(
            "groups_loaded",
            partition=shard.index,
            epoch=shard.epoch,
            groups=len(groups),
            offsets=sum(len(entry.offsets) for entry in groups.values()),
            records=replay.record_count,
            seconds=round(time.monotonic() - began, 3),
        )
        self._on_loaded(shard)

    def _publish(self, shard: Shard, groups: dict[str, CoordinatedGroup], end_offset: int) -> bool:
        """Open a shard for requests, without the offsets of deleted topics; False if the shard is no longer current."""
        removed: frozenset[TopicPartition] = frozenset()
        while True:
            with self._lock:
                if not self._is_current(shard):
                    return False
                # Keep entries until their offsets are removed: after a failure, the shard is loaded again.
                shard.deleted -= removed
                deleted = frozenset(shard.deleted)
                if not deleted:
                    shard.groups, shard.end_offset = groups, end_offset
                    shard.is_loading = False
                    return True
            for group_id, entry in list(groups.items()):
                self.on_deleted(entry, deleted)
                if entry.is_dead:
                    del groups[group_id]
            removed = deleted
