"""From the answer to a Fetch request to records: batches are looked at one by one, and opened when they are read.

A fetch begins with the batch that holds the wanted offset, so records before it are passed over. It may end inside a
batch, which is dropped. Markers that end transactions are never handed out; with read_committed, neither are records
of transactions that were aborted, which the answer lists by producer id and first offset.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, repeat, takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from ottla.client.records.columns import Columns, decode_columns, open_records
from ottla.client.types import ConsumerRecord
from ottla.protocol.control_records import ControlType, read_marker
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import MAGIC, TIMESTAMP_TYPE_BIT, RecordBatch, batches

if TYPE_CHECKING:
    from ottla.protocol.messages.fetch import AbortedTransaction
    from ottla.protocol.primitives import RecordData

Deserializer = Callable[[bytes], Any]

# What numpy does for a batch costs as much as so many records without it.
_NUMPY_RECORDS_MIN: Final = 300
# And to load it takes as long as about this many.
_LOAD_RECORDS_MIN: Final = 200_000
_NUMPY_MODULE: Final = "ottla.client.records.lazy_columns"
# So many batches are looked at to be opened together, of at least so many records each.
_AHEAD_MAX: Final = 64
_AHEAD_RECORDS_MIN: Final = 32


class FetchedBatch:
    """A batch of one partition, still closed; records before `first_offset` are not for this reader."""

    __slots__ = ("_columns", "first_offset", "opens_alone", "partition", "record_batch", "size")
    records_without_numpy: ClassVar = 0

    def __init__(self, partition: TopicPartition, batch: RecordBatch, first_offset: int) -> None:
        self.partition = partition
        self.first_offset = max(first_offset, batch.base_offset)
        self.size = batch.size
        self.record_batch = batch
        self._columns: Columns | None = None
        # Whether it was seen to be bad, or to be near a bad one.
        self.opens_alone = False

    def __repr__(self) -> str:
        return f"<FetchedBatch {self.partition} {self.first_offset}..{self.record_batch.last_offset}>"

    @property
    def record_count(self) -> int:
        """As many records as it has, those before `first_offset` included."""
        return self.record_batch.record_count

    @property
    def next_offset(self) -> int:
        """The offset behind the batch; records are missing in between where the log was compacted."""
        return self.record_batch.next_offset

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote it."""
        epoch = self.record_batch.partition_leader_epoch
        return None if epoch < 0 else epoch

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime."""
        return int(self.record_batch.attributes & TIMESTAMP_TYPE_BIT != 0)

    def begin_at(self, offset: int) -> None:
        """Leave out the records before an offset."""
        self.first_offset = offset
        if self._columns is not None:
            self._columns = self._columns.sliced(bisect_left(self._columns.offsets, offset))

    def columns(self) -> Columns:
        """Open it; CorruptBatchError where it is not well formed."""
        if self._columns is None:
            numpy = _numpy_for(self.record_count)
            if numpy is None:
                FetchedBatch.records_without_numpy += self.record_count
                self._columns = self._decoded()
            else:
                self._columns = numpy.read_columns([self.record_batch], self.first_offset)
        return self._columns

    def _decoded(self) -> Columns:
        batch = self.record_batch
        columns = decode_columns(
            bytes(open_records(batch)),
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp,
            batch.max_timestamp if self.timestamp_type else None,
        )
        return self._begun(columns)

    def _begun(self, columns: Columns) -> Columns:
        """Return its columns without the records that are not for this reader."""
        if self.first_offset == self.record_batch.base_offset:
            return columns
        return columns.sliced(bisect_left(columns.offsets, self.first_offset))

    def may_open_ahead(self) -> bool:
        """Whether it is closed and may be opened together with others, with enough records to gain by it."""
        return self._columns is None and not self.opens_alone and self.record_count >= _AHEAD_RECORDS_MIN

    def open_with(self, columns: Columns) -> None:
        """Take the columns of the whole batch."""
        self._columns = self._begun(columns)

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


def open_together(following: Sequence[FetchedBatch]) -> Columns:
    """Open batches of one partition that follow each other, and put their columns one behind the other."""
    numpy = _numpy_for(sum(batch.record_count for batch in following), load=True)
    if numpy is None:
        columns = Columns.joined(batch.columns() for batch in following)
    else:
        columns = numpy.read_columns([batch.record_batch for batch in following], following[0].first_offset)
    return columns.of(following[0].partition) if following else columns


def open_ahead(following: Iterable[FetchedBatch]) -> None:
    """Open the first batch and some behind it at once, where numpy is quicker with many records than with few.

    Where one of them is bad, all stay closed: each is opened alone then, and the bad one raises in its turn.
    """
    closed = list(takewhile(FetchedBatch.may_open_ahead, islice(following, _AHEAD_MAX)))
    numpy = _numpy_for(sum(batch.record_count for batch in closed))
    if numpy is None or len(closed) < 2:
        return
    try:
        opened = numpy.read_each(batch.record_batch for batch in closed)
    except CorruptBatchError:
        for batch in closed:
            batch.opens_alone = True
    else:
        for batch, columns in zip(closed, opened, strict=False):
            batch.open_with(columns)


class _Numpy(NamedTuple):
    """What reads batches with numpy and Arrow."""

    read_columns: Callable[[Iterable[RecordBatch], int], Columns]
    read_each: Callable[[Iterable[RecordBatch]], list[Columns]]


def _numpy_for(record_count: int, *, load: bool = False) -> _Numpy | None:
    """Return what reads so many records, unless they are too few for it, or numpy or Arrow is not installed.

    They are loaded for those who want columns, or when as many records were read as that takes time.
    """
    if record_count < _NUMPY_RECORDS_MIN:
        return None
    is_due = FetchedBatch.records_without_numpy >= _LOAD_RECORDS_MIN
    return _loaded_numpy() if load or is_due or _NUMPY_MODULE in sys.modules else None


@cache
def _loaded_numpy() -> _Numpy | None:
    try:
        from ottla.client.records import lazy_columns
    except ImportError:
        return None
    return _Numpy(lazy_columns.read_columns, lazy_columns.read_each)


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
    keys: Sequence[Any] = columns.keys
    values: Sequence[Any] = columns.values
    if key_deserializer is not None or value_deserializer is not None:
        try:
            keys, values = _deserialized(columns, key_deserializer, value_deserializer)
        except Exception as error:
            error.add_note(f"while deserializing offset {columns.offsets[0]} of {topic_partition}")
            raise
    # The loop over the rows is map's, which ends with the shortest column.
    return list(
        map(
            ConsumerRecord,
            repeat(topic),
            repeat(partition),
            columns.offsets,
            columns.timestamps,
            repeat(timestamp_type),
            keys,
            values,
            columns.headers,
            _sizes(columns.keys),
            _sizes(columns.values),
            repeat(leader_epoch),
        )
    )


def _sizes(column: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return [-1 if item is None else len(item) for item in column]


def _deserialized(
    columns: Columns, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
) -> tuple[list[Any], list[Any]]:
    """Return keys and values up to the first row that is refused; if that is the first of all, raise what is wrong."""
    made_keys: list[Any] = []
    made_values: list[Any] = []
    try:
        for key, value in zip(columns.keys, columns.values, strict=True):
            if key is not None and key_deserializer is not None:
                key = key_deserializer(key)
            if value is not None and value_deserializer is not None:
                value = value_deserializer(value)
            made_keys.append(key)
            made_values.append(value)
    except Exception:
        if not made_keys:
            raise
    return made_keys, made_values
