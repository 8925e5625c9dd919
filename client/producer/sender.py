"""Sends batches to the leaders of their partitions, and handles the responses.

There is no task per broker. `_drain` runs after each event that may allow a send: a batch is ready, a response arrived,
a connection is open, metadata changed, a backoff is over. It sends what it can without waiting, and requests what is
missing for the rest. A failure in one partition puts its batch back into the queue; other partitions go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.client.errors import InvalidRecordError, KafkaConnectionError, KafkaError, KafkaTimeoutError, error_for
from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.backoff import Backoff
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.settings import HostPort
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.numbering import GAPS, IdempotentNumbering, Numbering, Unnumbered
from ottla.client.producer.partition_queue import BatchVerdict, PartitionQueue
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.client.producer.producer_metrics import ProducerMetrics
from ottla.client.producer.settings import ProducerSettings
from ottla.client.producer.transactions import Transactions
from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

log = logging.getLogger(__name__)

# The first version with batches of magic 2, and the first that accepts zstd.
_VERSION_MIN: Final = 3
_VERSION_MIN_ZSTD: Final = 7
# From the next version on, brokers add partitions to transactions by themselves, under other rules.
_VERSION_MAX: Final = 11
_EXPIRY_CHECK_S: Final = 0.1

# After these errors it is certain that the batch was not written. A leader may send others, such as
# NOT_LEADER_OR_FOLLOWER, when it has written the batch and waits for its followers.
_NOT_WRITTEN: Final = GAPS | {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS}

_Sent = list[tuple[PartitionQueue, ProducerBatch]]


class Sender:
    """The sending half of a producer; everything runs on the event loop, and nothing is called concurrently."""

    def __init__(self, cluster: ClusterClient, settings: ProducerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._codec = Codec.from_config_name(settings.compression_type or "none")
        self._version_min = _VERSION_MIN_ZSTD if self._codec is Codec.ZSTD else _VERSION_MIN
        self.accumulator = Accumulator(settings, self.ready)
        self.metrics = ProducerMetrics()
        # Queues with a batch to send, in the order in which they became ready.
        self._pending: dict[PartitionQueue, None] = {}
        self._scheduled = False
        # The number of Produce requests in flight, by connection; the event is set while there is none.
        self._in_flight: dict[AsyncioConnection, int] = {}
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        # Set with a transactional_id.
        self.transactions = Transactions(cluster, settings, self) if settings.transactional_id else None
        self._numbering: Numbering = self.transactions or (
            IdempotentNumbering(cluster, settings, self) if settings.is_idempotent else Unnumbered()
        )
        self._backoffs: dict[PartitionQueue, Backoff] = {}
        # Why there is no connection, by leader.
        self._unreachable: dict[int, KafkaError] = {}
        # The next call of `_wake_up`, and its loop time, which handles of uvloop do not tell.
        self._wake: asyncio.Handle | None = None
        self._wake_at = 0.0
        self._expiring = self._loop.call_later(_EXPIRY_CHECK_S, self._expire)
        cluster.add_listener(lambda _: self.wake())

    def ready(self, queue: PartitionQueue) -> None:
        """Note that a queue has a batch to send."""
        self._pending[queue] = None
        self.wake()

    async def flush(self) -> None:
        """Send all batches now, and wait until they are written or have failed."""
        accumulator = self.accumulator
        accumulator.flushing += 1
        try:
            for queue in accumulator.queues():
                accumulator.close_batch(queue)
            futures = [batch.future for batch in accumulator.unfinished]
            if futures:
                await asyncio.wait(futures)
        finally:
            accumulator.flushing -= 1

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail all batches that are not in flight."""
        for queue in self.accumulator.queues():
            for batch in queue.drop_waiting():
                self._give_up(batch, error)

    def abandon(self, error: KafkaError) -> None:
        """Fail all batches; those in flight may still be written."""
        self.fail_waiting(error)
        for queue in self.accumulator.queues():
            for batch in queue.in_flight:
                self._give_up(batch, error, keep=True)

    async def wait_for_answers(self) -> None:
        """Wait until brokers have answered all that is in flight, or cannot do so any more."""
        await self._is_quiet.wait()

    async def close(self) -> None:
        """Stop; all unacknowledged batches fail."""
        self._expiring.cancel()
        if self._wake is not None:
            self._wake.cancel()
        self._scheduled = True
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for batch in list(self.accumulator.unfinished):
            self._give_up(
                batch, KafkaTimeoutError(f"the producer was closed before the batch for {batch.partition} was written")
            )

    def wake(self) -> None:
        """Send what can be sent now."""
        if not self._scheduled and self._pending:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def _schedule_at(self, when: float) -> None:
        if self._wake is None or self._wake_at > when:
            if self._wake is not None:
                self._wake.cancel()
            self._wake, self._wake_at = self._loop.call_at(when, self._wake_up), when

    def _wake_up(self) -> None:
        self._wake = None
        self.wake()

    def _drain(self) -> None:
        """Send all that can be sent now."""
        self._scheduled = False
        now = self._loop.time()
        by_connection: dict[AsyncioConnection, list[PartitionQueue]] = {}
        for queue in list(self._pending):
            if not self.accumulator.is_ready(queue):
                del self._pending[queue]
                continue
            if now < queue.retry_at:
                self._schedule_at(queue.retry_at)
                continue
            connection = self._connection(queue)
            if connection is not None and queue.can_send(connection, now):
                by_connection.setdefault(connection, []).append(queue)
        for connection, queues in by_connection.items():
            while queues and self._in_flight.get(connection, 0) < self._settings.max_in_flight_requests_per_connection:
                self._send(connection, queues, now)
                queues = [
                    queue for queue in queues if self.accumulator.is_ready(queue) and queue.can_send(connection, now)
                ]

    def _connection(self, queue: PartitionQueue) -> AsyncioConnection | None:
        """Return the connection to send on if everything needed is there; request what is missing otherwise."""
        if not self._numbering.admits(queue):
            return None
        leader = self._cluster.leader(queue.partition)
        if leader is None:
            self._cluster.request_refresh()
            return None
        connection = self._cluster.ready(leader)
        if connection is None:
            self.start(leader, partial(self._connect, leader))
        return connection

    def start(self, name: object, work: Callable[[], Any]) -> None:
        """Run a coroutine function in the background, unless one of this name runs; wake up when it has ended."""
        if name not in self._tasks:
            task = self._tasks[name] = asyncio.create_task(work())
            task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: object, _: asyncio.Task[None]) -> None:
        del self._tasks[name]
        self.wake()

    async def _connect(self, leader: int) -> None:
        try:
            await self._cluster.connection(leader)
            self._unreachable.pop(leader, None)
        except KafkaError as error:
            self._unreachable[leader] = error
            # The metadata may name another leader soon. Until then this one is retried with a growing backoff.
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)

    def _send(self, connection: AsyncioConnection, queues: list[PartitionQueue], now: float) -> None:
        """Send one request, with the first batch of as many queues as fit."""
        sent: _Sent = []
        topics: dict[str, list[PartitionProduceData]] = {}
        size = 0
        for queue in queues:
            batch = queue.waiting[0]
            if sent and size + batch.builder.size > self._settings.max_request_size:
                break
            if batch is queue.open:
                self.accumulator.seal(queue)
            queue.take(connection, self._settings.is_idempotent)
            try:
                records = batch.encode(
                    self._codec,
                    transactional=self._settings.transactional_id is not None,
                    level=self._settings.compression_level,
                )
            except ProtocolError as error:
                self._failed([(queue, batch)], InvalidRecordError(str(error)))
                continue
            size += len(records)
            sent.append((queue, batch))
            created_at = batch.deadline - self._settings.delivery_timeout_ms / 1000
            self.metrics.sent(batch, len(records), (now - created_at) * 1000)
            partition = PartitionProduceData(index=queue.partition.partition, records=records)
            topics.setdefault(queue.partition.topic, []).append(partition)
            # Start with other queues the next time.
            self._pending[queue] = self._pending.pop(queue, None)
        if not sent:
            return
        self.metrics.requested(sum(batch.record_count for _, batch in sent))
        request = ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks_number,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=rows) for name, rows in topics.items()],
        )
        try:
            version = connection.version(Api.PRODUCE, self._version_min, _VERSION_MAX)
            parts = encode_parts(request, version)
            if not self._settings.acks_number:
                connection.post(Api.PRODUCE, version, parts)
                for queue, batch in sent:
                    self._written(queue, batch, -1, -1, None)
                return
            answer = connection.submit(Api.PRODUCE, version, parts)
        except (KafkaError, ProtocolError) as error:
            self._failed(sent, error if isinstance(error, KafkaError) else KafkaError(str(error)))
            return
        self._in_flight[connection] = self._in_flight.get(connection, 0) + 1
        self._is_quiet.clear()
        answer.add_done_callback(partial(self._answered, connection, sent))

    def _answered(self, connection: AsyncioConnection, sent: _Sent, answer: asyncio.Future[Any]) -> None:
        left = self._in_flight[connection] - 1
        if left:
            self._in_flight[connection] = left
        else:
            del self._in_flight[connection]
        try:
            self._take_in(connection.address, sent, answer)
        finally:
            if not self._in_flight:
                self._is_quiet.set()

    def _take_in(self, leader: HostPort, sent: _Sent, answer: asyncio.Future[Any]) -> None:
        error = answer.exception()
        if isinstance(error, KafkaError):
            self._cluster.request_refresh(doubted=leader)
            self._failed(sent, error)
            return
        response = answer.result()
        rows = {
            TopicPartition(topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for queue, batch in sent:
            row = rows.get(batch.partition)
            if row is None:
                self._failed([(queue, batch)], KafkaConnectionError(f"the response does not mention {batch.partition}"))
            elif row.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._written(queue, batch, row.base_offset, row.log_append_time_ms, row.log_start_offset)
            else:
                error = error_for(row.error_code, self._detail(batch, row))
                if error.invalid_metadata:
                    hint = row.current_leader
                    if not self._cluster.learn_leader(
                        batch.partition, hint.leader_id, hint.leader_epoch, response.node_endpoints
                    ):
                        self._cluster.request_refresh()
                elif error.code is ErrorCode.REQUEST_TIMED_OUT:
                    # Perhaps others have another leader, and this one has not heard of it.
                    self._cluster.request_refresh(doubted=leader)
                self._failed([(queue, batch)], error)
        self.wake()

    @staticmethod
    def _detail(batch: ProducerBatch, row: Any) -> str:
        reasons = [row.error_message, *(error.batch_index_error_message for error in row.record_errors)]
        said = "; ".join(reason for reason in reasons if reason)
        return f"{batch.partition} refused a batch of {batch.builder.size} bytes" + (f": {said}" if said else "")

    def _written(
        self, queue: PartitionQueue, batch: ProducerBatch, offset: int, append_time: int, log_start: int | None
    ) -> None:
        queue.written(batch)
        self._backoffs.pop(queue, None)
        batch.succeed(offset, append_time, log_start)
        self.accumulator.release(batch)

    def _failed(self, sent: _Sent, error: KafkaError) -> None:
        retried = 0
        for queue, batch in sent:
            if self._can_split(batch, error):
                log.info("splitting a batch of %d records for %s: %s", batch.record_count, batch.partition, error)
                self.accumulator.split(queue, batch)
                self.metrics.split()
                self.ready(queue)
                continue
            batch.is_in_doubt = batch.is_in_doubt or error.code not in _NOT_WRITTEN
            verdict = self._numbering.verdict(queue, batch, error)
            queue.failed(batch, verdict)
            batch.last_error = error
            if verdict is BatchVerdict.REFUSED:
                self._give_up(batch, error)
            elif batch.future.done():
                self.accumulator.release(batch)
            else:
                retried += 1
                self.metrics.retried(batch)
                if verdict is BatchVerdict.RETRY or batch.attempts > 1:
                    self._back_off(queue)
            self.ready(queue)
        if retried:
            log.warning("sending %d batches again, the first for %s: %s", retried, sent[0][1].partition, error)

    def _can_split(self, batch: ProducerBatch, error: KafkaError) -> bool:
        """Whether a batch may be written in smaller ones.

        A broker recognises a batch by its first and last sequence, so one that may be in the log already must stay as
        it is. So must one that the caller has made, whose records are written together.
        """
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE or batch.record_count < 2 or not batch.may_split:
            return False
        return not (self._settings.is_idempotent and batch.is_in_doubt)

    def _back_off(self, queue: PartitionQueue) -> None:
        """Make a queue wait before it sends again; batches that fail together count as one failure."""
        now = self._loop.time()
        if now >= queue.retry_at:
            backoff = self._backoffs.get(queue)
            if backoff is None:
                backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
                self._backoffs[queue] = backoff
            queue.retry_at = now + backoff.next()

    def _expire(self) -> None:
        """Give up batches that were not delivered in time."""
        now = self._loop.time()
        if self.accumulator.unfinished:
            for queue in list(self.accumulator.queues()):
                for batch in queue.expired(now):
                    self._give_up(batch, self._expiry(batch), keep=batch in queue.in_flight)
        self._expiring = self._loop.call_later(_EXPIRY_CHECK_S, self._expire)

    def _expiry(self, batch: ProducerBatch) -> KafkaTimeoutError:
        leader = self._cluster.leader(batch.partition)
        reason: object = batch.last_error or (None if leader is None else self._unreachable.get(leader))
        if leader is None:
            reason = "the partition has no leader"
        return KafkaTimeoutError(
            f"{batch.partition} did not acknowledge {batch.record_count} records within "
            f"delivery_timeout_ms={self._settings.delivery_timeout_ms}; sent {batch.attempts} times"
            + (f"; {reason}" if reason else "")
        )

    def _give_up(self, batch: ProducerBatch, error: KafkaError, *, keep: bool = False) -> None:
        """Fail a batch; with `keep` its memory stays reserved, because it may still be in flight."""
        if not batch.future.done():
            self.metrics.given_up(batch)
        batch.fail(error)
        if not keep:
            self.accumulator.release(batch)
        self._numbering.gave_up(error)
