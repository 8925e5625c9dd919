"""A batch on its way to a partition, and the futures that callers hold."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from typing import Any, Final

from ottla.client.errors import IllegalStateError
from ottla.client.types import RecordMetadata
from ottla.protocol.compression import Codec
from ottla.protocol.identifiers import NO_OFFSET, TopicPartition
from ottla.protocol.record_batch_builder import HeadersToWrite, RecordBatchBuilder, record_size_max
from ottla.protocol.records import BATCH_HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TimestampType

# Replaces the records of a batch that is done, because callers may keep deliveries for long.
_NO_RECORDS: Final = RecordBatchBuilder()


class ProducerBatch:
    """Records of one partition that are written, retried and acknowledged together.

    All its records share one future. A record is identified by its index in the batch, and its metadata is created when
    a caller asks for it.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "deadline",
        "encoded",
        "future",
        "is_in_doubt",
        "last_error",
        "log_append_time",
        "log_start_offset",
        "may_split",
        "order",
        "partition",
        "piece_begins",
        "pieces",
        "producer_epoch",
        "producer_id",
        "rank",
        "reserved_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        builder: RecordBatchBuilder,
        *,
        future: asyncio.Future[None],
        order: int,
        deadline: float,
        reserved_bytes: int = 0,
        may_split: bool = True,
    ) -> None:
        self.partition = partition
        self.builder = builder
        # Done when the batch is acknowledged or has failed; its exception applies to every record.
        self.future = future
        # The position among the batches of its partition; retries do not change it.
        self.order = order
        # The same, and the position among the pieces of a batch that was split.
        self.rank: tuple[int, ...] = (order,)
        # The batches that replace this one, and the index of the first record of each.
        self.pieces: Sequence[ProducerBatch] = ()
        self.piece_begins: Sequence[int] = ()
        self.may_split = may_split
        # Whether an attempt to send it has ended without telling whether the broker has written it.
        self.is_in_doubt = False
        self.deadline = deadline
        self.reserved_bytes = reserved_bytes
        self.attempts = 0
        self.last_error: Exception | None = None
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        # The encoded bytes, valid while producer and sequence stay the same.
        self.encoded: bytearray | None = None
        self.base_offset = NO_OFFSET
        self.log_append_time = -1
        self.log_start_offset: int | None = None

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.partition} #{self.order} records={self.record_count} seq={self.base_sequence}>"

    @property
    def record_count(self) -> int:
        """The number of records."""
        return self.builder.record_count

    @property
    def has_sequence(self) -> bool:
        """Whether it has a sequence, and may have been sent."""
        return self.base_sequence != NO_SEQUENCE

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set or remove its producer and sequence; it is encoded again."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.encoded = None

    def encode(self, codec: Codec, *, transactional: bool = False, level: int | None = None) -> bytearray:
        """Return its bytes."""
        if self.encoded is None:
            self.encoded = self.builder.build(
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=transactional,
                codec=codec,
                level=level,
            )
        return self.encoded

    def split_into(self, pieces: Sequence[ProducerBatch]) -> None:
        """Let other batches take its place; it is done when all of them are, and its records fare as theirs do."""
        self.pieces = pieces
        self.piece_begins = list(accumulate((piece.record_count for piece in pieces[:-1]), initial=0))
        left = len(pieces)

        def ended(_: asyncio.Future[None]) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.future.set_result(None)

        for piece in pieces:
            piece.future.add_done_callback(ended)
        self._drop_records()

    def succeed(self, base_offset: int, log_append_time: int = -1, log_start_offset: int | None = None) -> None:
        """Complete the future: the records are written."""
        if not self.future.done():
            self.base_offset = base_offset
            self.log_append_time = log_append_time
            self.log_start_offset = log_start_offset
            self.future.set_result(None)
            self._drop_records()

    def fail(self, error: Exception) -> None:
        """Fail the future: the records are given up."""
        if not self.future.done():
            self.future.set_exception(error)
            self._drop_records()

    def _drop_records(self) -> None:
        self.builder = _NO_RECORDS
        self.encoded = None


class Delivery:
    """A record that was sent: await it to get its metadata, or the error if it was not written.

    Many tasks may await it, many times; cancelling one of them does not affect the others.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def __repr__(self) -> str:
        return f"<Delivery {self._batch.partition} done={self.done()}>"

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        future = self._batch.future
        if not future.done():
            yield from asyncio.shield(future).__await__()
        return self.result()

    def done(self) -> bool:
        """Whether the record is written or has failed."""
        return self._located()[0].future.done()

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback` on the event loop when the record is written or has failed."""
        self._batch.future.add_done_callback(lambda _: callback(self))

    def exception(self) -> BaseException | None:
        """Return the error if the record failed; InvalidStateError while it is in flight."""
        return self._located()[0].future.exception()

    def result(self) -> RecordMetadata:
        """Return the metadata of the record, or raise its error; InvalidStateError while it is in flight."""
        batch, index = self._located()
        batch.future.result()
        by_broker = batch.log_append_time >= 0
        return RecordMetadata(
            batch.partition.topic,
            batch.partition.partition,
            batch.partition,
            batch.base_offset + index if batch.base_offset >= 0 else NO_OFFSET,
            batch.log_append_time if by_broker else self._timestamp,
            TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
            batch.log_start_offset,
        )

    def _located(self) -> tuple[ProducerBatch, int]:
        """Return the batch that has the record now, and its index there."""
        batch, index = self._batch, self._index
        while batch.pieces:
            piece = bisect_right(batch.piece_begins, index) - 1
            batch, index = batch.pieces[piece], index - batch.piece_begins[piece]
        return batch, index


class BatchBuilder:
    """A batch that the caller fills, for `Producer.send_batch`; its records are written together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._closed = False
        self.builder = RecordBatchBuilder()

    def append(
        self,
        *,
        value: bytes | None = None,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: HeadersToWrite = (),
    ) -> int | None:
        """Add a record; return its index in the batch, or None when the batch is full."""
        if self._closed:
            raise IllegalStateError("the batch is closed: it was sent, or close() was called")
        builder = self.builder
        if builder.record_count and builder.size + record_size_max(key, value, headers) > self._max_bytes:
            return None
        return builder.append(int(time.time() * 1000) if timestamp is None else timestamp, key, value, headers)

    def record_count(self) -> int:
        """Return the number of records."""
        return self.builder.record_count

    def size(self) -> int:
        """Return its size in bytes, before compression."""
        return self.builder.size if self.builder.record_count else BATCH_HEADER_BYTES

    def close(self) -> None:
        """Take no more records."""
        self._closed = True
