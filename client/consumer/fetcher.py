"""Fetches ahead of the caller, with at most one request in flight per broker and a bounded number of buffered bytes.

A partition is fetched until it has more than one full response buffered, so that the caller has records while the next
request is in flight. All partitions together buffer up to fetch_max_bytes.

One task does all this. After each change it checks which partitions have space, and sends a request to each broker that
has none in flight. Positions that are still unknown are looked up in parallel. An error in one partition is stored in
its state and does not affect the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.consumer.assigned_partitions import AssignedPartition, AssignedPartitions
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.epoch_lookup import EpochEnd
from ottla.client.consumer.offset_lookup import look_up_once
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.consumer.tasks import cancelled
from ottla.client.consumer.truncation import Truncation
from ottla.client.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError, error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.fetch_session_client import (
    FetchSessionClient,
    SessionPartition,
    fetch_topics,
    forgotten_topics,
)
from ottla.client.records.fetched_batches import fetched_batches
from ottla.client.types import OffsetAndMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError, ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import LAST_VERSION
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST
from ottla.protocol.primitives import UUID_ZERO

log = logging.getLogger(__name__)

# A Fetch that waits for records must not delay other requests to the broker.
LANE: Final = "fetch"

# The first version that returns only batches of magic 2, and the last that identifies topics by name.
_VERSION_MIN: Final = 4
_NAMED_VERSION_MAX: Final = 12
# How long a broker may wait for records while one of its partitions is left out because its buffer is full. Once it has
# space again, it should not have to wait long for the others.
_IMPATIENT_WAIT_MS: Final = 20
_PAUSE_MAX: Final = 60.0

Committed = Callable[[list[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class _Asked(NamedTuple):
    """The requested position of a partition, and the session of its state."""

    state: AssignedPartition
    session: int
    offset: int


class _Position(NamedTuple):
    """The position to fetch a partition from, and the leader epoch."""

    offset: int
    leader_epoch: int


class ConsumerFetcher:
    """Keeps the partitions supplied between `start` and `close`."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ConsumerSettings,
        partitions: AssignedPartitions,
        committed: Committed | None,
        metrics: ConsumerMetrics,
    ) -> None:
        self._metrics = metrics
        self._cluster = cluster
        self._settings = settings
        self._partitions = partitions
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._busy_nodes: set[int] = set()
        self._sessions: dict[int, FetchSessionClient[_Position]] = {}
        # Partitions whose position is being looked up.
        self._resolving: set[AssignedPartition] = set()
        self._truncation = Truncation(cluster, settings, partitions, self._refused)
        self._fetches = 0
        # Brokers whose last fetch failed, and partitions whose last one did; only the first failure is a line.
        self._failing_nodes: set[int] = set()
        self._failing: set[TopicPartition] = set()

    def start(self) -> None:
        """Begin to fetch."""
        self._cluster.add_listener(lambda _: self._partitions.wanted.set())
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; responses to requests in flight are dropped."""
        await cancelled([*self._requests, *([self._task] if self._task else [])])

    async def _run(self) -> None:
        while True:
            self._partitions.wanted.clear()
            # Use one time for all checks: a partition that is not due now must not be due when the pause is computed.
            now = self._loop.time()
            self._resolve_positions(now)
            if suspected := self._truncation.due(now):
                self._start(self._truncation.ask(suspected))
            self._start_fetches(now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause(now)):
                    await self._partitions.wanted.wait()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._partitions.wanted.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _pause(self, now: float) -> float:
        """Return how long to sleep, unless `wanted` is set."""
        waiting = [state.not_before - now for state in self._partitions if state.not_before > now]
        return min([*waiting, _PAUSE_MAX])

    # Which to fetch from where.

    def _start_fetches(self, now: float) -> None:
        for node_id, states, full in self._plan(now):
            self._busy_nodes.add(node_id)
            self._start(self._fetch(node_id, states, full))

    def _plan(self, now: float) -> list[tuple[int, list[AssignedPartition], bool]]:
        """Return for each idle broker what to fetch, and whether one of its partitions is full."""
        if sum(state.buffered_bytes for state in self._partitions) >= self._settings.fetch_max_bytes:
            return []
        by_node: dict[int, list[AssignedPartition]] = defaultdict(list)
        full_nodes = set()
        for state in self._partitions:
            if state.paused or state.held or state.position is None:
                continue
            if state.failure is not None or state.not_before > now or self._truncation.is_suspected(state):
                continue
            node_id = self._node_for(state, now)
            if node_id is None:
                self._cluster.request_refresh()
                self._hold_off(state)
            elif state.buffered_bytes > self._settings.max_partition_fetch_bytes:
                full_nodes.add(node_id)
            elif node_id not in self._busy_nodes:
                by_node[node_id].append(state)
        return [
            (node_id, sorted(states, key=lambda state: state.served), node_id in full_nodes)
            for node_id, states in by_node.items()
        ]

    def _node_for(self, state: AssignedPartition, now: float) -> int | None:
        if state.read_replica is not None:
            if state.read_replica in self._cluster.brokers and now < state.read_replica_until:
                return state.read_replica
            state.read_replica = None
        return self._cluster.leader(state.partition)

    async def _fetch(self, node_id: int, states: list[AssignedPartition], some_full: bool) -> None:
        settings = self._settings
        asked = {state.partition: _Asked(state, state.session, state.fetch_offset) for state in states}
        wait_ms = min(settings.fetch_max_wait_ms, _IMPATIENT_WAIT_MS) if some_full else settings.fetch_max_wait_ms
        topics = self._cluster.snapshot.topics
        ids = {name: topics[name].topic_id for name, _ in asked if name in topics}
        has_ids = UUID_ZERO not in ids.values() and all(name in ids for name, _ in asked)
        session = self._sessions.setdefault(node_id, FetchSessionClient())
        # A request identifies all topics by id, or all of them by name.
        session.replace(self._positions(asked, ids if has_ids else {}))
        fetch = session.next_fetch()
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation,
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            topics=fetch_topics((each, self._row(each, position)) for each, position in fetch.positions.items()),
            forgotten_topics_data=forgotten_topics(fetch.forgotten),
            rack_id=settings.client_rack,
        )
        begun = self._loop.time()
        try:
            response = await self._cluster.send(
                node_id,
                Api.FETCH,
                request,
                settings.request_timeout_ms + wait_ms,
                lane=LANE,
                version_min=_VERSION_MIN,
                version_max=LAST_VERSION if has_ids else _NAMED_VERSION_MAX,
            )
            if session.answered(response) is not ErrorCode.NONE:
                raise error_for(response.error_code)
        except KafkaError as error:
            session.restart()
            level = logging.DEBUG if node_id in self._failing_nodes else logging.WARNING
            self._failing_nodes.add(node_id)
            log.log(level, "fetching from broker %d again: %s", node_id, error)
            for one in asked.values():
                if one.state.session == one.session:
                    self._refused(one.state, error)
        else:
            self._failing_nodes.discard(node_id)
            self._metrics.fetch_latency_ms.record((self._loop.time() - begun) * 1000)
            self._take_in(node_id, asked, {topic_id: name for name, topic_id in ids.items()}, response)
        finally:
            self._busy_nodes.discard(node_id)
        # In this order, so that the broker works on the next request while the reader opens the records.
        self._start_fetches(self._loop.time())
        self._partitions.arrived.set()

    def _positions(
        self, asked: Mapping[TopicPartition, _Asked], ids: Mapping[str, bytes]
    ) -> dict[SessionPartition, _Position]:
        positions = {}
        for partition, one in asked.items():
            known = self._cluster.snapshot.partition(partition)
            topic, index = partition
            positions[SessionPartition(topic, ids.get(topic, UUID_ZERO), index)] = _Position(
                one.offset, -1 if known is None else known.leader_epoch
            )
        return positions

    def _row(self, partition: SessionPartition, position: _Position) -> FetchPartition:
        return FetchPartition(
            partition=partition.partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            partition_max_bytes=self._settings.max_partition_fetch_bytes,
        )

    # What came back.

    def _take_in(
        self, node_id: int, asked: Mapping[TopicPartition, _Asked], names: Mapping[bytes, str], response: Any
    ) -> None:
        self._fetches += 1
        now_ms = int(time.time() * 1000)
        size = count = 0
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                one = asked.get(TopicPartition(name, row.partition_index))
                if one is None:
                    continue
                if not row.error_code and row.high_watermark >= 0:
                    # Also after a seek: a fetch session does not repeat them until they change.
                    one.state.high_watermark = row.high_watermark
                    one.state.last_stable_offset = row.last_stable_offset
                    one.state.log_start_offset = row.log_start_offset
                    one.state.fetched_at_ms = now_ms
                if one.state.session != one.session:
                    continue
                if row.error_code:
                    self._take_error(node_id, one, row, response.node_endpoints)
                elif row.diverging_epoch.end_offset >= 0:
                    self._truncation.found(
                        one.state, EpochEnd(row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
                    )
                else:
                    count += self._take_records(one, row)
                    size += len(row.records or b"")
        if count:
            self._metrics.fetch_bytes.record(size)
            self._metrics.fetch_records.record(count)

    def _take_records(self, one: _Asked, row: Any) -> int:
        """Buffer the records of a partition; return how many there are."""
        state = one.state
        count = 0
        if row.preferred_read_replica >= 0:
            state.read_replica = row.preferred_read_replica
            state.read_replica_until = self._loop.time() + self._settings.metadata_max_age_ms / 1000
            return count
        if not row.records:
            return count
        state.served = self._fetches
        self._failing.discard(state.partition)
        aborted = row.aborted_transactions if self._settings.reads_committed else None
        try:
            for batch, next_offset, leader_epoch in fetched_batches(
                state.partition, row.records, one.offset, aborted, check_crcs=self._settings.check_crcs
            ):
                state.add(batch, next_offset, leader_epoch)
                count += 0 if batch is None else batch.record_count
        except CorruptBatchError as error:
            # A retry may return it undamaged; the reader gets the error in any case.
            state.failure = CorruptRecordError(f"{state.partition} at offset {state.fetch_offset}: {error}")
            self._hold_off(state)
        return count

    def _take_error(self, node_id: int, one: _Asked, row: Any, endpoints: Any) -> None:
        state = one.state
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.read_replica is not None and state.read_replica == node_id:
                # A follower may not have the offset yet, or no longer; ask the leader.
                state.read_replica = None
            else:
                self._reset_by_policy(state, f"{state.partition} has no offset {one.offset}", one.offset)
            return
        error = error_for(row.error_code, str(state.partition))
        if error.invalid_metadata and row.current_leader.leader_id >= 0:
            leader = row.current_leader
            self._cluster.learn_leader(state.partition, leader.leader_id, leader.leader_epoch, endpoints)
        if error.retriable or error.invalid_metadata:
            log.log(logging.DEBUG if state.partition in self._failing else logging.INFO, "fetching again: %s", error)
            self._failing.add(state.partition)
        self._refused(state, error)

    def _refused(self, state: AssignedPartition, error: KafkaError) -> None:
        """Retry later, and report the error to the reader if a retry may not help."""
        state.read_replica = None
        self._hold_off(state)
        if error.invalid_metadata or error.retriable:
            self._cluster.request_refresh()
        else:
            state.failure = error
            self._partitions.arrived.set()

    def _hold_off(self, state: AssignedPartition) -> None:
        state.not_before = self._loop.time() + self._settings.retry_backoff_ms / 1000

    # Where to begin.

    def _reset_by_policy(self, state: AssignedPartition, reason: str, offset: int | None) -> None:
        policy = self._settings.auto_offset_reset
        if policy == "none":
            failure = OffsetOutOfRangeError(f"{reason}, and auto_offset_reset is none")
            failure.offsets = {state.partition: offset}
            state.failure = failure
            self._hold_off(state)
            self._partitions.arrived.set()
        else:
            state.seek_by(policy)
            self._partitions.wanted.set()

    def _resolve_positions(self, now: float) -> None:
        lost = [
            state
            for state in self._partitions
            if state.position is None
            and state.failure is None
            and state.not_before <= now
            and state not in self._resolving
        ]
        if lost:
            self._resolving.update(lost)
            self._start(self._resolve(lost))

    async def _resolve(self, states: list[AssignedPartition]) -> None:
        sessions = {state: state.session for state in states}
        try:
            await self._resolve_committed([state for state in states if state.reset == "committed"])
            ends = {
                state.partition: EARLIEST if state.reset == "earliest" else LATEST
                for state in states
                if state.reset in ("earliest", "latest") and state.failure is None
            }
            if ends:
                await self._cluster.metadata({partition.topic for partition in ends})
                found = await look_up_once(self._cluster, ends, self._settings.isolation)
                for state in states:
                    one = found.get(state.partition)
                    if state.position is not None or state.reset == "committed" or one is None:
                        continue
                    if isinstance(one, KafkaError):
                        self._refused(state, one)
                    elif ends[state.partition] == (EARLIEST if state.reset == "earliest" else LATEST):
                        state.seek(max(one.offset, 0), one.leader_epoch)
        except KafkaError as error:
            for state in states:
                if state.session == sessions[state]:
                    self._refused(state, error)
        finally:
            self._resolving.difference_update(states)
            # Wakes up callers that wait for a position.
            self._partitions.arrived.set()

    async def _resolve_committed(self, states: list[AssignedPartition]) -> None:
        if not states:
            return
        sessions = {state: state.session for state in states}
        committed: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if self._committed is not None:
            committed = await self._committed([state.partition for state in states])
        for state in states:
            if state.session != sessions[state]:
                continue
            known = committed.get(state.partition)
            if known is not None:
                state.seek(known.offset, known.leader_epoch)
            else:
                self._reset_by_policy(state, f"no committed offset for {state.partition}", None)
