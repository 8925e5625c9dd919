"""Readers of committed records, against a scripted broker: what they skip, where they end, and what they wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.consumer.scripted_fetching import ONE, Brokers, reading
from tests.client.scripted_broker import Reply
from tests.kit.coroutines import BOTH_LOOPS
from tests.kit.waiting import until_async

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import IllegalStateError
from ottla.client.net.settings import IsolationLevel
from ottla.protocol.api import Api
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.record_batch_builder import RecordBatchBuilder

pytestmark = BOTH_LOOPS

COMMITTED: IsolationLevel = "read_committed"
UNCOMMITTED: IsolationLevel = "read_uncommitted"
LEVELS: list[IsolationLevel] = [COMMITTED, UNCOMMITTED]


def data(base_offset: int, count: int, producer_id: int | None = None) -> bytes:
    """Return records with their offsets as values, of a transaction if there is a producer."""
    builder = RecordBatchBuilder()
    for offset in range(base_offset, base_offset + count):
        builder.append(0, None, b"%d" % offset)
    if producer_id is None:
        return bytes(builder.build(base_offset=base_offset))
    return bytes(
        builder.build(
            base_offset=base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
    )


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    """Return the end of a transaction."""
    end = EndTransactionMarker(kind, 0)
    return bytes(
        build_marker_batch(end, producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=base_offset)
    )


# By base offset. Producer 1 commits, producer 2 aborts and then commits, producer 3 aborts, and 4 is not done yet.
LOG = {
    0: data(0, 2, 1),
    2: data(2, 2, 2),
    4: data(4, 1, 1),
    5: marker(5, 2, ControlType.ABORT),
    6: marker(6, 1, ControlType.COMMIT),
    7: data(7, 3, 2),
    10: data(10, 2, 3),
    12: marker(12, 2, ControlType.COMMIT),
    13: marker(13, 3, ControlType.ABORT),
    14: data(14, 1),
    15: data(15, 1, 4),
}
# By the offset of the marker.
ABORTED = {
    5: AbortedTransaction(producer_id=2, first_offset=2),
    13: AbortedTransaction(producer_id=3, first_offset=10),
}
LAST_STABLE, HIGH_WATERMARK = 15, 16
VISIBLE = {COMMITTED: [0, 1, 4, 7, 8, 9, 14], UNCOMMITTED: [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 14, 15]}


class Ledger(Brokers):
    """Brokers with the log above, and with the committed offset of a group."""

    def __init__(self) -> None:
        super().__init__()
        # How many requests for a stable offset are still to be refused.
        self.unstable = 0
        # Whether each request for an offset wanted a stable one.
        self.required: list[bool] = []

    async def answer(self, node_id: int, api: Api, request: Any) -> Reply:
        """Answer what a consumer asks."""
        if api is Api.LIST_OFFSETS:
            (row,) = request.topics[0].partitions
            end = LAST_STABLE if request.isolation_level else HIGH_WATERMARK
            offset = end if row.timestamp == LATEST else 0
            found = ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=0, offset=offset)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
        if api is Api.FIND_COORDINATOR:
            host, port = self.running[1].address
            row = Coordinator(key="group", node_id=1, host=host, port=port, error_code=0, error_message=None)
            return FindCoordinatorResponse(coordinators=[row])
        if api is Api.OFFSET_FETCH:
            return self._committed(request)
        return await super().answer(node_id, api, request)

    async def fetch(self, node_id: int, request: Any) -> FetchResponse:
        """Read up to the end for readers of this kind; the batch that has the offset comes whole."""
        (asked,) = request.topics[0].partitions
        self.fetched.append((node_id, ONE, asked.fetch_offset))
        end = LAST_STABLE if request.isolation_level else HIGH_WATERMARK
        begin = max((base for base in LOG if base <= asked.fetch_offset), default=0)
        records = b"".join(batch for base, batch in LOG.items() if begin <= base < end > asked.fetch_offset)
        if not records:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await asyncio.Event().wait()
        aborted = [found for last, found in ABORTED.items() if last >= asked.fetch_offset]
        row = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=HIGH_WATERMARK,
            last_stable_offset=LAST_STABLE,
            # Not in order, which clients must not rely on.
            aborted_transactions=aborted[::-1] if request.isolation_level else None,
            records=records,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    def _committed(self, request: Any) -> OffsetFetchResponse:
        self.required.append(request.require_stable)
        is_unstable = request.require_stable and self.unstable > 0
        self.unstable -= is_unstable
        row = OffsetFetchResponsePartitions(
            partition_index=0,
            committed_offset=-1 if is_unstable else 7,
            metadata="",
            error_code=int(ErrorCode.UNSTABLE_OFFSET_COMMIT) if is_unstable else 0,
        )
        topics = [OffsetFetchResponseTopics(name="t", partitions=[row])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="group", topics=topics)])


async def one_by_one(consumer: Consumer, count: int) -> list[int]:
    """Read with getone."""
    return [(await consumer.getone()).offset for _ in range(count)]


async def many(consumer: Consumer, count: int) -> list[int]:
    """Read with getmany, of odd sizes."""
    found: list[int] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=3)).values():
            found += [record.offset for record in records]
    return found


async def columns(consumer: Consumer, count: int) -> list[int]:
    """Read with getcolumns."""
    found: list[int] = []
    while len(found) < count:
        for some in (await consumer.getcolumns(timeout_ms=1000)).values():
            assert [int(value or b"") for value in some.values] == list(some.offsets)
            found += some.offsets
    return found


async def iteration(consumer: Consumer, count: int) -> list[int]:
    """Read with `async for`."""
    found: list[int] = []
    async for record in consumer:
        found.append(record.offset)
        if len(found) == count:
            break
    return found


Read = Callable[[Consumer, int], Awaitable[list[int]]]


@pytest.mark.parametrize("read", [one_by_one, many, columns, iteration])
@pytest.mark.parametrize("level", LEVELS)
async def test_readers_get_what_they_may_see_and_nothing_twice(level: IsolationLevel, read: Read) -> None:
    """Whatever the call, wherever they begin; markers are for nobody."""
    async with reading(Ledger(), ONE, isolation_level=level) as consumer:
        for begin in range(HIGH_WATERMARK):
            expected = [offset for offset in VISIBLE[level] if offset >= begin]
            consumer.seek(ONE, begin)
            if expected:
                assert await read(consumer, len(expected)) == expected
            assert await consumer.getmany(timeout_ms=1) == {}


@pytest.mark.parametrize("level", LEVELS)
async def test_the_position_ends_behind_what_was_skipped(level: IsolationLevel) -> None:
    """So that a commit does not point at an aborted record for ever, and the lag of an idle reader is none."""
    end = LAST_STABLE if level == COMMITTED else HIGH_WATERMARK
    async with reading(Ledger(), ONE, isolation_level=level) as consumer:
        await many(consumer, len(VISIBLE[level]))
        assert await consumer.position(ONE) == end
        consumer.seek(ONE, 10)
        if level == COMMITTED:
            await many(consumer, 1)
            assert await consumer.position(ONE) == end


@pytest.mark.parametrize("level", LEVELS)
async def test_the_end_is_that_of_the_readers_own_kind(level: IsolationLevel) -> None:
    """The last stable offset, or the high watermark: looked up, sought, and by policy."""
    end = LAST_STABLE if level == COMMITTED else HIGH_WATERMARK
    async with reading(Ledger(), ONE, isolation_level=level) as consumer:
        assert await consumer.end_offsets([ONE]) == {ONE: end}
        assert await consumer.beginning_offsets([ONE]) == {ONE: 0}
        await consumer.seek_to_end(ONE)
        assert await consumer.position(ONE) == end
        await consumer.seek_to_beginning(ONE)
        await many(consumer, 1)
        assert (consumer.last_stable_offset(ONE), consumer.highwater(ONE)) == (LAST_STABLE, HIGH_WATERMARK)
    async with reading(Ledger(), ONE, isolation_level=level, auto_offset_reset="latest") as consumer:
        assert await consumer.position(ONE) == end


async def test_a_group_of_committed_readers_waits_until_its_offset_is_stable() -> None:
    """It asks again until the transaction that has another offset for it has ended."""
    brokers = Ledger()
    brokers.unstable = 3
    async with reading(brokers, ONE, isolation_level=COMMITTED, group_id="group", enable_auto_commit=False) as consumer:
        assert (await consumer.getone()).offset == 7
        assert brokers.required == [True] * 4
        brokers.unstable = 2
        assert await consumer.committed(ONE) == 7
        brokers.unstable = 2
        assert await consumer.seek_to_committed() == {ONE: 7}
        assert (await consumer.getone()).offset == 7
    assert set(brokers.required) == {True}


@pytest.mark.parametrize("is_named", [True, False])
async def test_partitions_may_go_while_their_offsets_are_looked_up(is_named: bool) -> None:
    """As in a rebalance, which is often what aborted the transaction; those that the caller names are missed."""
    brokers = Ledger()
    async with reading(brokers, ONE, isolation_level=COMMITTED, group_id="group", enable_auto_commit=False) as consumer:
        await consumer.position(ONE)
        brokers.unstable = 10_000
        seeking = asyncio.create_task(consumer.seek_to_committed(*([ONE] if is_named else [])))
        await until_async(lambda: brokers.unstable < 10_000, "the offset is looked up")
        consumer.assign([])
        if is_named:
            with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
                await seeking
        else:
            assert await seeking == {}


async def test_a_group_that_reads_everything_takes_the_offset_that_there_is() -> None:
    """It does not wait for transactions."""
    brokers = Ledger()
    brokers.unstable = 1
    async with reading(brokers, ONE, group_id="group", enable_auto_commit=False) as consumer:
        assert (await consumer.getone()).offset == 7
    assert brokers.required == [False]


async def test_records_come_when_the_transaction_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader waits for them meanwhile."""
    async with reading(Ledger(), ONE, isolation_level=COMMITTED) as consumer:
        await many(consumer, len(VISIBLE[COMMITTED]))
        waiting = asyncio.create_task(one_by_one(consumer, 1))
        await until_async(lambda: consumer.last_stable_offset(ONE) == LAST_STABLE, "the end is known")
        monkeypatch.setitem(LOG, 16, marker(16, 4, ControlType.COMMIT))
        monkeypatch.setitem(globals(), "LAST_STABLE", 17)
        monkeypatch.setitem(globals(), "HIGH_WATERMARK", 17)
        assert await waiting == [15]
