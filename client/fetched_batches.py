"""From the answer to a Fetch request to records: batches are looked at one by one, and opened when they are read.

A fetch begins with the batch that holds the wanted offset, so records before it are passed over. It may end inside a
batch, which is dropped. Markers that end transactions are never handed out; with read_committed, neither are records
of transactions that were aborted, which the answer lists by producer id and first offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

from ottla.client.columns import Columns, decode_columns
from ottla.client.types import ConsumerRecord, KeyT, ValueT
from ottla.protocol.compression import decompress
from ottla.protocol.control_records import ControlType, read_marker
from ottla.protocol.errors import CompressionError, CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import (
    BATCH_HEADER_BYTES,
    MAGIC,
    RECORDS_BYTES_MAX,
    TIMESTAMP_TYPE_BIT,
    RecordBatch,
    batches,
)

if TYPE_CHECKING:
    from ottla.protocol.messages.fetch import AbortedTransaction
    from ottla.protocol.primitives import RecordData

Deserializer = Callable[[bytes], Any]


class FetchedBatch:
    """A batch of one partition, still closed; records before `first_offset` are not for this reader."""

    __slots__ = ("_batch", "_columns", "first_offset", "partition", "size")

    def __init__(self, partition: TopicPartition, batch: RecordBatch, first_offset: int) -> None:
        self.partition = partition
        self.first_offset = max(first_offset, batch.base_offset)
        self.size = batch.size
        self._batch = batch
        self._columns: Columns | None = None

    def __repr__(self) -> str:
        return f"<FetchedBatch {self.partition} {self.first_offset}..{self._batch.last_offset}>"

    @property
    def next_offset(self) -> int:
        """The offset behind the batch; records are missing in between where the log was compacted."""
        return self._batch.next_offset

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote it."""
        epoch = self._batch.partition_leader_epoch
        return None if epoch < 0 else epoch

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime."""
        return int(self._batch.attributes & TIMESTAMP_TYPE_BIT != 0)

    def begin_at(self, offset: int) -> None:
        """Leave out the records before an offset."""
        self.first_offset = offset
        if self._columns is not None:
            self._columns = self._columns.sliced(bisect_left(self._columns.offsets, offset))

    def columns(self) -> Columns:
        """Open it; CorruptBatchError where it is not well formed."""
        if self._columns is None:
            columns = decode_columns(
                _opened(self._batch),
                self._batch.record_count,
                self._batch.base_offset,
                self._batch.base_timestamp,
                self._batch.max_timestamp if self.timestamp_type else None,
            )
            begin = bisect_left(columns.offsets, self.first_offset)
            self._columns = columns.sliced(begin) if begin else columns
        return self._columns

    def records(
        self, key_deserializer: Deserializer | None = None, value_deserializer: Deserializer | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Open it, and make an object of each record, up to one that a deserializer refuses."""
        return make_records(
            self.partition, self.columns(), self.timestamp_type, self.leader_epoch, key_deserializer, value_deserializer
        )


def fetched_batches(
    partition: TopicPartition,
    data: RecordData | None,
    fetch_offset: int,
    aborted: Sequence[AbortedTransaction] | None = None,
    *,
    check_crcs: bool = True,
) -> Iterator[tuple[FetchedBatch | None, int, int | None]]:
    """Return the batches of a fetch that have something to read, each with the offset behind it and its leader epoch.

    None stands for a batch that is passed over. `aborted` is what the answer lists, None without read_committed;
    CorruptBatchError is raised where the next batch is bad.
    """
    begins = sorted(aborted or (), key=lambda row: row.first_offset, reverse=True)
    aborting: set[int] = set()
    for batch in batches(memoryview(b"") if data is None else data):
        if batch.next_offset <= fetch_offset:
            continue
        if check_crcs:
            batch.check()
        elif batch.magic != MAGIC:
            raise CorruptBatchError(f"magic {batch.magic} where only {MAGIC} is read")
        while begins and begins[-1].first_offset <= batch.last_offset:
            aborting.add(begins.pop().producer_id)
        epoch = None if batch.partition_leader_epoch < 0 else batch.partition_leader_epoch
        if batch.is_control:
            marker = read_marker(batch) if aborting else None
            if marker is not None and marker.control_type is ControlType.ABORT:
                aborting.discard(batch.producer_id)
            yield None, batch.next_offset, epoch
        elif (batch.is_transactional and batch.producer_id in aborting) or not batch.record_count:
            yield None, batch.next_offset, epoch
        else:
            yield FetchedBatch(partition, batch, fetch_offset), batch.next_offset, epoch


def _opened(batch: RecordBatch) -> bytes:
    view = batch.view[BATCH_HEADER_BYTES:]
    if not batch.is_compressed or not view:
        return bytes(view)
    try:
        return decompress(batch.codec, view, RECORDS_BYTES_MAX)
    except CompressionError as error:
        raise CorruptBatchError(str(error)) from error


class _Draft(Generic[KeyT, ValueT]):
    """A ConsumerRecord that is being filled in.

    The dataclass is frozen, so its own constructor stores each field by a call, which is most of the cost of a record.
    This class has the same base and slots, stores them directly, and then becomes the real one.
    """

    __slots__ = ConsumerRecord.__slots__


def make_records(
    topic_partition: TopicPartition,
    columns: Columns,
    timestamp_type: int,
    leader_epoch: int | None,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
) -> list[ConsumerRecord[Any, Any]]:
    """Make an object of each row, up to one that a deserializer refuses; null is not given to deserializers.

    What a deserializer raises about the first row is raised, with a note that says which record it was.
    """
    topic, partition = topic_partition
    made: list[Any] = []
    add, new, draft = made.append, _Draft.__new__, _Draft
    try:
        for offset, timestamp, key, value, headers in zip(
            columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers, strict=True
        ):
            record: Any = new(draft)
            record.topic = topic
            record.partition = partition
            record.offset = offset
            record.timestamp = timestamp
            record.timestamp_type = timestamp_type
            record.headers = headers
            record.leader_epoch = leader_epoch
            if key is None:
                record.key, record.serialized_key_size = None, -1
            else:
                record.serialized_key_size = len(key)
                record.key = key if key_deserializer is None else key_deserializer(key)
            if value is None:
                record.value, record.serialized_value_size = None, -1
            else:
                record.serialized_value_size = len(value)
                record.value = value if value_deserializer is None else value_deserializer(value)
            record.__class__ = ConsumerRecord
            add(record)
    except Exception as error:
        if not made:
            error.add_note(f"while deserializing offset {columns.offsets[0]} of {topic_partition}")
            raise
    return made
