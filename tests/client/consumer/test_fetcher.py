"""What the consumer does with answers of all kinds to its fetches, against scripted brokers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.client.consumer.scripted_fetching import ONE, TWO, Brokers, batch, offsets, reading, refusal
from tests.kit.coroutines import BOTH_LOOPS
from tests.kit.waiting import until_async

from ottla.client.consumer import assigned_partitions
from ottla.client.errors import CorruptRecordError, TopicAuthorizationFailedError
from ottla.client.types import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchResponse, LeaderIdAndEpoch, PartitionData

pytestmark = BOTH_LOOPS


async def test_a_new_leader_is_followed() -> None:
    """When a broker says that another leads now, the fetches go there, and nothing is lost or comes twice."""
    brokers = Brokers()

    def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
        if node_id == 1 and offset >= 20:
            brokers.leaders, brokers.leader_epoch = [2, 2], 1
            leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
            return refusal(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=leader)
        return None

    brokers.judge = judge
    async with reading(brokers, ONE) as consumer:
        assert await offsets(consumer, 50) == list(range(50))
    assert (2, ONE, 20) in brokers.fetched


async def test_records_come_from_the_preferred_replica() -> None:
    """The leader sends the reader to another replica; when that does not have an offset, the leader is asked again."""
    brokers = Brokers()

    def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
        if node_id == 1 and offset < 20:
            return PartitionData(
                partition_index=0, error_code=0, high_watermark=100, preferred_read_replica=2, records=b""
            )
        return refusal(partition, ErrorCode.OFFSET_OUT_OF_RANGE) if node_id == 2 and offset >= 20 else None

    brokers.judge = judge
    async with reading(brokers, ONE, client_rack="here") as consumer:
        assert await offsets(consumer, 30) == list(range(30))
    assert brokers.fetched[:5] == [(1, ONE, 0), (2, ONE, 0), (2, ONE, 10), (2, ONE, 20), (1, ONE, 20)]


async def test_a_bad_partition_does_not_hold_up_another() -> None:
    """The good one is read to its end; then the reader learns what is wrong, each time that it asks."""
    brokers = Brokers()
    brokers.judge = lambda node_id, partition, offset: (
        refusal(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) if partition == ONE else None
    )
    async with reading(brokers, ONE, TWO) as consumer:
        seen: list[int] = []
        while len(seen) < 100:
            with contextlib.suppress(TopicAuthorizationFailedError):
                seen.append((await consumer.getone()).offset)
        assert seen == list(range(100))
        for _ in range(2):
            with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
                await consumer.getone()


async def test_what_was_asked_for_before_a_seek_is_dropped() -> None:
    """The answer to a fetch that was under way at the seek does not reach the reader."""
    brokers = Brokers()
    brokers.gate.clear()
    async with reading(brokers, ONE) as consumer:
        await until_async(lambda: (1, ONE, 0) in brokers.fetched)
        consumer.seek(ONE, 55)
        brokers.gate.set()
        assert await offsets(consumer, 10) == list(range(55, 65))


async def test_no_more_is_fetched_than_there_is_room_for() -> None:
    """A reader that does not read has two fetches in store; more is asked for when it goes on."""
    brokers = Brokers()
    async with reading(brokers, ONE, max_partition_fetch_bytes=len(batch(0))) as consumer:
        assert (await consumer.getone(ONE)).offset == 0
        for _ in range(20):
            await consumer.topics()
        assert [offset for _, _, offset in brokers.fetched] == [0, 10]
        assert await offsets(consumer, 99) == list(range(1, 100))


async def test_a_call_hands_out_objects_of_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that reaches the bound is the last; the next call goes on after it."""
    monkeypatch.setattr(assigned_partitions, "_HANDED_OUT_BYTES", len(batch(10)) + 1)
    brokers = Brokers()
    brokers.judge = lambda node_id, partition, offset: PartitionData(
        partition_index=0, error_code=0, high_watermark=100, records=b"".join(batch(each) for each in range(0, 100, 10))
    )
    async with reading(brokers, ONE) as consumer:
        assert (await consumer.getone()).offset == 0
        for wanted in (range(1, 20), range(20, 40), range(40, 60)):
            taken = await consumer.getmany(timeout_ms=10_000)
            assert [record.offset for record in taken[ONE]] == [*wanted]


async def test_a_corrupt_batch_is_named_when_those_before_it_are_read() -> None:
    """CorruptRecordError, with the partition and the offset; a seek past it helps."""
    brokers = Brokers()

    def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
        bad = bytearray(batch(10))
        bad[-1] ^= 1
        if offset >= 20:
            return None
        return PartitionData(partition_index=0, error_code=0, high_watermark=100, records=batch(0) + bad)

    brokers.judge = judge
    async with reading(brokers, ONE) as consumer:
        assert await offsets(consumer, 10) == list(range(10))
        with pytest.raises(CorruptRecordError, match="t-0 at offset 10"):
            await consumer.getone()
        consumer.seek(ONE, 20)
        assert await offsets(consumer, 10) == list(range(20, 30))


async def test_a_broken_connection_is_made_again() -> None:
    """Fetching goes on where it was."""
    brokers = Brokers()
    async with reading(brokers, ONE) as consumer:
        assert await offsets(consumer, 15) == list(range(15))
        brokers.running[1].break_connections()
        assert await offsets(consumer, 50) == list(range(15, 65))


async def test_where_a_partition_ends_is_known_although_a_seek_dropped_the_answer() -> None:
    """In a fetch session, a broker says it once."""
    brokers = Brokers()
    fetch = brokers.fetch
    answered = 0

    async def fetch_once(node_id: int, request: Any) -> FetchResponse:
        nonlocal answered
        answered += 1
        return await fetch(node_id, request) if answered == 1 else FetchResponse(responses=[])

    brokers.fetch = fetch_once  # type: ignore[method-assign]
    brokers.gate.clear()
    async with reading(brokers, ONE) as consumer:
        await until_async(lambda: brokers.fetched, "a fetch is under way")
        consumer.seek(ONE, 50)
        brokers.gate.set()
        await until_async(lambda: consumer.highwater(ONE) == 100, "the high watermark is known")
        assert await consumer.getmany() == {}
