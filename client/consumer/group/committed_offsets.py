"""The offsets of a group: OffsetCommit and OffsetFetch, sent to its coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from ottla.client.consumer.group.offset_requests import (
    COMMIT_VERSION_MIN,
    FETCH_VERSION_MIN,
    GroupMembership,
    fetched_group,
    offset_commit,
    offset_fetch,
)
from ottla.client.errors import CommitFailedError, StaleMemberEpochError, error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.coordinators import LOST_COORDINATOR
from ottla.client.types import OffsetAndMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

# After these errors, another member may have the partitions.
_NO_MEMBER: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
_STALE_ATTEMPTS_MAX: Final = 10


class CommittedOffsets:
    """Commits and reads the offsets of one group; looks up its coordinator when needed."""

    def __init__(self, cluster: ClusterClient, group_id: str, membership: Callable[[], GroupMembership]) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._membership = membership

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None) -> None:
        """Commit; CommitFailedError if we are no longer the member that has the partitions."""
        if not offsets:
            return

        async def attempt() -> None:
            response = await self._send(
                Api.OFFSET_COMMIT, offset_commit(self._group_id, offsets, self._membership()), COMMIT_VERSION_MIN
            )
            for topic in response.topics:
                for row in topic.partitions:
                    self._check(row.error_code, f"offset of {topic.name}-{row.partition_index} not committed")

        for _ in range(_STALE_ATTEMPTS_MAX):
            try:
                await self._cluster.retrying(attempt, timeout_ms)
                return
            except StaleMemberEpochError as error:
                # Our epoch changed while the commit was in flight; the next heartbeat brings the new one.
                stale = error
                await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)
        raise CommitFailedError("the member epoch is stale") from stale

    async def committed(
        self, partitions: Collection[TopicPartition], *, stable: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition; None if there is none."""
        if not partitions:
            return {}

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            response = await self._send(
                Api.OFFSET_FETCH, offset_fetch(self._group_id, partitions, require_stable=stable), FETCH_VERSION_MIN
            )
            group = fetched_group(response)
            self._check(group.error_code, "committed offsets not read")
            found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
            for topic in group.topics:
                for row in topic.partitions:
                    self._check(row.error_code, f"{topic.name}-{row.partition_index}")
                    if row.committed_offset >= 0:
                        epoch = None if row.committed_leader_epoch < 0 else row.committed_leader_epoch
                        known = OffsetAndMetadata(row.committed_offset, row.metadata or "", epoch)
                        found[TopicPartition(topic.name, row.partition_index)] = known
            return found

        found: dict[TopicPartition, OffsetAndMetadata | None] = await self._cluster.retrying(attempt, timeout_ms)
        return found

    async def _send(self, api: Api, build: Callable[[int], Any], version_min: int) -> Any:
        return await self._cluster.send_coordinator(self._group_id, api, build, version_min=version_min)

    def _check(self, code: int, detail: str) -> None:
        if not code:
            return
        if code in LOST_COORDINATOR:
            self._cluster.forget_coordinator(self._group_id)
        error = error_for(code, detail)
        if code in _NO_MEMBER:
            raise CommitFailedError(f"{detail}: {error.message}") from error
        raise error
