"""Copies to brokers of Apache Kafka, by requests that every client may send, and keeps all offsets.

Each record is appended once, also if a mirror is killed and another one goes on. All of them use the same producer id:
that of a transactional id, which is looked up and never taken anew. The sequence of a batch follows from those that the
partition has, so a batch that arrives late is a duplicate, or out of order, and the broker refuses it.

Markers have no such numbers. Only one mirror may write them at a time: it holds a `Lease`. A mirror that was killed
holds it a few seconds longer, and by then the brokers have handled what it had sent. After an answer that was lost, the
mirror waits as long. Each answer says at which offset a batch lies; if that is ever another one than in the source, the
partition is not copied any further, and the mirror says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError, LocalError, PolicyViolationError, TransactionalIdNotFoundError, error_for
from ottla.client.mirror.errors import MirrorError
from ottla.client.mirror.kafka_steps import SEQUENCES, Fill, Producer, Send, filler, sent_by, steps
from ottla.client.mirror.lease import Lease
from ottla.client.mirror.partition_copy import Fetched, PartitionCopy
from ottla.client.mirror.selection import OWN_PREFIX
from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.errors import CorruptBatchError, ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.records import RecordBatch

_LANE: Final = "mirror-append"
_PRODUCE_VERSION_MIN: Final = 7
_ACKS_ALL: Final = -1
# A broker remembers this many batches of a producer, to know those that come again.
_IN_FLIGHT_MAX: Final = 5
_PARTITIONS_AT_ONCE: Final = 64
_MARKERS_AT_ONCE: Final = 500
# Each is a batch of 78 bytes in the log. More than this in one hole is hardly what anybody wants.
_HOLE_MAX: Final = 5_000_000
_FILLER_RECORDS: Final = 20_000
# How long requests whose answers were lost may still take effect.
_SETTLE_SECONDS: Final = 6.0

_SENT_BY_ANOTHER: Final = "another mirror has written to the destination: only one may, or give them different --name"


class KafkaDestination:
    """Appends by Produce, and fills holes by WriteTxnMarkers."""

    copies_bytes = False

    def __init__(self, admin: Admin, name: str) -> None:
        """`name` is the same for all mirrors that copy the same topics here."""
        self._admin = admin
        self._cluster = admin.cluster
        self._transactional_id = OWN_PREFIX + name
        self._lease = Lease(self._cluster, self._transactional_id)
        self._producer = Producer(-1, -1)
        # When the requests of a partition whose answers were lost have certainly been handled; in loop time.
        self._settled_at: dict[TopicPartition, float] = {}

    async def start(self) -> None:
        """Take the lease and the producer id; MirrorError if another mirror has the lease."""
        await self._lease.take()
        try:
            (found,) = await self._admin.describe_transactions([self._transactional_id])
            self._producer = Producer(found.producer_id, found.producer_epoch)
        except TransactionalIdNotFoundError:
            (made,) = await self._admin.fence_producers([self._transactional_id])
            self._producer = Producer(made.producer_id, made.producer_epoch)

    async def close(self) -> None:
        """Give the lease back, so that the next mirror need not wait; not while markers may be under way."""
        await self._lease.give_back(at_once=not self._settled_at)

    async def prepare(self, copies: Sequence[PartitionCopy]) -> None:
        """Learn the next sequence in each partition."""
        if not copies:
            return
        now = asyncio.get_running_loop().time()
        by_partition = {copy.partition: copy for copy in copies}
        for found in await self._admin.describe_producers(list(by_partition), raise_errors=False):
            partition = TopicPartition(found.topic, found.partition)
            copy = by_partition[partition]
            if found.error is not None:
                copy.retry(str(found.error), now)
                continue
            copy.sequence = 0
            for known in found.producers:
                if known.producer_id != self._producer.producer_id:
                    continue
                if known.producer_epoch > self._producer.producer_epoch:
                    raise MirrorError(f"{partition}: {_SENT_BY_ANOTHER}.")
                if known.last_sequence is not None:
                    copy.sequence = (known.last_sequence + 1) % SEQUENCES
            if self._settled_at.get(partition, 0.0) > now:
                copy.retry("waits until requests with lost answers are over", now)

    async def append(self, fetched: Sequence[Fetched]) -> None:
        """Append what was fetched, partitions side by side."""
        limit = asyncio.Semaphore(_PARTITIONS_AT_ONCE)

        async def one(each: Fetched) -> None:
            async with limit:
                await self._append(each)

        await asyncio.gather(*map(one, fetched))

    async def _append(self, fetched: Fetched) -> None:
        copy = fetched.copy
        if not fetched.batches and copy.source_start <= copy.start_offset:
            copy.advance(copy.end_offset)
            return
        try:
            self._lease.check()
            await self._follow_start(copy)
            appends = _Appends(self, copy)
            for step in steps(fetched.batches, copy.end_offset, fetched.aborted):
                if isinstance(step, Fill):
                    await appends.drain()
                    await self._fill(copy, step.offsets)
                else:
                    await appends.send(step)
            await appends.drain()
            await self._delete_before(copy, copy.source_start)
            copy.advance(copy.end_offset)
            copy.count(fetched.batches)
        except (_DivergedError, CorruptBatchError) as error:
            copy.halt(str(error))
        except MirrorError:
            raise
        except KafkaError as error:
            if error.wire_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise MirrorError(
                    "The user of the destination may not write markers: it needs ClusterAction on the cluster."
                ) from error
            if error.retriable or error.wire_code in _LOOK_UP:
                self._cluster.request_refresh()
                copy.retry(str(error), asyncio.get_running_loop().time())
            else:
                copy.halt(f"the destination refused it: {error}")

    # Sending

    async def connection(self, partition: TopicPartition) -> AsyncioConnection:
        """Return the connection to the leader of a partition; KafkaError if there is none."""
        leader = self._cluster.leader(partition)
        if leader is None:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"the destination has no leader for {partition}")
        return await self._cluster.connection(leader, _LANE)

    def produced(self, partition: TopicPartition, batch: RecordBatch, sequence: int) -> ProduceRequest:
        """Return the request that appends a batch."""
        row = PartitionProduceData(index=partition.partition, records=sent_by(batch, self._producer, sequence))
        return ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[row])],
        )

    async def _fill(self, copy: PartitionCopy, count: int) -> None:
        """Take up offsets with markers."""
        if count > _HOLE_MAX:
            raise _DivergedError(
                f"{count} offsets from {copy.end_offset} on have no record in the source: too many to fill with markers"
            )
        while count:
            now = min(count, _MARKERS_AT_ONCE)
            await self._write_markers(copy, now)
            copy.end_offset += now
            count -= now

    async def _write_markers(self, copy: PartitionCopy, count: int) -> None:
        self._lease.check()
        partition = copy.partition
        marker = WritableTxnMarker(
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=0,
        )
        connection = await self.connection(partition)
        self._settled_at[partition] = asyncio.get_running_loop().time() + _SETTLE_SECONDS
        response = await connection.request(Api.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker] * count))
        for result in response.markers:
            for topic in result.topics:
                for row in topic.partitions:
                    if row.error_code:
                        raise error_for(row.error_code, f"markers of {partition}")
        del self._settled_at[partition]

    # Log starts

    async def _follow_start(self, copy: PartitionCopy) -> None:
        """Bring the end of the log to the start of the source, if it is below."""
        missing = copy.source_start - copy.end_offset
        if missing <= 0:
            return
        if copy.start_offset < copy.end_offset and copy.end_offset > 0:
            # Somebody may read this log, and must not see records that are none.
            await self._fill(copy, missing)
            return
        appends = _Appends(self, copy)
        while missing:
            count = min(missing, _FILLER_RECORDS)
            await appends.send(Send(_filler(count)))
            missing -= count
        await appends.drain()
        await self._delete_before(copy, copy.source_start)
        if copy.start_offset < copy.source_start:
            raise _DivergedError("the records before the start of the source cannot be deleted in the destination")

    async def _delete_before(self, copy: PartitionCopy, offset: int) -> None:
        if copy.start_offset >= offset:
            return
        (found,) = await self._admin.delete_records({copy.partition: offset}, raise_errors=False)
        if found.error is None:
            copy.start_offset = found.low_watermark
        elif not isinstance(found.error, PolicyViolationError):
            raise found.error


class _DivergedError(LocalError):
    """The partition cannot be copied with its offsets."""


# The position was wrong, or the batch is in the log already: the next attempt finds out.
_LOOK_UP: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class _Appends:
    """Batches of one partition on their way, in order."""

    def __init__(self, destination: KafkaDestination, copy: PartitionCopy) -> None:
        self._destination = destination
        self._copy = copy
        # Answers to come, each with the offset that its batch must get.
        self._in_flight: list[tuple[asyncio.Future[Any], int, RecordBatch]] = []

    async def send(self, step: Send) -> None:
        """Send a batch behind those that are under way; KafkaError if one of them has failed."""
        if len(self._in_flight) >= _IN_FLIGHT_MAX:
            await self._answered()
        partition, batch = self._copy.partition, step.batch
        connection = await self._destination.connection(partition)
        await connection.writable()
        version = connection.version(Api.PRODUCE, _PRODUCE_VERSION_MIN)
        ahead = sum(sent.record_count for _, _, sent in self._in_flight)
        sequence, offset = (self._copy.sequence + ahead) % SEQUENCES, self._copy.end_offset + ahead
        parts = encode_parts(self._destination.produced(partition, batch, sequence), version)
        self._in_flight.append((connection.submit(Api.PRODUCE, version, parts), offset, batch))

    async def drain(self) -> None:
        """Wait for all answers; KafkaError if a batch has failed."""
        while self._in_flight:
            await self._answered()

    async def _answered(self) -> None:
        future, offset, batch = self._in_flight.pop(0)
        try:
            response = await future
            (row,) = response.responses[0].partition_responses
            if row.error_code:
                raise error_for(row.error_code, row.error_message or str(self._copy.partition))
        except BaseException:
            # The others would fail as well: the sequence has a gap.
            for other, _, _ in self._in_flight:
                other.cancel()
            self._in_flight.clear()
            raise
        if row.base_offset != offset:
            raise _DivergedError(
                f"the record at offset {offset} of the source got {row.base_offset} in the destination: "
                "somebody else has written there. Delete the topic in the destination, and it is copied from its start"
            )
        copy = self._copy
        copy.end_offset = offset + batch.record_count
        copy.sequence = (copy.sequence + batch.record_count) % SEQUENCES


@lru_cache(maxsize=2)
def _filler(count: int) -> RecordBatch:
    return filler(count, int(time.time() * 1000))
