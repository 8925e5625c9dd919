"""Requests that wait for a partition: fetches for records, produces for replicas, deletions for the low watermark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ottla.broker.common.purgatory import DelayedOperation, Purgatory
from ottla.broker.common.turn import put_off
from ottla.broker.storage.log import Appended
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition


class PartitionWaits:
    """The purgatories of all partitions. The key of an operation is its partition.

    `Partition` calls these methods when one of its values changes. It holds none of its locks then, because completing
    a request runs the code of its caller.
    """

    __slots__ = ("deletions", "fetches", "produces")

    def __init__(self) -> None:
        self.fetches = Purgatory("fetch")
        self.produces = Purgatory("produce")
        self.deletions = Purgatory("delete-records")

    def start(self) -> None:
        """Start to complete requests whose time is over."""
        self.fetches.start()
        self.produces.start()
        self.deletions.start()

    def stop(self) -> None:
        """Complete every waiting request as expired."""
        self.deletions.stop()
        self.produces.stop()
        self.fetches.stop()

    def appended(self, partition: TopicPartition) -> None:
        """Wake fetches, because the log has grown; at the end of the turn if this thread may append more.

        The caller may hold a group's lock: no produce completes here.
        """
        fetches = self.fetches
        if not fetches.waiting or not put_off(partition, lambda: fetches.check(partition)):
            fetches.check(partition)

    def moved(self, partition: TopicPartition) -> None:
        """Wake every request for a partition whose high watermark, role or log start changed."""
        self.produces.check(partition)
        self.fetches.check(partition)
        self.low_watermark_moved(partition)

    def low_watermark_moved(self, partition: TopicPartition) -> None:
        """Wake deletions of records, because a replica's log start may have changed, or its broker is gone."""
        if self.deletions:
            self.deletions.check(partition)


class PendingAppend(Struct, eq=False):
    """A batch that the leader has appended but not acknowledged yet. `Partition.append` returns it.

    With acks=all, it is acknowledged when every in-sync replica has it. If the topic requires a flush
    (`flush.messages`, `ottla.flush.before.ack`), it must also be on disk. Producers, groups and transactions wait for
    both in the same way.

    Appending and waiting are two steps. A group appends under its lock, so that its records are in the log in the order
    of its changes. It waits after it has released the lock, because `when_done` may call back at once.
    """

    partition: Partition
    appended: Appended
    _required_acks: int
    _is_flushed: bool
    _flush_error: KafkaError | None = None

    @property
    def outcome(self) -> ErrorCode | None:
        """Return NONE or an error; None while the batch must wait."""
        if self._flush_error is not None:
            return self._flush_error.code
        if self._required_acks == -1:
            error = self.partition.commit_error(self.appended.last_offset)
            if error is not ErrorCode.NONE:
                return error
        return ErrorCode.NONE if self._is_flushed else None

    @property
    def detail(self) -> str:
        """Details of an error beyond its code."""
        return "" if self._flush_error is None else self._flush_error.detail

    def await_flush(self) -> None:
        """Start to wait for the flush, if the batch needs one. The caller holds no lock: the flush may end at once."""
        if not self._is_flushed:
            self.partition.when_flushed(self.appended.last_offset + 1, self._flushed)

    def _flushed(self, error: KafkaError | None) -> None:
        self._flush_error = error
        self._is_flushed = True
        self.partition.waits.produces.check(self.partition.partition)


class PendingAppends(DelayedOperation):
    """Batches of one request that are acknowledged together."""

    __slots__ = ("_appends", "_done")

    def __init__(self, appends: Sequence[PendingAppend]) -> None:
        super().__init__()
        self._appends = appends
        self._done: Callable[[], None] = lambda: None

    def is_satisfied(self) -> bool:
        """Whether every batch has its outcome."""
        return all(append.outcome is not None for append in self._appends)

    def on_complete(self, *, expired: bool) -> None:
        """Call back. The outcome of a batch is None if its time is over."""
        self._done()

    def when_done(self, timeout_ms: int, done: Callable[[], None]) -> None:
        """Call `done` once, when every outcome is known or the time is over. The caller holds no lock."""
        self._done = done
        for append in self._appends:
            append.await_flush()
        if not self._appends or self.is_satisfied():
            self.complete()
            return
        keys = [append.partition.partition for append in self._appends]
        self._appends[0].partition.waits.produces.watch(self, keys, max(timeout_ms, 0) / 1000)
