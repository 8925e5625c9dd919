"""OffsetCommit and OffsetFetch requests of a group. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.net.metadata import by_topic
from ottla.client.types import OffsetAndMetadata
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

# Older versions use ZooKeeper, or let the client choose the retention of a commit.
COMMIT_VERSION_MIN: Final = 2
FETCH_VERSION_MIN: Final = 1
# The first version in which a null list of topics means all of them.
FETCH_ALL_VERSION_MIN: Final = 2

# The first versions with a list of groups, with instance ids, and with the option to refuse unstable offsets.
_GROUPS_VERSION: Final = 8
_INSTANCE_VERSION: Final = 7
_STABLE_VERSION: Final = 7


class GroupMembership(NamedTuple):
    """The identity for commits; the defaults are for a consumer that is not a member."""

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def offset_commit(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMembership
) -> Callable[[int], OffsetCommitRequest]:
    """Return a function that builds the OffsetCommit request for a version."""
    rows: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, number), given in offsets.items():
        row = OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=given.offset,
            committed_leader_epoch=-1 if given.leader_epoch is None else given.leader_epoch,
            committed_metadata=given.metadata,
        )
        rows[topic].append(row)

    def build(version: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id if version >= _INSTANCE_VERSION else None,
            topics=[OffsetCommitRequestTopic(name=name, partitions=some) for name, some in rows.items()],
        )

    return build


def offset_fetch(
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    *,
    require_stable: bool = False,
    with_moved_timestamps: bool = False,
) -> Callable[[int], OffsetFetchRequest]:
    """Return a function that builds the OffsetFetch request for a version; None means all partitions.

    Only brokers of Ottla answer when offsets have moved, and only from the version on that has several groups.
    """
    wanted = None if partitions is None else by_topic(partitions)

    def build(version: int) -> OffsetFetchRequest:
        is_strict = require_stable and version >= _STABLE_VERSION
        if version < _GROUPS_VERSION:
            rows = None
            if wanted is not None:
                rows = [OffsetFetchRequestTopic(name=name, partition_indexes=some) for name, some in wanted.items()]
            return OffsetFetchRequest(group_id=group_id, topics=rows, require_stable=is_strict)
        topics = None
        if wanted is not None:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=some) for name, some in wanted.items()]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        return OffsetFetchRequest(groups=[group], require_stable=is_strict, with_moved_timestamps=with_moved_timestamps)

    return build


def fetched_group(response: Any) -> Any:
    """Return the part of an OffsetFetch response about the requested group."""
    return response.groups[0] if response.groups else response
