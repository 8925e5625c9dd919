"""What the consumer does when a new leader does not have what was read, against scripted brokers (KIP-320)."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from tests.client.consumer.scripted_fetching import ONE, Brokers, offsets, reading, refusal
from tests.kit.coroutines import BOTH_LOOPS
from tests.kit.waiting import until_async

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import LogTruncationError
from ottla.client.types import OffsetAndMetadata, TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import EpochEndOffset as DivergingEpoch
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset

pytestmark = BOTH_LOOPS


def end(leader_epoch: int, end_offset: int, code: ErrorCode = ErrorCode.NONE) -> EpochEndOffset:
    """Return what a leader says of an epoch."""
    return EpochEndOffset(error_code=code, partition=0, leader_epoch=leader_epoch, end_offset=end_offset)


async def elect(brokers: Brokers, consumer: Consumer, *, log_end: int) -> None:
    """Have another broker lead in the next epoch, with a log that ends here, and have the consumer hear of it."""
    judge = brokers.judge

    def deposed(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
        if node_id == 1:
            return refusal(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return judge(node_id, partition, offset)

    brokers.judge = deposed
    brokers.leaders, brokers.leader_epoch = [2, 2], brokers.leader_epoch + 1
    brokers.ends[ONE] = log_end
    await consumer._cluster.request_refresh()


def brokers_in_epoch(epoch: int) -> Brokers:
    """Return brokers whose hundred records are all of this epoch."""
    brokers = Brokers()
    brokers.leader_epoch = brokers.record_epoch = epoch
    return brokers


async def test_nothing_is_asked_while_the_epoch_stays() -> None:
    """As long as the leader's epoch is that of the records, nobody asks where it ends."""
    brokers = brokers_in_epoch(3)
    async with reading(brokers, ONE) as consumer:
        assert await offsets(consumer, 100) == list(range(100))
    assert brokers.epochs_asked == []


async def test_a_new_leader_that_has_everything_is_asked_once() -> None:
    """A new leader's log has all that was read: reading goes on with the next record."""
    brokers = brokers_in_epoch(3)
    brokers.epoch_ends[3] = end(3, 100)
    async with reading(brokers, ONE) as consumer:
        await offsets(consumer, 100)
        brokers.record_epoch = 4
        await elect(brokers, consumer, log_end=120)
        assert await offsets(consumer, 20) == list(range(100, 120))
    assert brokers.epochs_asked == [3]


async def test_the_reader_goes_back_to_where_the_log_was_cut() -> None:
    """With a policy, reading goes on where the old log and the new one part, not at one of the ends."""
    brokers = brokers_in_epoch(3)
    brokers.epoch_ends[3] = end(3, 70)
    async with reading(brokers, ONE, auto_offset_reset="latest") as consumer:
        consumer.seek(ONE, 0)
        await offsets(consumer, 100)
        brokers.record_epoch = 4
        await elect(brokers, consumer, log_end=120)
        assert await offsets(consumer, 3) == [70, 71, 72]


async def test_what_was_fetched_ahead_is_dropped() -> None:
    """What the caller has is still there: it gets what the new log has behind it, and nothing of the old one."""
    brokers = brokers_in_epoch(3)
    brokers.epoch_ends[3] = end(3, 50)
    async with reading(brokers, ONE, auto_offset_reset="none") as consumer:
        consumer.seek(ONE, 0)
        await offsets(consumer, 40)
        await until_async(lambda: (1, ONE, 100) in brokers.fetched)
        brokers.record_epoch = 4
        await elect(brokers, consumer, log_end=120)
        # It has read the answer: until then, it hands out what it has fetched.
        await until_async(lambda: (2, ONE, 40) in brokers.fetched)
        assert brokers.epochs_asked == [3]
        records = [await consumer.getone() for _ in range(80)]
        assert [record.offset for record in records] == list(range(40, 120))
        assert {record.leader_epoch for record in records} == {4}


