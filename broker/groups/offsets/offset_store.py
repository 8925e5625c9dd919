"""The committed offsets of one group, without I/O. The caller holds the group's lock.

A commit is appended to the log first, and takes effect here once its batch is committed. Offsets of a transaction are
kept by producer id until the transaction ends. Commits and removals may arrive here in another order than they have in
the log; the one that is later in the log wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import uuid_to_text
from ottla.protocol.records import NO_TIMESTAMP

NO_LOG_OFFSET: Final = -1
# Stands, with the id, in place of the name of a deleted topic that can be brought back. No topic has such a name.
_SET_ASIDE: Final = "deleted/"


def aside(topic_id: bytes, partition: int) -> TopicPartition:
    """Return the partition under which an offset is set aside when its topic is deleted."""
    return TopicPartition(_SET_ASIDE + uuid_to_text(topic_id), partition)


def is_set_aside(partition: TopicPartition) -> bool:
    """Whether an offset is one of a deleted topic that can be brought back."""
    return partition.topic.startswith(_SET_ASIDE)


def topic_id_aside(partition: TopicPartition) -> str:
    """Return the id of the deleted topic, as text."""
    return partition.topic.removeprefix(_SET_ASIDE)


class CommittedOffset(NamedTuple):
    """The position from which a group continues to read a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # The expiry time that the client asked for; -1 if the broker's retention applies.
    expire_timestamp_ms: int = NO_TIMESTAMP
    # The base offset of the batch that holds the commit.
    log_offset: int = NO_LOG_OFFSET
    # The time of the first of several commits of the same offset; -1 if this is the first one that is known. Clients
    # that commit at intervals do so whether they have read anything or not.
    first_commit_timestamp_ms: int = NO_TIMESTAMP

    @property
    def moved_timestamp_ms(self) -> int:
        """When the group moved on to this offset. Not stored: after a failover, when it was committed last."""
        first = self.first_commit_timestamp_ms
        return self.commit_timestamp_ms if first == NO_TIMESTAMP else first


Offsets = Mapping[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of one group."""

    __slots__ = ("_being_written", "_transactional", "committed", "has_set_aside")

    def __init__(self, committed: dict[TopicPartition, CommittedOffset] | None = None) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {} if committed is None else committed
        # False if there are no offsets of deleted topics that can be brought back; True if nobody has looked yet.
        self.has_set_aside = True
        # The log offsets of appended commits that are not committed yet. None if there are none, to save memory.
        self._being_written: dict[TopicPartition, list[int]] | None = None
        # Offsets of open transactions, by producer id.
        self._transactional: dict[int, dict[TopicPartition, CommittedOffset]] | None = None

    def __len__(self) -> int:
        return len(self.committed)

    def __repr__(self) -> str:
        return f"<OffsetStore committed={len(self.committed)} transactions={len(self._transactional or ())}>"

    def shown(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets without those of deleted topics."""
        known = dict(self.committed)
        return {each: known[each] for each in known if not is_set_aside(each)} if self.has_set_aside else known

    # Writing

    def begin(self, partitions: Iterable[TopicPartition], log_offset: int) -> None:
        """Note that commits were appended in one batch. Their partitions do not expire until `end` is called."""
        if self._being_written is None:
            self._being_written = {}
        for partition in partitions:
            self._being_written.setdefault(partition, []).append(log_offset)

    def end(self, offsets: Offsets, log_offset: int, *, is_committed: bool) -> None:
        """Note the end of a write. The commits take effect if the write succeeded and no removal came after them."""
        for partition, committed in offsets.items():
            if self._end(partition, log_offset) and is_committed:
                self._put(partition, committed._replace(log_offset=log_offset))

    def _end(self, partition: TopicPartition, log_offset: int) -> bool:
        """Forget an appended commit; return whether it is still valid, so not removed in the meantime."""
        under_way = (self._being_written or {}).get(partition, [])
        if log_offset not in under_way:
            return False
        under_way.remove(log_offset)
        if not under_way and self._being_written is not None:
            del self._being_written[partition]
        return True

    def put(self, offsets: Offsets) -> None:
        """Take commits that the log has."""
        for partition, committed in offsets.items():
            self._put(partition, committed)

    def _put(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        known = self.committed.get(partition)
        if known is None:
            self.committed[partition] = committed
        elif known.log_offset <= committed.log_offset:
            if known.offset == committed.offset:
                committed = committed._replace(first_commit_timestamp_ms=known.moved_timestamp_ms)
            self.committed[partition] = committed

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove offsets, including commits under way: the caller has appended tombstones after them."""
        for partition in partitions:
            self.committed.pop(partition, None)
            if self._being_written is not None:
                self._being_written.pop(partition, None)
            for pending in (self._transactional or {}).values():
                pending.pop(partition, None)
        self._transactional = {key: each for key, each in (self._transactional or {}).items() if each} or None

    # Transactions

    def put_pending(self, producer_id: int, offsets: Offsets) -> None:
        """Add offsets that take effect when the producer's transaction is committed."""
        if self._transactional is None:
            self._transactional = {}
        self._transactional.setdefault(producer_id, {}).update(offsets)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Apply the offsets of a producer's transaction, or drop them if it was aborted."""
        if self._transactional is None:
            return
        pending = self._transactional.pop(producer_id, {})
        self._transactional = self._transactional or None
        if is_committed:
            self.put(pending)

    def drop_pending(self, producer_id: int, offsets: Offsets) -> None:
        """Drop offsets of a transaction that could not be written, except for those that were staged again since."""
        pending = (self._transactional or {}).get(producer_id, {})
        for partition, committed in offsets.items():
            if pending.get(partition) == committed:
                del pending[partition]
        if not pending and self._transactional is not None:
            self._transactional.pop(producer_id, None)
            self._transactional = self._transactional or None

    @property
    def has_transactions(self) -> bool:
        """Whether any transaction is open. Needs no lock."""
        return self._transactional is not None

    @property
    def pending_producers(self) -> list[int]:
        """The producers with open transactions."""
        return list(self._transactional or ())

    # Reading

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset of a partition; None if there is none."""
        return self.committed.get(partition)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction may change the offset."""
        return self._transactional is not None and any(partition in pending for pending in self._transactional.values())

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether a commit of the partition is under way, in a transaction or not."""
        is_written = self._being_written is not None and partition in self._being_written
        return is_written or self.is_unstable(partition)

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """The partitions that have an offset, or whose first commit is under way."""
        return list({**self.committed, **(self._being_written or {})})

    @property
    def has_pending(self) -> bool:
        """Whether any commit is under way, in a transaction or not."""
        return bool(self._being_written or self._transactional)

    def is_empty_without(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether neither offsets nor commits under way are left if the given partitions are removed."""
        gone = set(partitions)
        return (
            self.committed.keys() <= gone
            and (self._being_written or {}).keys() <= gone
            and all(pending.keys() <= gone for pending in (self._transactional or {}).values())
        )

    def of_partitions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the given partitions that have an offset or a commit under way."""
        return [partition for partition in partitions if partition in self.committed or self.is_pending(partition)]

    def has_any(self, partitions: Set[TopicPartition]) -> bool:
        """Whether any of the partitions may have an offset. A cheap check, for every group when a topic is deleted."""
        return self.has_pending or not self.committed.keys().isdisjoint(partitions)
