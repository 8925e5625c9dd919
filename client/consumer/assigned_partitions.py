"""The position of a consumer in each of its partitions, and the records that were fetched ahead.

All offsets of a partition are here: the next one to fetch (`fetch_offset`), the next one for the caller (`position`),
and the end of what the caller has processed (`processed`). A seek starts a new `session`; responses to requests of an
older one are dropped. Nothing here waits, and everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from ottla.client.errors import CorruptRecordError
from ottla.client.records.columns import Columns
from ottla.client.records.fetched_batches import Deserializer, FetchedBatch, open_ahead, open_together
from ottla.client.types import ConsumerRecord
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition

# How a partition gets its first position: from the committed offset, or at one of its ends.
Reset = Literal["committed", "earliest", "latest"]

# A call takes no further batch of a partition once it has record objects of so many bytes: more do not fit the caches.
_HANDED_OUT_BYTES: Final = 512 * 1024


class AssignedPartition:
    """One assigned partition."""

    def __init__(self, partition: TopicPartition, reset: Reset | None) -> None:
        self.partition = partition
        # None while `reset` is pending.
        self.position: int | None = None
        self.reset = reset
        self.fetch_offset = 0
        # The end of the records handed out before the caller last asked for more. Auto-commit commits this offset.
        self.processed: int | None = None
        # The epochs of the records before `position` and before `fetch_offset`, if known.
        self.leader_epoch: int | None = None
        self.fetch_epoch: int | None = None
        # The newest leader epoch that is known to have the fetched records.
        self.validated_epoch = -1
        self.session = 0
        self.paused = False
        # Neither fetched nor handed out while a rebalance listener runs for it.
        self.held = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        # When a broker last answered a fetch of it, in milliseconds since 1970.
        self.fetched_at_ms: int | None = None
        self.buffered_bytes = 0
        # The preferred read replica that the leader named, and until when (loop time).
        self.read_replica: int | None = None
        self.read_replica_until = 0.0
        # No request for it before this loop time.
        self.not_before = 0.0
        # The number of the fetch that last returned records; the lowest number is fetched first.
        self.served = 0
        # Raised when all records were handed out; fetching continues after that.
        self.failure: Exception | None = None
        # Batches, or None for one that is skipped; each with the offset after it and its epoch.
        self._buffer: deque[tuple[FetchedBatch | None, int, int | None]] = deque()
        # The records of the first batch once it is opened, and how many of them were handed out.
        self._opened: list[ConsumerRecord[Any, Any]] | None = None
        self._taken = 0

    def __repr__(self) -> str:
        return f"<AssignedPartition {self.partition} position={self.position} buffered={self.buffered_bytes}>"

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        """Continue at this offset."""
        self.rewind(offset, leader_epoch)
        self.processed = offset

    def rewind(self, offset: int, leader_epoch: int | None) -> None:
        """Drop fetched records and fetch from this offset; processed records before it stay processed."""
        self._begin_session()
        self.reset = None
        self.position = self.fetch_offset = offset
        self.leader_epoch = self.fetch_epoch = leader_epoch
        self.validated_epoch = -1
        self.processed = None if self.processed is None else min(self.processed, offset)

    def seek_by(self, reset: Reset) -> None:
        """Look up the position again."""
        self._begin_session()
        self.reset = reset
        self.position = None

    def _begin_session(self) -> None:
        self.session += 1
        self._buffer.clear()
        self.buffered_bytes = 0
        self._opened = None
        self.failure = None
        self.not_before = 0.0

    @property
    def has_records(self) -> bool:
        """Whether there are records to hand out."""
        return bool(self._buffer) and not self.paused and not self.held

    def add(self, batch: FetchedBatch | None, next_offset: int, leader_epoch: int | None) -> None:
        """Store what was fetched at `fetch_offset`."""
        self.fetch_offset = next_offset
        self.fetch_epoch = leader_epoch
        if batch is None and not self._buffer:
            self._move_to(next_offset, leader_epoch)
            return
        self._buffer.append((batch, next_offset, leader_epoch))
        self.buffered_bytes += 0 if batch is None else batch.size

    def take_records(
        self, limit: int, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Hand out up to `limit` records, of no more batches than _HANDED_OUT_BYTES needs.

        An error is raised after the records before it.
        """
        taken: list[ConsumerRecord[Any, Any]] = []
        buffered_min = self.buffered_bytes - _HANDED_OUT_BYTES
        while self._buffer and limit > 0 and self.buffered_bytes > buffered_min:
            batch = self._buffer[0][0]
            assert batch is not None
            if self._opened is None:
                try:
                    self._opened, self._taken = self._open(batch, key_deserializer, value_deserializer), 0
                except Exception:
                    if taken:
                        break
                    raise
            records = self._opened
            is_whole = self._taken == 0 and len(records) <= limit
            piece = records if is_whole else records[self._taken : self._taken + limit]
            self._taken += len(piece)
            limit -= len(piece)
            if piece:
                self._move_to(piece[-1].offset + 1, batch.leader_epoch)
            if self._taken == len(records):
                self._finish_opened(batch)
            if taken:
                taken += piece
            else:
                taken = piece
        return taken

    def take_opened(self) -> ConsumerRecord[Any, Any] | None:
        """Hand out the next record of the opened batch, unless it is the last one, which closes the batch."""
        if self._opened is None or self._taken + 1 >= len(self._opened) or not self.has_records:
            return None
        record = self._opened[self._taken]
        self._taken += 1
        self.position = record.offset + 1
        return record

    def opened_ahead(self) -> list[ConsumerRecord[Any, Any]]:
        """Return the records of the opened batch that `take_opened` would hand out next."""
        return [] if self._opened is None or not self.has_records else self._opened[self._taken : -1]

    def take_ahead(self, count: int) -> None:
        """Note how many of those were handed out; the caller may still be processing the last one."""
        if count and self._opened is not None:
            done, last = self._taken + count - 2, self._taken + count - 1
            self.processed = self._opened[done].offset + 1 if count > 1 else self.position
            self.position = self._opened[last].offset + 1
            self._taken += count

    def take_batches(self) -> list[FetchedBatch]:
        """Hand out all batches, the first one without the records that were already handed out."""
        taken = []
        while self._buffer:
            batch = self._buffer[0][0]
            assert batch is not None
            if self.position is not None and self.position > batch.first_offset:
                batch.begin_at(self.position)
            taken.append(batch)
            self._pop()
        return taken

    def _open(self, batch: FetchedBatch, key: Deserializer | None, value: Deserializer | None) -> list[Any]:
        open_ahead(following for following, _, _ in self._buffer if following is not None)
        try:
            return batch.records(key, value)
        except CorruptBatchError as error:
            raise CorruptRecordError(f"{batch}: {error}") from error

    def _finish_opened(self, batch: FetchedBatch) -> None:
        """Continue after the opened records, which may end before the batch does."""
        assert self._opened is not None
        if len(self._opened) < len(batch.columns()):
            batch.begin_at(self._opened[-1].offset + 1)
            self._opened = None
        else:
            self._pop()

    def _pop(self) -> None:
        """Drop the first batch, and skipped batches after it."""
        self._opened = None
        batch, next_offset, leader_epoch = self._buffer.popleft()
        assert batch is not None
        self.buffered_bytes -= batch.size
        self._move_to(next_offset, leader_epoch)
        while self._buffer and self._buffer[0][0] is None:
            _, next_offset, leader_epoch = self._buffer.popleft()
            self._move_to(next_offset, leader_epoch)

    def _move_to(self, offset: int, leader_epoch: int | None) -> None:
        self.position, self.leader_epoch = offset, leader_epoch


