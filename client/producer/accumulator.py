"""Collects records into batches by partition until they are sent, in bounded memory.

Memory is counted per batch, not per record. A new batch takes its maximum size, returns the unused part when it is
closed, and the rest when it is done. So a record that fits in an open batch needs no accounting.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ottla.client.errors import KafkaTimeoutError, MessageSizeTooLargeError
from ottla.client.net.metadata import TopicInfo
from ottla.client.producer.batch_split import halves
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.partitioner import partition_of_key
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.client.producer.settings import ProducerSettings
from ottla.protocol.identifiers import NO_OFFSET, TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import BATCH_HEADER_BYTES

# If the broker does not check sequences, only one batch may be in flight to keep the order.
_IN_FLIGHT_MAX_UNNUMBERED: Final = 1
# This producer does not send such a record, whatever the topic allows.
_MAX_REQUEST_SIZE_ADVICE: Final = (
    "Send smaller records, or raise max_request_size; max.message.bytes of the topic has to allow them, too."
)


class Memory:
    """A budget of bytes; callers are served in order."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """The number of callers that wait for bytes."""
        return len(self._waiters)

    def take_now(self, size: int) -> bool:
        """Take bytes if they are free and no caller waits."""
        if self._waiters or self.free < size:
            return False
        self.free -= size
        return True

    async def take(self, size: int, timeout_ms: int) -> None:
        """Wait until the bytes are free, and take them; KafkaTimeoutError if that takes too long."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = size, waiter
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self.give_back(size)
            else:
                self._waiters.remove(entry)
                self._serve()
            if isinstance(error, TimeoutError):
                raise KafkaTimeoutError(
                    f"buffer_memory of {self.total} bytes was full for {timeout_ms} ms: "
                    "the brokers are slower than the producer"
                ) from error
            raise

    def give_back(self, size: int) -> None:
        """Return bytes."""
        self.free += size
        self._serve()

    def _serve(self) -> None:
        while self._waiters and (self._waiters[0][0] <= self.free or self._waiters[0][1].cancelled()):
            size, waiter = self._waiters.popleft()
            if not waiter.done():
                self.free -= size
                waiter.set_result(None)


class TopicQueues:
    """The partitions of a topic as a producer sees them."""

    def __init__(self, metadata: TopicInfo, in_flight_max: int, sticky_bytes: int) -> None:
        self.name = metadata.name
        self._in_flight_max = in_flight_max
        self._sticky_bytes = sticky_bytes
        self._sticky_left = 0
        self._sticky: PartitionQueue | None = None
        # More than `count` if the topic was created again with fewer partitions; batches in the extra queues time out.
        self.queues: list[PartitionQueue] = []
        self.count = 0
        self.available: list[int] = []
        self.update(metadata)

    def update(self, metadata: TopicInfo) -> None:
        """Update the number of partitions, and which of them have a leader."""
        self.count = len(metadata.partitions)
        for index in range(len(self.queues), self.count):
            self.queues.append(PartitionQueue(TopicPartition(self.name, index), self._in_flight_max))
        self.available = [index for index, known in metadata.partitions.items() if known.leader is not None]
        if self._sticky is not None and self._sticky.partition.partition not in self.available:
            self._sticky = None

    def of_key(self, key: bytes) -> PartitionQueue:
        """Return the queue for a record with a key."""
        return self.queues[partition_of_key(key, self.count)]

    @property
    def sticky(self) -> PartitionQueue:
        """The queue for records without a key; it changes after each full batch."""
        if self._sticky is None:
            # Spreads batches over partitions; nobody gains by guessing it.
            choice = random.choice(self.available) if self.available else random.randrange(self.count)  # noqa: S311
            self._sticky = self.queues[choice]
            self._sticky_left = self._sticky_bytes
        return self._sticky

    def sent(self, queue: PartitionQueue, size: int) -> None:
        """Note that a batch of a queue is closed."""
        if queue is self._sticky:
            self._sticky_left -= size
            if self._sticky_left <= 0:
                self._sticky = None

    def unstick(self, queue: PartitionQueue) -> None:
        """Choose another queue for records without a key, if the current one is this one."""
        if queue is self._sticky:
            self._sticky = None


