"""The offsets of a group: OffsetCommit and OffsetFetch, sent to its coordinator."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.errors import CommitFailedError, KafkaError, StaleMemberEpochError, error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.types import OffsetAndMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

# After these the coordinator is looked for anew.
LOST_COORDINATOR: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)
# After these the partitions may be somebody else's.
_NO_MEMBER: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
_STALE_ATTEMPTS_MAX: Final = 10
# The versions from which groups are asked for in a list, instances have names, and unstable offsets can be refused.
_GROUPS_VERSION: Final = 8
_INSTANCE_VERSION: Final = 7
_STABLE_VERSION: Final = 7
# Version 0 of both went to ZooKeeper.
_VERSION_MIN: Final = 1
_COMMIT_VERSION_MIN: Final = 2


class GroupMembership(NamedTuple):
    """As who offsets are committed; the defaults are for a consumer that is no member."""

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class CommittedOffsets:
    """Commits and reads the offsets of one group, looking for its coordinator as often as it takes."""

    def __init__(self, cluster: ClusterClient, group_id: str, membership: Callable[[], GroupMembership]) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._membership = membership

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None) -> None:
        """Commit; CommitFailedError when we are no longer the member that has the partitions."""
        if not offsets:
            return

        async def attempt() -> None:
            response = await self._send(Api.OFFSET_COMMIT, self._commit_request(offsets), _COMMIT_VERSION_MIN)
            for topic in response.topics:
                for row in topic.partitions:
                    self._check(row.error_code, f"offset of {topic.name}-{row.partition_index} not committed")

        for _ in range(_STALE_ATTEMPTS_MAX):
            try:
                await self._cluster.retrying(attempt, timeout_ms)
                return
            except StaleMemberEpochError as error:
                # Our epoch changed while the commit was under way; the next heartbeat tells us the new one.
                stale = error
                await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)
        raise CommitFailedError("the member epoch is stale") from stale

    async def committed(
        self, partitions: Collection[TopicPartition], *, stable: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what is committed for each partition; None where nothing is."""
        if not partitions:
            return {}

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            response = await self._send(Api.OFFSET_FETCH, self._fetch_request(partitions, stable), _VERSION_MIN)
            group: Any = response.groups[0] if response.groups else response
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
        node_id = await self._cluster.coordinator(self._group_id)
        try:
            return await self._cluster.send(node_id, api, build, version_min=version_min)
        except KafkaError:
            self._cluster.forget_coordinator(self._group_id)
            raise

    def _check(self, code: int, detail: str) -> None:
        if not code:
            return
        if code in LOST_COORDINATOR:
            self._cluster.forget_coordinator(self._group_id)
        error = error_for(code, detail)
        if code in _NO_MEMBER:
            raise CommitFailedError(f"{detail}: {error.message}") from error
        raise error

    def _commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Callable[[int], OffsetCommitRequest]:
        member = self._membership()
        topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, given in offsets.items():
            row = OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=given.offset,
                committed_leader_epoch=-1 if given.leader_epoch is None else given.leader_epoch,
                committed_metadata=given.metadata,
            )
            topics[partition.topic].append(row)

        def build(version: int) -> OffsetCommitRequest:
            return OffsetCommitRequest(
                group_id=self._group_id,
                generation_id_or_member_epoch=member.generation,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id if version >= _INSTANCE_VERSION else None,
                topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
            )

        return build

    def _fetch_request(
        self, partitions: Collection[TopicPartition], stable: bool
    ) -> Callable[[int], OffsetFetchRequest]:
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in partitions:
            topics[topic].append(number)

        def build(version: int) -> OffsetFetchRequest:
            require_stable = stable and version >= _STABLE_VERSION
            if version < _GROUPS_VERSION:
                rows = [OffsetFetchRequestTopic(name=name, partition_indexes=part) for name, part in topics.items()]
                return OffsetFetchRequest(group_id=self._group_id, topics=rows, require_stable=require_stable)
            named = [OffsetFetchRequestTopics(name=name, partition_indexes=part) for name, part in topics.items()]
            group = OffsetFetchRequestGroup(group_id=self._group_id, topics=named)
            return OffsetFetchRequest(groups=[group], require_stable=require_stable)

        return build
