"""The state of one partition that is copied, and what was fetched of it. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.records import RecordBatch

_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 5.0


class PartitionCopy:
    """Where the copy of a partition stands. The log of the destination is the checkpoint; there is no other one."""

    __slots__ = (
        "bytes_copied",
        "end_offset",
        "error",
        "failures",
        "is_compacted",
        "last_timestamp",
        "partition",
        "position",
        "problem",
        "records_copied",
        "retry_at",
        "sequence",
        "source_end",
        "source_start",
        "start_offset",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        # Whether records may disappear from the middle of the source.
        self.is_compacted = False
        # The next offset to fetch; None while it must be looked up in the destination.
        self.position: int | None = None
        # Where the logs start and end, as far as we know: ours in the destination, and that of the source.
        self.start_offset = self.end_offset = 0
        self.source_start = self.source_end = 0
        # The next sequence of our producer, in a destination that needs one.
        self.sequence = 0
        # Why it is not copied any more; the user has to do something about it.
        self.problem: str | None = None
        # What went wrong last; it is tried again at this time of the loop.
        self.error: str | None = None
        self.retry_at = 0.0
        self.failures = 0
        self.records_copied = self.bytes_copied = 0
        # The largest timestamp among the records copied, in milliseconds; -1 before the first.
        self.last_timestamp = -1

    def __repr__(self) -> str:
        return f"PartitionCopy({self.partition}, {self.end_offset} of {self.source_end}, {self.problem or self.error})"

    @property
    def lag_records(self) -> int:
        """How many offsets the destination is behind the source, as far as we know."""
        return max(self.source_end - max(self.end_offset, self.source_start), 0)

    @property
    def lag_bytes(self) -> int:
        """An estimate: the size of the records copied so far stands for those to come."""
        return math.ceil(self.lag_records * self.bytes_copied / self.records_copied) if self.records_copied else 0

    def lag_seconds(self, now_ms: int) -> float:
        """How old the newest record copied is, while there are newer ones; 0 if there are none."""
        if self.lag_records == 0 or self.last_timestamp < 0:
            return 0.0
        return max(now_ms - self.last_timestamp, 0) / 1000

    def has_reached(self, end_offset: int) -> bool:
        """Whether the destination has what the source has below an offset, and no more."""
        # Records of a topic that is compacted, and nothing else, cannot be deleted in Apache Kafka.
        has_start = self.is_compacted or self.start_offset >= self.source_start
        return self.position is not None and self.end_offset >= end_offset and has_start

    def advance(self, end_offset: int) -> None:
        """Note that the destination has everything below an offset."""
        self.end_offset = end_offset
        self.error = None
        self.failures = 0

    def count(self, batches: Sequence[RecordBatch]) -> None:
        """Count batches that were copied."""
        for batch in batches:
            self.records_copied += batch.record_count
            self.bytes_copied += batch.size
            self.last_timestamp = max(self.last_timestamp, batch.max_timestamp)

    def retry(self, error: str, now: float) -> None:
        """Look up the position again after a pause, which grows with each failure."""
        self.error = error
        self.position = None
        self.retry_at = now + min(_PAUSE_SECONDS * 2**self.failures, _PAUSE_SECONDS_MAX)
        self.failures = min(self.failures + 1, 10)

    def halt(self, problem: str) -> None:
        """Stop copying this partition."""
        self.problem = problem
        self.position = None


class Fetched(NamedTuple):
    """What a fetch returned for one partition."""

    copy: PartitionCopy
    # Where it was fetched from.
    offset: int
    # Whole batches, in order, with their checksums verified, and the bytes that they are views of.
    batches: Sequence[RecordBatch]
    data: memoryview
    # The transactions among them that were aborted, if only committed records are wanted.
    aborted: Sequence[AbortedTransaction] = ()

    @property
    def next_offset(self) -> int:
        """The offset to fetch from next."""
        return self.batches[-1].next_offset if self.batches else self.offset
