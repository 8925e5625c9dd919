"""The offsets that a group has committed. Pure: no clock, no log; its coordinator holds the group's lock.

A commit is written to the log first and put here when it is committed there. Commits of a transaction wait under their
producer until it ends. Where commits and removals meet, what lies later in the log wins, whenever it got here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from ottla.protocol.identifiers import TopicPartition

NO_TIMESTAMP: Final = -1
NO_LOG_OFFSET: Final = -1


class CommittedOffset(NamedTuple):
    """Where a group will continue to read a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # When it is forgotten, where the client said so; -1 where the broker's options say.
    expire_timestamp_ms: int = NO_TIMESTAMP
    # Base offset of the batch that brought it.
    log_offset: int = NO_LOG_OFFSET


Offsets = Mapping[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of one group."""

    __slots__ = ("_being_written", "_transactional", "committed")

    def __init__(self, committed: dict[TopicPartition, CommittedOffset] | None = None) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {} if committed is None else committed
        # Partitions with commits that are appended and not committed, and where these lie; made when there are any.
        self._being_written: dict[TopicPartition, list[int]] | None = None
        # By producer id, commits whose transaction has not ended.
        self._transactional: dict[int, dict[TopicPartition, CommittedOffset]] | None = None

    def __len__(self) -> int:
        return len(self.committed)

    def __repr__(self) -> str:
        return f"<OffsetStore committed={len(self.committed)} transactions={len(self._transactional or ())}>"

    # Writing

    def begin(self, partitions: Iterable[TopicPartition], log_offset: int) -> None:
        """Note that commits are being written, in one batch: what is there must not expire meanwhile."""
        if self._being_written is None:
            self._being_written = {}
        for partition in partitions:
            self._being_written.setdefault(partition, []).append(log_offset)

    def end(self, offsets: Offsets, log_offset: int, *, is_committed: bool) -> None:
        """Note that writing commits has ended; they count if the log has them, and nothing was removed after them."""
        for partition, committed in offsets.items():
            if self._end(partition, log_offset) and is_committed:
                self._put(partition, committed._replace(log_offset=log_offset))

    def _end(self, partition: TopicPartition, log_offset: int) -> bool:
        """Forget that a commit is being written; return whether it was not removed before."""
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
        if known is None or known.log_offset <= committed.log_offset:
            self.committed[partition] = committed

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets, also those under way: the caller has written tombstones, which lie after them in the log."""
        for partition in partitions:
            self.committed.pop(partition, None)
            if self._being_written is not None:
                self._being_written.pop(partition, None)
            for pending in (self._transactional or {}).values():
                pending.pop(partition, None)
        self._transactional = {key: each for key, each in (self._transactional or {}).items() if each} or None

    # Transactions

    def put_pending(self, producer_id: int, offsets: Offsets) -> None:
        """Take commits that count when the producer's transaction is committed."""
        if self._transactional is None:
            self._transactional = {}
        self._transactional.setdefault(producer_id, {}).update(offsets)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Let the commits of a producer's transaction count, or forget them."""
        if self._transactional is None:
            return
        pending = self._transactional.pop(producer_id, {})
        self._transactional = self._transactional or None
        if is_committed:
            self.put(pending)

    @property
    def pending_producers(self) -> list[int]:
        """The producers whose transactions have not ended."""
        return list(self._transactional or ())

    # Asking

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return what was committed last."""
        return self.committed.get(partition)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a transaction that has not ended may change the offset."""
        return self._transactional is not None and any(partition in pending for pending in self._transactional.values())

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether a commit of any kind is under way."""
        is_written = self._being_written is not None and partition in self._being_written
        return is_written or self.is_unstable(partition)

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """The partitions that have an offset, or are about to."""
        return list({**self.committed, **(self._being_written or {})})

    @property
    def has_pending(self) -> bool:
        """Whether commits of any kind are under way."""
        return bool(self._being_written or self._transactional)

    def is_empty_without(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether nothing is left, and nothing is under way, when some partitions are removed."""
        gone = set(partitions)
        return (
            self.committed.keys() <= gone
            and (self._being_written or {}).keys() <= gone
            and all(pending.keys() <= gone for pending in (self._transactional or {}).values())
        )

    def of_partitions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of some partitions that have an offset, or are about to."""
        return [partition for partition in partitions if partition in self.committed or self.is_pending(partition)]

    def has_any(self, partitions: Set[TopicPartition]) -> bool:
        """Whether one of some partitions may have an offset; asked of every group when a topic is deleted."""
        return self.has_pending or not self.committed.keys().isdisjoint(partitions)
