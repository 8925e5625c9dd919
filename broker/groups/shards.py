"""The partitions of `__consumer_offsets` that this broker leads, each with its groups.

A partition that this broker begins to lead is read on another thread; until that is done its groups cannot be asked
anything. One that it stops leading is given up at once. Leader epochs order the two where they race: what an older
epoch says changes nothing.
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

# Makes a group of what the log says: its id, that, and the partition.
MakeGroup = Callable[[str, LoadedGroup, int], CoordinatedGroup]


class Shard:
    """The groups of one partition. Looking one up needs no lock; `lock` is for adding and removing."""

    __slots__ = ("deleted", "end_offset", "epoch", "groups", "index", "is_loading", "lock")

    def __init__(self, index: int, epoch: int) -> None:
        self.index = index
        self.epoch = epoch
        self.is_loading = True
        # Where the log ended when it was read: up to here there may be commits that not all replicas have.
        self.end_offset = 0
        self.groups: dict[str, CoordinatedGroup] = {}
        # Partitions that were deleted while this one was being read.
        self.deleted: set[TopicPartition] = set()
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Shard {self.index} epoch={self.epoch} groups={len(self.groups)} loading={self.is_loading}>"

    def remove(self, entry: CoordinatedGroup) -> None:
        """Forget a group."""
        with self.lock:
            if self.groups.get(entry.group_id) is entry:
                del self.groups[entry.group_id]


class Shards:
    """What this broker coordinates. Thread-safe."""

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
        # Set by who looks after offsets: removes those of deleted partitions from a group.
        self.on_deleted: Callable[[CoordinatedGroup, Set[TopicPartition]], None] = lambda entry, deleted: None
        self._lock = threading.Lock()
        self._shards: dict[int, Shard] = {}
        # The newest epoch that each partition was heard of in.
        self._epochs: dict[int, int] = {}

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._shards.values()))

    def get(self, index: int) -> Shard | None:
        """Return a partition that this broker leads."""
        return self._shards.get(index)

    def partition(self, index: int) -> Partition | None:
        """Return the replica behind a shard."""
        return self._partitions.find(TopicPartition(CONSUMER_OFFSETS, index))

    def became_leader(self, index: int, epoch: int) -> None:
        """Begin to read what the groups of a partition are; one that is led already stays as it is."""
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
        """Give up the groups of a partition that another broker leads, or nobody."""
        with self._lock:
            if epoch < self._epochs.get(index, -1):
                return
            self._epochs[index] = epoch
            shard = self._shards.pop(index, None)
        if shard is not None:
            self._give_up(shard)

    def forget(self, index: int) -> None:
        """Give up a partition that this broker has no replica of any more; another of its name begins with epoch 0."""
        with self._lock:
            self._epochs.pop(index, None)
            shard = self._shards.pop(index, None)
        if shard is not None:
            self._give_up(shard)

    def delete_when_loaded(self, shard: Shard, deleted: Set[TopicPartition]) -> bool:
        """Have the offsets of deleted partitions removed as soon as a shard is read; False where it has been."""
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
        except Exception:  # whatever it is, serving half of the groups would lose the other half
            log.exception("groups_not_loaded", partition=shard.index, epoch=shard.epoch)
            self._work.submit(lambda: self._load(shard), _RETRY_SECONDS)
            return
        # A topic that was just created would fill the log with partitions that have nothing.
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
        """Let groups be asked that were read, without offsets of topics that went meanwhile; False if not wanted."""
        removed: frozenset[TopicPartition] = frozenset()
        while True:
            with self._lock:
                if not self._is_current(shard):
                    return False
                # Kept until they are removed: what fails here is read again.
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
