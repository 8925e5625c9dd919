"""The partitions of an internal topic that this broker leads, each with what it coordinates: groups, or transactions.

When this broker becomes the leader of a partition, a background thread loads the entries, and requests to them are
refused until that is done. When it stops being the leader, it drops the entries at once. The two may race, so changes
with an older leader epoch are ignored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import structlog
from msgspec import Struct

from ottla.broker.coordination.work import Work
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log import Log
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

_RETRY_SECONDS: Final = 1.0

E = TypeVar("E")


class Shard(Generic[E]):
    """The entries of one partition. `lock` protects adding and removing entries; looking one up needs no lock."""

    __slots__ = ("changes", "end_offset", "entries", "epoch", "index", "is_loading", "lock")

    def __init__(self, index: int, epoch: int) -> None:
        self.index = index
        self.epoch = epoch
        self.is_loading = True
        # The end of the log when it was loaded. Records before it may not be on all in-sync replicas yet.
        self.end_offset = 0
        # By group id or transactional id.
        self.entries: dict[str, E] = {}
        # To be made to the entries before the shard opens.
        self.changes: list[Change[E]] = []
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Shard {self.index} epoch={self.epoch} entries={len(self.entries)} loading={self.is_loading}>"

    def remove(self, key: str, entry: E) -> None:
        """Remove an entry, unless another one has replaced it."""
        with self.lock:
            if self.entries.get(key) is entry:
                del self.entries[key]


class Loaded(Struct, Generic[E], frozen=True):
    """What the log of a partition has."""

    entries: dict[str, E]
    # The end of the log when it was read.
    end_offset: int
    record_count: int


# Changes the entries of a shard that is not open yet.
Change = Callable[[dict[str, E]], None]
# Reads the log of a partition, given its number; None as soon as the function says that nobody wants it any more.
Load = Callable[[int, Log, Callable[[], bool]], Loaded[E] | None]


class Shards(Generic[E]):
    """All shards of this broker. Thread-safe."""

    def __init__(
        self,
        topic: str,
        partitions: Partitions,
        work: Work,
        load: Load[E],
        on_loaded: Callable[[Shard[E]], None],
        on_lost: Callable[[E], None],
        on_new_epoch: Callable[[Shard[E]], None] = lambda shard: None,
    ) -> None:
        """`on_new_epoch` is called when this broker leads a loaded partition in another epoch, without a break."""
        self._topic = topic
        self._partitions = partitions
        self._work = work
        self._load_entries = load
        self._on_loaded = on_loaded
        self._on_lost = on_lost
        self._on_new_epoch = on_new_epoch
        self._lock = threading.Lock()
        self._shards: dict[int, Shard[E]] = {}
        # The newest known leader epoch of each partition.
        self._epochs: dict[int, int] = {}

    def __iter__(self) -> Iterator[Shard[E]]:
        return iter(list(self._shards.values()))

    def get(self, index: int) -> Shard[E] | None:
        """Return a shard; None if this broker does not lead the partition."""
        return self._shards.get(index)

    def partition(self, index: int) -> Partition | None:
        """Return the replica of a partition; None if this broker has none."""
        return self._partitions.find(TopicPartition(self._topic, index))

    def role_changed(self, partition: Partition) -> None:
        """Load or give up the entries of a partition whose role has changed. Other topics are ignored."""
        if partition.partition.topic != self._topic:
            return
        index, role = partition.partition.partition, partition.role
        if self._partitions.find(partition.partition) is not partition:
            self.forget(index)
        elif partition.is_leader:
            self.became_leader(index, role.leader_epoch)
        else:
            self.resigned(index, role.leader_epoch)

    def became_leader(self, index: int, epoch: int) -> None:
        """Start to load the entries of a partition, unless this broker already leads it."""
        with self._lock:
            if epoch < self._epochs.get(index, -1):
                return
            self._epochs[index] = epoch
            known = self._shards.get(index)
            is_new_epoch = known is not None and known.epoch != epoch and not known.is_loading
            shard: Shard[E] = Shard(index, epoch) if known is None else known
            shard.epoch = epoch
            self._shards[index] = shard
        if known is None:
            self._work.submit(lambda: self._load(shard))
        elif is_new_epoch:
            self._on_new_epoch(shard)

    def resigned(self, index: int, epoch: int) -> None:
        """Drop the entries of a partition that this broker no longer leads."""
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

    def change_when_loaded(self, shard: Shard[E], change: Change[E]) -> bool:
        """Have a change made to the entries at the end of loading, before any request sees them; False if it is loaded.

        The change may be made more than once: after a failure, the shard is loaded again.
        """
        with self._lock:
            if shard.is_loading:
                shard.changes.append(change)
            return shard.is_loading

    def _give_up(self, shard: Shard[E]) -> None:
        with shard.lock:
            lost, shard.entries = shard.entries, {}
        for entry in lost.values():
            self._on_lost(entry)
        say = log.info if lost else log.debug
        say("shard_given_up", topic=self._topic, partition=shard.index, epoch=shard.epoch, entries=len(lost))

    def _is_current(self, shard: Shard[E]) -> bool:
        return self._shards.get(shard.index) is shard

    def _load(self, shard: Shard[E]) -> None:
        began = time.monotonic()
        partition = self.partition(shard.index)
        if partition is None or not self._is_current(shard):
            return
        try:
            loaded = self._load_entries(shard.index, partition.log, lambda: self._is_current(shard))
            if loaded is None or not self._publish(shard, loaded):
                return
        except Exception:  # serving only some of the entries would lose the others
            log.exception("shard_not_loaded", topic=self._topic, partition=shard.index, epoch=shard.epoch)
            self._work.submit(lambda: self._load(shard), _RETRY_SECONDS)
            return
        # Keep the log short: a new internal topic has many partitions without entries.
        say = log.info if loaded.entries else log.debug
        say(
            "shard_loaded",
            topic=self._topic,
            partition=shard.index,
            epoch=shard.epoch,
            entries=len(loaded.entries),
            records=loaded.record_count,
            seconds=round(time.monotonic() - began, 3),
        )
        self._on_loaded(shard)

    def _publish(self, shard: Shard[E], loaded: Loaded[E]) -> bool:
        """Open a shard for requests, with all changes made; False if the shard is no longer current."""
        made = 0
        while True:
            with self._lock:
                if not self._is_current(shard):
                    return False
                if made == len(shard.changes):
                    shard.entries, shard.end_offset = loaded.entries, loaded.end_offset
                    shard.is_loading = False
                    shard.changes.clear()
                    return True
                change = shard.changes[made]
            change(loaded.entries)
            made += 1
