"""Commits of a consumer: manual, at intervals, and before partitions move to another member."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

from ottla.client.consumer.assigned_partitions import AssignedPartitions
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.group.committed_offsets import CommittedOffsets
from ottla.client.consumer.group.offset_requests import GroupMembership
from ottla.client.consumer.interceptors import ConsumerInterceptors
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.errors import KafkaError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.types import OffsetAndMetadata, Offsets, with_metadata
from ottla.protocol.identifiers import TopicPartition

# A rebalance or a close waits at most this long for an automatic commit.
_HURRIED_TIMEOUT_MS = 5_000


class Commits:
    """The committed offsets of the consumer's group."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ConsumerSettings,
        group_id: str,
        partitions: AssignedPartitions,
        membership: Callable[[], GroupMembership],
        metrics: ConsumerMetrics,
    ) -> None:
        self._metrics = metrics
        self._interceptors = ConsumerInterceptors(settings.interceptors)
        self._settings = settings
        self._partitions = partitions
        self._group = CommittedOffsets(cluster, group_id, membership)
        # The offsets of the last automatic commit, so that an idle partition is not committed again.
        self._last: dict[TopicPartition, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start automatic commits, if enabled."""
        if self._settings.enable_auto_commit:
            self._task = asyncio.create_task(self._auto_commit())

    async def close(self) -> None:
        """Stop automatic commits."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def commit(self, offsets: Offsets | None) -> None:
        """Commit these offsets, or those after all records that were handed out."""
        if offsets is None:
            offsets = {
                state.partition: OffsetAndMetadata(state.position, "", state.leader_epoch)
                for state in self._partitions
                if state.position is not None
            }
        rows = with_metadata(offsets)
        await self._store(rows)
        for partition, row in rows.items():
            # An automatic commit must not undo it.
            state = self._partitions.get(partition)
            if state is not None and (state.processed is None or state.processed < row.offset):
                state.processed = row.offset

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return committed offsets; with read_committed, wait for pending transactional commits."""
        return await self._group.committed(partitions, stable=self._settings.reads_committed)

    async def commit_processed(self, partitions: Iterable[TopicPartition]) -> None:
        """With auto-commit, commit processed records; if that fails, they will be read again."""
        if not self._settings.enable_auto_commit:
            return
        with contextlib.suppress(KafkaError):
            await self._commit_changed(set(partitions), _HURRIED_TIMEOUT_MS)

    async def _commit_changed(self, partitions: set[TopicPartition], timeout_ms: int) -> None:
        rows = {
            state.partition: OffsetAndMetadata(state.processed, "", state.leader_epoch)
            for state in self._partitions
            if state.partition in partitions
            and state.processed is not None
            and self._last.get(state.partition) != state.processed
        }
        await self._store(rows, timeout_ms)
        self._last |= {partition: row.offset for partition, row in rows.items()}

    async def _store(self, rows: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None) -> None:
        if not rows:
            return
        begun = asyncio.get_running_loop().time()
        await self._group.commit(rows, timeout_ms)
        self._metrics.commit_latency_ms.record((asyncio.get_running_loop().time() - begun) * 1000)
        self._interceptors.on_commit(rows)

    async def _auto_commit(self) -> None:
        interval_ms = self._settings.auto_commit_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            # The next interval tries again; a rebalance in between commits too.
            with contextlib.suppress(KafkaError):
                await self._commit_changed(self._partitions.names(), max(interval_ms, _HURRIED_TIMEOUT_MS))
            self._last = {
                partition: offset for partition, offset in self._last.items() if partition in self._partitions
            }