class Accumulator:
    """All batches that are not done; the producer fills them, the sender sends them."""

    def __init__(self, settings: ProducerSettings, ready: Callable[[PartitionQueue], None]) -> None:
        self._settings = settings
        # Called when a queue has a batch to send.
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        self._linger = settings.linger_ms / 1000
        self._delivery_timeout = settings.delivery_timeout_ms / 1000
        self._in_flight_max = (
            settings.max_in_flight_requests_per_connection if settings.is_idempotent else _IN_FLIGHT_MAX_UNNUMBERED
        )
        self.memory = Memory(settings.buffer_memory)
        self.topics: dict[str, TopicQueues] = {}
        # Batches whose futures are not done.
        self.unfinished: set[ProducerBatch] = set()
        # While a caller flushes, batches do not linger.
        self.flushing = 0

    def update(self, metadata: TopicInfo) -> TopicQueues:
        """Update the queues of a topic from its metadata."""
        known = self.topics.get(metadata.name)
        if known is None:
            known = TopicQueues(metadata, self._in_flight_max, self._settings.max_batch_size)
            self.topics[metadata.name] = known
        else:
            known.update(metadata)
        return known

    async def room(self, queue: PartitionQueue, record_bytes: int, sticky: bool) -> ProducerBatch:
        """Return a batch with space for a record; wait for memory if needed.

        With `sticky`, the record may go to another partition if the batch of this one is full.
        """
        topic = self.topics[queue.partition.topic]
        if queue.open is not None:
            self.close_batch(queue)
            # A caller that sends without a pause would otherwise block the event loop.
            await asyncio.sleep(0)
            if sticky:
                topic.unstick(queue)
                queue = topic.sticky
            if queue.open is not None and self._has_room(queue, record_bytes):
                return queue.open
        return await self._open(queue, record_bytes)

    async def _open(self, queue: PartitionQueue, record_bytes: int) -> ProducerBatch:
        size = BATCH_HEADER_BYTES + record_bytes
        if size > self._settings.max_request_size:
            error = MessageSizeTooLargeError(
                f"a record of {record_bytes} bytes is larger than max_request_size={self._settings.max_request_size}"
            )
            error.advice = _MAX_REQUEST_SIZE_ADVICE
            raise error
        size = max(size, self._settings.max_batch_size)
        if not self.memory.take_now(size):
            for waiting in self.queues():
                self.close_batch(waiting)
            await self.memory.take(size, self._settings.max_block_ms)
            if queue.open is not None and self._has_room(queue, record_bytes):
                # Another task was served first.
                self.memory.give_back(size)
                return queue.open
        self.close_batch(queue)
        batch = queue.open = self.add(queue, RecordBatchBuilder(), size)
        if self._linger and not self.flushing:
            self._loop.call_later(self._linger, self._lingered, queue, batch)
        else:
            self._ready(queue)
        return batch

    def _has_room(self, queue: PartitionQueue, record_bytes: int) -> bool:
        batch = queue.open
        return batch is not None and batch.builder.size + record_bytes <= self._settings.max_batch_size

    def add(
        self, queue: PartitionQueue, builder: RecordBatchBuilder, reserved_bytes: int, *, may_split: bool = True
    ) -> ProducerBatch:
        """Add a batch to the end of a queue; the caller announces when it is ready."""
        batch = ProducerBatch(
            queue.partition,
            builder,
            future=self._loop.create_future(),
            order=queue.next_order(),
            deadline=self._loop.time() + self._delivery_timeout,
            reserved_bytes=reserved_bytes,
            may_split=may_split,
        )
        queue.waiting.append(batch)
        self.unfinished.add(batch)
        return batch

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Replace a batch in flight by smaller ones; they share its memory, its deadline and its place."""
        pieces: list[ProducerBatch] = []
        left = batch.reserved_bytes
        for builder in halves(batch.builder):
            piece = ProducerBatch(
                batch.partition,
                builder,
                future=self._loop.create_future(),
                order=batch.order,
                deadline=batch.deadline,
                # Each has a header of its own, so there may be a little too little for the last one.
                reserved_bytes=min(builder.size, left),
            )
            left -= piece.reserved_bytes
            piece.rank = (*batch.rank, len(pieces))
            pieces.append(piece)
        queue.split(batch, pieces)
        batch.split_into(pieces)
        self.unfinished.discard(batch)
        self.unfinished.update(pieces)
        self.memory.give_back(left)

    def close_batch(self, queue: PartitionQueue) -> None:
        """Close the open batch of a queue, if it has one, and announce that it is ready."""
        if queue.open is not None:
            self.seal(queue)
            self._ready(queue)

    def seal(self, queue: PartitionQueue) -> None:
        """Close the open batch of a queue."""
        batch, queue.open = queue.open, None
        if batch is not None:
            size = batch.builder.size
            self.topics[queue.partition.topic].sent(queue, size)
            self.memory.give_back(batch.reserved_bytes - size)
            batch.reserved_bytes = size

    def withdraw(self, batch: ProducerBatch) -> None:
        """Remove a batch that got no record."""
        queue = self.topics[batch.partition.topic].queues[batch.partition.partition]
        if not batch.record_count and batch is queue.open:
            queue.open = None
            queue.waiting.remove(batch)
            batch.succeed(NO_OFFSET)
            self.release(batch)

    def is_ready(self, queue: PartitionQueue) -> bool:
        """Whether the first batch of a queue should be sent now instead of waiting for more records."""
        if not queue.waiting:
            return False
        return queue.waiting[0] is not queue.open or not self._linger or self.flushing > 0

    def release(self, batch: ProducerBatch) -> None:
        """Forget a batch that is done."""
        if batch in self.unfinished:
            self.unfinished.discard(batch)
            self.memory.give_back(batch.reserved_bytes)

    def queues(self) -> Iterator[PartitionQueue]:
        """Return all queues."""
        return (queue for topic in self.topics.values() for queue in topic.queues)

    def _lingered(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if queue.open is batch:
            self.close_batch(queue)
