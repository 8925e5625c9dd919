"""Fetches the batches of a range of offsets from the leader of its partition, one request ahead of the reader.

Whatever a retry may cure is tried again: a leader that moved, a broker that died, an answer that was lost. Time is
counted anew whenever records come, so a long range is no reason to give up, and a dead cluster is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.errors import (
    BrokerNotAvailableError,
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    error_for,
)
from ottla.client.net.backoff import Backoff
from ottla.pipeline.sources.errors import DataLossError
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError, ErrorCode
from ottla.protocol.message import LAST_VERSION
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST
from ottla.protocol.primitives import UUID_ZERO
from ottla.protocol.records import RecordBatch, batches

if TYPE_CHECKING:
    from ottla.client.net.cluster_client import ClusterClient
    from ottla.pipeline.sources.offset_ranges import OffsetRange
    from ottla.pipeline.sources.topic_client import TopicClient

# A Fetch that waits for records must not hold up what else goes to the broker.
_LANE: Final = "fetch"
# The first version in which only batches of today's format come, and the last that names topics by name.
_VERSION_MIN: Final = 4
_NAMED_VERSION_MAX: Final = 12
_NO_SESSION_EPOCH: Final = -1
# A topic that one broker does not know may be known to the next; one that is missing for longer is deleted.
_MISSING_TOPIC_WAIT_S: Final = 5.0


class _Fetched(NamedTuple):
    """Batches from one answer, and what it says of transactions."""

    batches: list[RecordBatch]
    aborted: list[Any]
    next_offset: int


@dataclass(slots=True)
class _Attempt:
    """How far the attempts for one answer have come."""

    offset: int
    error: KafkaError | None = None
    missing_since: float | None = None
    # Whether nothing of the range is left.
    is_lost: bool = False


class RangeFetch:
    """The batches of one range, in order; each is whole and its checksum is right."""

    def __init__(self, client: TopicClient, offsets: OffsetRange, *, timeout_ms: int, fail_on_data_loss: bool) -> None:
        self._client = client
        self._range = offsets
        self._timeout = timeout_ms / 1000
        self._fail_on_data_loss = fail_on_data_loss

    def __iter__(self) -> Iterator[_Fetched]:
        """Yield what each answer has; KafkaError or DataLossError where the range cannot be read to its end."""
        offset = self._range.begin
        under_way: Future[_Fetched | None] | None = self._start(offset)
        try:
            while under_way is not None:
                fetched = under_way.result()
                under_way = None
                if fetched is None:
                    return
                offset = fetched.next_offset
                if offset < self._range.end:
                    under_way = self._start(offset)
                yield fetched
        finally:
            if under_way is not None:
                under_way.cancel()

    def _start(self, offset: int) -> Future[_Fetched | None]:
        return self._client.submit(lambda cluster: self._fetch(cluster, offset))

    async def _fetch(self, cluster: ClusterClient, offset: int) -> _Fetched | None:
        """Return the next batches of the range; None where what is left of it is lost and that may be."""
        attempt = _Attempt(offset)
        settings = self._client.settings
        backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    fetched = await self._try(cluster, attempt)
                    if fetched is not None or attempt.is_lost:
                        return fetched
                    if attempt.error is not None:
                        await asyncio.sleep(backoff.next())
        except TimeoutError:
            waited = f"no records of {self._range} from offset {attempt.offset} on within {self._timeout:g} s"
            reason = "the broker has none" if attempt.error is None else f"the last attempt failed: {attempt.error}"
            raise KafkaTimeoutError(
                f"{waited}; {reason}. Look whether the brokers are well, or raise kafkaConsumer.pollTimeoutMs."
            ) from attempt.error

    async def _try(self, cluster: ClusterClient, attempt: _Attempt) -> _Fetched | None:
        """Ask once, and note in the attempt what came of it where no records did."""
        try:
            failed, attempt.error = attempt.error is not None, None
            metadata = await cluster.metadata([self._range.partition.topic], force=failed)
            if metadata.topics[self._range.partition.topic].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicOrPartitionError(self._range.partition.topic)
            attempt.missing_since = None
            fetched = await self._ask(cluster, attempt.offset)
            if fetched is None and not self._fail_on_data_loss:
                # The log may have become shorter than the range, as when its topic was made anew.
                attempt.is_lost = attempt.offset >= (await self._ends())[1]
            return fetched
        except OffsetOutOfRangeError as error:
            await self._after_loss(attempt, error)
        except UnknownTopicOrPartitionError as error:
            self._topic_missing(attempt, error)
        except KafkaError as error:
            if not (error.retriable or error.invalid_metadata or isinstance(error, BrokerNotAvailableError)):
                raise
            attempt.error = error
        return None

    async def _ask(self, cluster: ClusterClient, offset: int) -> _Fetched | None:
        partition = self._range.partition
        known = cluster.snapshot.partition(partition)
        if known is None or known.leader is None:
            raise LeaderNotAvailableError(f"{partition} has no leader that we know of")
        topic_id = cluster.snapshot.topics[partition.topic].topic_id
        settings = self._client.settings
        row = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=known.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=settings.max_partition_fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[row])],
            rack_id=settings.client_rack,
        )
        response = await cluster.send(
            known.leader,
            Api.FETCH,
            request,
            settings.request_timeout_ms + settings.fetch_max_wait_ms,
            lane=_LANE,
            version_min=_VERSION_MIN,
            version_max=LAST_VERSION if topic_id != UUID_ZERO else _NAMED_VERSION_MAX,
        )
        if response.error_code:
            raise error_for(response.error_code, str(partition))
        answer = response.responses[0].partitions[0]
        if answer.error_code:
            leader = answer.current_leader
            cluster.learn_leader(partition, leader.leader_id, leader.leader_epoch, response.node_endpoints)
            raise error_for(answer.error_code, f"{partition} at offset {offset}")
        return self._taken(answer, offset)

    def _taken(self, answer: Any, offset: int) -> _Fetched | None:
        taken = []
        next_offset = offset
        try:
            for batch in batches(answer.records or b""):
                if batch.next_offset <= offset:
                    continue
                batch.check()
                next_offset = batch.next_offset
                if batch.base_offset >= self._range.end:
                    break
                taken.append(batch)
        except CorruptBatchError as error:
            # Another broker, or the same one asked again, may send it whole.
            raise CorruptRecordError(f"{self._range.partition} at offset {next_offset}: {error}") from error
        if next_offset == offset:
            return None
        return _Fetched(taken, list(answer.aborted_transactions or ()), next_offset)

    async def _after_loss(self, attempt: _Attempt, error: KafkaError) -> None:
        """Say where the range goes on, or that nothing of it is left; DataLossError where that must not be."""
        earliest, latest = await self._ends()
        if earliest <= attempt.offset <= latest:
            # A leader that has just been elected may not know yet how far its log is committed.
            attempt.error = error
            return
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{self._range.partition} has offsets {earliest} to {latest}, and the query wants "
                f"{attempt.offset} to {self._range.end}"
            )
        attempt.is_lost = not attempt.offset < earliest < self._range.end
        attempt.offset = earliest

    def _topic_missing(self, attempt: _Attempt, error: KafkaError) -> None:
        now = asyncio.get_running_loop().time()
        if attempt.missing_since is None:
            attempt.missing_since = now
        attempt.error = error
        if now - attempt.missing_since > _MISSING_TOPIC_WAIT_S:
            if self._fail_on_data_loss:
                raise DataLossError(f"There is no topic {self._range.partition.topic} any more") from error
            attempt.is_lost = True

    async def _ends(self) -> tuple[int, int]:
        partition = self._range.partition
        found = []
        for end in (EARLIEST, LATEST):
            offsets = await self._client.look_up({partition: end})
            found.append(offsets[partition])
        return found[0], found[1]


def without_aborted(fetched: _Fetched) -> list[RecordBatch]:
    """Return the batches without those of transactions that were aborted, which a read_committed answer lists."""
    from ottla.protocol.control_records import ControlType, read_marker

    begins = sorted(fetched.aborted, key=lambda row: row.first_offset, reverse=True)
    if not begins:
        return fetched.batches
    kept = []
    aborting: set[int] = set()
    for batch in fetched.batches:
        while begins and begins[-1].first_offset <= batch.last_offset:
            aborting.add(begins.pop().producer_id)
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.control_type is ControlType.ABORT:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            kept.append(batch)
    return kept
