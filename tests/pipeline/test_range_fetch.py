"""How a task reads its range when brokers move, fail, or have lost what it wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from tests.pipeline.log_samples import TIME_MS, made_batch

from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
)
from ottla.client.net.metadata import BrokerAddress, ClusterMetadata, PartitionInfo, TopicInfo
from ottla.pipeline.sources.errors import DataLossError
from ottla.pipeline.sources.offset_ranges import OffsetRange
from ottla.pipeline.sources.range_fetch import RangeFetch, without_aborted
from ottla.pipeline.sources.topic_client import TopicClient
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.messages.list_offsets import EARLIEST

T = TypeVar("T")

AT = TopicPartition("t", 0)


def answer(records: bytes = b"", error: ErrorCode = ErrorCode.NONE, aborted: Collection[Any] = ()) -> Any:
    """The answer to a fetch of one partition."""
    nobody = SimpleNamespace(leader_id=-1, leader_epoch=-1)
    row = SimpleNamespace(
        error_code=int(error), records=records, aborted_transactions=list(aborted), current_leader=nobody
    )
    return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[row])], node_endpoints=[])


class Cluster:
    """Answers what the test says, one after the other; a topic that is gone stays gone."""

    def __init__(self, answers: list[Any], *, exists: bool = True) -> None:
        self.answers = answers
        self.asked: list[int] = []
        self.refreshed = 0
        error = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = {0: PartitionInfo(0, 1, 5)} if exists else {}
        topic = TopicInfo("t", partitions=partitions, error=error)
        self.snapshot = ClusterMetadata(brokers={1: BrokerAddress(1, "localhost", 9092)}, topics={"t": topic})

    async def metadata(self, topics: Collection[str], *, force: bool = False) -> ClusterMetadata:
        """Return what there is."""
        self.refreshed += force
        return self.snapshot

    async def send(self, node_id: int, api: Any, request: Any, timeout_ms: int, **_: Any) -> Any:
        """Give the next answer; the last one again and again."""
        self.asked.append(request.topics[0].partitions[0].fetch_offset)
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, Exception):
            raise given
        return given

    def learn_leader(self, *_: Any) -> bool:
        """Take no hint."""
        return False


class Client:
    """What a task has in the place of a real client."""

    def __init__(self, cluster: Cluster, ends: tuple[int, int]) -> None:
        self.settings = ConsumerSettings(retry_backoff_ms=1, retry_backoff_max_ms=1)
        self.cluster = cluster
        self.ends = ends
        self._loop = asyncio.get_running_loop()

    def submit(self, work: Callable[[Any], Awaitable[T]]) -> Future[T]:
        """Have it done on the loop of the test."""

        async def run() -> T:
            return await work(self.cluster)

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    async def look_up(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of the log."""
        return {partition: self.ends[0 if end == EARLIEST else 1] for partition, end in wanted.items()}


async def fetched(
    cluster: Cluster,
    begin: int,
    end: int,
    ends: tuple[int, int] = (0, 100),
    timeout_ms: int = 60_000,
    *,
    fail: bool = True,
) -> list[int]:
    """Read a range, and return where its batches begin."""
    client = cast(TopicClient, Client(cluster, ends))
    fetch = RangeFetch(client, OffsetRange(AT, begin, end), timeout_ms=timeout_ms, fail_on_data_loss=fail)
    # A task reads in a thread without a loop.
    answers = await asyncio.to_thread(list, fetch)
    return [batch.base_offset for each in answers for batch in each.batches]


async def test_a_range_is_read_in_answers() -> None:
    """Each request goes on where the last answer ended; what is behind the range is not taken."""
    cluster = Cluster([answer(made_batch(0) + made_batch(3)), answer(made_batch(6) + made_batch(9) + made_batch(12))])

    assert await fetched(cluster, 1, 10) == [0, 3, 6, 9]
    assert cluster.asked == [1, 6]


async def test_a_batch_that_is_cut_short_is_fetched_again() -> None:
    """A broker sends as many bytes as fit."""
    cluster = Cluster([answer(made_batch(0) + made_batch(3)[:40]), answer(made_batch(3))])

    assert await fetched(cluster, 0, 6) == [0, 3]
    assert cluster.asked == [0, 3]