class AssignedPartitions:
    """The current partitions of a consumer, and the two events between the caller and the fetcher.

    Records may be lent to another thread. Every access to a state ends the loan first: the records that the thread took
    until then count as handed out, and it can take no more.
    """

    def __init__(self) -> None:
        self._states: dict[TopicPartition, AssignedPartition] = {}
        self._lent: LentRecords | None = None
        # Set when there may be records to hand out, and when there may be partitions to fetch.
        self.arrived = asyncio.Event()
        self.wanted = asyncio.Event()
        self._turn = 0

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def __iter__(self) -> Iterator[AssignedPartition]:
        self.settle()
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def get(self, partition: TopicPartition) -> AssignedPartition | None:
        """Return the state of a partition, if it is assigned."""
        self.settle()
        return self._states.get(partition)

    def lend(self, state: AssignedPartition, poll_passed: Callable[[], None]) -> LentRecords | None:
        """Lend the opened records of a partition to another thread, if there are any."""
        self.settle()
        records = state.opened_ahead()
        if not records or self._states.get(state.partition) is not state:
            return None
        self._lent = LentRecords(state, records, poll_passed)
        return self._lent

    def settle(self) -> None:
        """Take back lent records."""
        if self._lent is not None:
            lent, self._lent = self._lent, None
            lent.give_back()

    def names(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._states)

    def add(self, partitions: Iterable[TopicPartition], reset: Reset | None) -> None:
        """Add partitions."""
        for partition in partitions:
            if partition not in self._states:
                self._states[partition] = AssignedPartition(partition, reset)
        self.wanted.set()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions, and drop their fetched records."""
        self.settle()
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.session += 1
        self.wanted.set()

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop to hand out records of these partitions for now."""
        self._set_held(partitions, held=True)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out their records again."""
        self._set_held(partitions, held=False)
        self.wanted.set()
        self.arrived.set()

    def _set_held(self, partitions: Iterable[TopicPartition], *, held: bool) -> None:
        self.settle()
        for partition in partitions:
            if (state := self._states.get(partition)) is not None:
                state.held = held

    def mark_processed(self) -> None:
        """Note that the caller asks for more, so it has processed all records that it got."""
        self.settle()
        for state in self._states.values():
            state.processed = state.position

    def in_turn(self, wanted: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Return the partitions, limited to `wanted` if given, starting with another one each time."""
        self.settle()
        names = set(wanted)
        states = [state for name, state in self._states.items() if not names or name in names]
        if not states:
            return []
        self._turn = (self._turn + 1) % len(states)
        return states[self._turn :] + states[: self._turn]

    def raise_failure(self, wanted: Iterable[TopicPartition]) -> None:
        """Raise the error of a partition to the reader, and clear it so that the partition is retried."""
        for state in self.in_turn(wanted):
            if state.failure is not None and not state.paused:
                failure, state.failure = state.failure, None
                self.wanted.set()
                raise failure


class LentRecords:
    """Records that another thread may take one by one, without a call to the event loop for each."""

    def __init__(
        self, state: AssignedPartition, records: list[ConsumerRecord[Any, Any]], poll_passed: Callable[[], None]
    ) -> None:
        self._state = state
        self._session = state.session
        self._records = records
        self._poll_passed = poll_passed
        # Under the lock, so that the event loop knows of every record that was taken.
        self._lock = threading.Lock()
        self._taken = 0
        self._is_over = False

    def take(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record; None if the caller must ask the event loop. For any thread."""
        with self._lock:
            if self._is_over or self._taken == len(self._records) or self._state.session != self._session:
                return None
            record = self._records[self._taken]
            self._taken += 1
        self._poll_passed()
        return record

    def give_back(self) -> None:
        """Record in the state what was taken. For the event loop's thread."""
        with self._lock:
            self._is_over = True
        if self._state.session == self._session:
            self._state.take_ahead(self._taken)


def joined_columns(batches: Sequence[FetchedBatch]) -> Columns:
    """Open batches and concatenate their columns; CorruptRecordError if one is damaged."""
    try:
        return open_together(batches)
    except CorruptBatchError as error:
        raise CorruptRecordError(str(error)) from error