async def test_without_a_policy_the_caller_is_told_where_the_logs_part() -> None:
    """Every call raises it until the caller has chosen where to go on."""
    brokers = brokers_in_epoch(3)
    brokers.epoch_ends[3] = end(2, 70)
    async with reading(brokers, ONE, auto_offset_reset="none") as consumer:
        consumer.seek(ONE, 0)
        await offsets(consumer, 100)
        await elect(brokers, consumer, log_end=80)
        for _ in range(2):
            with pytest.raises(LogTruncationError, match=r"t-0 was truncated before 100; .* offset 70") as caught:
                await consumer.getone()
            assert caught.value.diverging == OffsetAndMetadata(70, "", 2)
        assert pickle.loads(pickle.dumps(caught.value)).diverging == caught.value.diverging
        brokers.epoch_ends[2] = end(2, 70)
        consumer.seek(ONE, OffsetAndMetadata(70, "", 2))
        assert await offsets(consumer, 2) == [70, 71]


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_a_log_without_a_common_epoch_begins_anew(policy: str) -> None:
    """A leader that knows no such epoch says nothing of where to go on; the policy does."""
    brokers = brokers_in_epoch(3)
    brokers.epoch_ends[3] = end(-1, -1)
    async with reading(brokers, ONE, auto_offset_reset=policy) as consumer:
        consumer.seek(ONE, 0)
        await offsets(consumer, 100)
        await elect(brokers, consumer, log_end=30)
        if policy == "none":
            with pytest.raises(LogTruncationError, match="no common epoch") as caught:
                await consumer.getone()
            assert caught.value.diverging is None
        else:
            assert await offsets(consumer, 2) == [0, 1]


async def test_an_offset_with_an_epoch_is_checked_before_it_is_fetched() -> None:
    """A committed or given position may be from before the reader began."""
    brokers = brokers_in_epoch(5)
    brokers.epoch_ends[2] = end(2, 40)
    async with reading(brokers, ONE) as consumer:
        consumer.seek(ONE, OffsetAndMetadata(60, "", 2))
        assert await offsets(consumer, 1) == [40]
        assert all(offset < 60 for _, _, offset in brokers.fetched if offset)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
async def test_a_leader_in_another_epoch_is_asked_again(code: ErrorCode) -> None:
    """Neither a broker that is behind nor one that is ahead of us ends the reading, whichever request it refuses."""
    brokers = brokers_in_epoch(3)
    refusals = [code, code]

    def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
        return refusal(partition, refusals.pop()) if node_id == 2 and refusals else None

    brokers.judge = judge
    brokers.epoch_ends[3] = end(-1, -1, code)
    async with reading(brokers, ONE) as consumer:
        await offsets(consumer, 100)
        await elect(brokers, consumer, log_end=120)
        await until_async(lambda: len(brokers.epochs_asked) >= 3)
        brokers.epoch_ends[3] = end(3, 100)
        assert await offsets(consumer, 20) == list(range(100, 120))
    assert not refusals


async def test_a_broker_that_notices_by_itself_is_believed() -> None:
    """An answer to a fetch may say where the logs part."""
    brokers = brokers_in_epoch(3)

    def judge(node_id: int, partition: TopicPartition, offset: int) -> PartitionData | None:
        if offset < 100:
            return None
        diverging = DivergingEpoch(epoch=3, end_offset=70)
        return PartitionData(partition_index=0, error_code=0, high_watermark=100, diverging_epoch=diverging)

    brokers.judge = judge
    async with reading(brokers, ONE) as consumer:
        assert await offsets(consumer, 101) == [*range(100), 70]


class HastyLoop:
    """A loop on which time passes by looking at it, and not otherwise."""

    def __init__(self, step_s: float) -> None:
        self._now = asyncio.get_running_loop().time()
        self._step_s = step_s

    def time(self) -> float:
        """Return the time."""
        self._now += self._step_s
        return self._now


async def test_a_pause_that_ends_while_it_is_decided_on_is_not_slept_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was too early for this round must not be forgotten because it is due when the round ends."""
    brokers = brokers_in_epoch(3)
    brokers.epoch_ends[3] = end(-1, -1, ErrorCode.FENCED_LEADER_EPOCH)
    async with reading(brokers, ONE, retry_backoff_ms=30, retry_backoff_max_ms=30) as consumer, asyncio.timeout(20):
        await offsets(consumer, 100)
        await elect(brokers, consumer, log_end=120)
        await until_async(lambda: brokers.epochs_asked)
        # Nothing but the pause itself ends it.
        monkeypatch.setattr(consumer._cluster, "request_refresh", lambda: None)
        monkeypatch.setattr(consumer._fetcher, "_loop", HastyLoop(0.01))
        asked = len(brokers.epochs_asked)
        await until_async(lambda: len(brokers.epochs_asked) >= asked + 10)