@pytest.mark.parametrize(
    "trouble",
    [
        KafkaConnectionError("broken"),
        KafkaTimeoutError("silent"),
        NotLeaderForPartitionError("t-0"),
        answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        answer(error=ErrorCode.FENCED_LEADER_EPOCH),
        answer(error=ErrorCode.UNKNOWN_TOPIC_ID),
        answer(made_batch(0)[:-1] + b"\x7f"),
    ],
)
async def test_trouble_that_passes_is_waited_for(trouble: Any) -> None:
    """With metadata asked for anew: another broker may lead by now, or send the bytes whole."""
    cluster = Cluster([trouble, trouble, answer(made_batch(0))])

    assert await fetched(cluster, 0, 3) == [0]
    assert cluster.refreshed == 2


async def test_trouble_that_does_not_pass_ends_the_task_in_time() -> None:
    """With the last reason in the message."""
    with pytest.raises(KafkaTimeoutError, match=r"t-0 0\.\.3 from offset 0 on within 0\.05 s.*broken"):
        await fetched(Cluster([KafkaConnectionError("broken")]), 0, 3, timeout_ms=50)


async def test_trouble_that_cannot_pass_is_raised_at_once() -> None:
    """Rights are not a matter of time."""
    with pytest.raises(TopicAuthorizationFailedError):
        await fetched(Cluster([answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]), 0, 3)


async def test_records_deleted_since_the_plan_are_a_loss() -> None:
    """An error, or the task goes on with what is left of its range."""
    gone = answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(DataLossError, match="t-0 has offsets 6 to 100, and the query wants 0 to 9"):
        await fetched(Cluster([gone]), 0, 9, (6, 100))

    assert await fetched(Cluster([gone, answer(made_batch(6))]), 0, 9, (6, 100), fail=False) == [6]
    assert await fetched(Cluster([gone]), 0, 9, (20, 100), fail=False) == []


async def test_a_new_leader_that_does_not_know_its_end_yet_is_asked_again() -> None:
    """Out of range is not lost while the log has the offset."""
    cluster = Cluster([answer(error=ErrorCode.OFFSET_OUT_OF_RANGE), answer(made_batch(0))])

    assert await fetched(cluster, 0, 3) == [0]


async def test_a_log_that_became_shorter_ends_the_task_where_losses_are_allowed() -> None:
    """There will be no more of its range."""
    assert await fetched(Cluster([answer(made_batch(0)), answer()]), 0, 9, (0, 3), fail=False) == [0]


async def test_a_topic_that_is_gone_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, as a single broker may not know it yet."""
    monkeypatch.setattr("ottla.pipeline.sources.range_fetch._MISSING_TOPIC_WAIT_S", 0.0)
    with pytest.raises(DataLossError, match="There is no topic t any more"):
        await fetched(Cluster([answer()], exists=False), 0, 3)

    assert await fetched(Cluster([answer()], exists=False), 0, 3, fail=False) == []


async def test_batches_of_aborted_transactions_are_left_out() -> None:
    """From the first offset that the answer names to the marker that ends the transaction."""

    def transactional(base_offset: int) -> bytes:
        return made_batch(
            base_offset, 1, producer_id=7, producer_epoch=0, base_sequence=base_offset, transactional=True
        )

    marker = build_marker_batch(
        EndTransactionMarker(ControlType.ABORT, 1), producer_id=7, producer_epoch=0, timestamp=TIME_MS, base_offset=2
    )
    records = transactional(0) + made_batch(1, 1) + bytes(marker) + transactional(3)
    cluster = Cluster([answer(records, aborted=[AbortedTransaction(producer_id=7, first_offset=0)])])
    client = cast(TopicClient, Client(cluster, (0, 4)))
    fetch = RangeFetch(client, OffsetRange(AT, 0, 4), timeout_ms=60_000, fail_on_data_loss=True)
    answers = await asyncio.to_thread(list, fetch)

    assert [batch.base_offset for each in answers for batch in without_aborted(each)] == [1, 3]
