"""Requests about consumer groups, of the classic protocol and of KIP-848."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.client.admin.group_results import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    GroupOutcome,
)
from ottla.client.admin.results import PartitionOutcome
from ottla.client.admin.routing import AdminRequests, error_of, only_row
from ottla.client.consumer.group.consumer_protocol import decode_assignment
from ottla.client.consumer.group.offset_requests import (
    COMMIT_VERSION_MIN,
    FETCH_ALL_VERSION_MIN,
    GroupMembership,
    fetched_group,
    offset_commit,
    offset_fetch,
)
from ottla.client.errors import GroupIdNotFoundError, KafkaError, UnsupportedVersionError, raise_for
from ottla.client.net.metadata import by_topic
from ottla.client.types import OffsetAndMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import DecodeError, ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeRequest, Member
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
# A coordinator returns these codes if it does not know a group.
_DEAD: Final = "Dead"


async def list_groups(requests: AdminRequests, brokers: Collection[int] | None) -> tuple[GroupListing, ...]:
    """Ask every broker, or these, for the groups that they coordinate; sorted by group id."""
    responses = await requests.on_all_brokers(Api.LIST_GROUPS, ListGroupsRequest(), brokers=brokers)
    listings = [
        GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type, broker_id)
        for broker_id, response in responses.items()
        for row in response.groups
    ]
    return tuple(sorted(listings, key=lambda listing: listing.group_id))


async def describe_groups(requests: AdminRequests, group_ids: Sequence[str]) -> list[GroupDescription]:
    """Ask the coordinator of each group to describe it."""
    return await asyncio.gather(*(_describe(requests, group_id) for group_id in group_ids))


async def delete_groups(requests: AdminRequests, group_ids: Sequence[str]) -> list[GroupOutcome]:
    """Ask the coordinator of each group to delete it."""

    async def delete(group_id: str) -> GroupOutcome:
        request = DeleteGroupsRequest(groups_names=[group_id])
        _, response = await requests.on_coordinator(
            group_id, Api.DELETE_GROUPS, request, lambda answer: [row.error_code for row in answer.results]
        )
        row = only_row(response.results, f"group {group_id!r}")
        return GroupOutcome(group_id, error_of(row.error_code, None, f"group {group_id!r}"))

    return await asyncio.gather(*map(delete, group_ids))


async def list_group_offsets(
    requests: AdminRequests, group_id: str, partitions: Collection[TopicPartition] | None
) -> list[GroupOffset]:
    """Ask a group's coordinator for committed offsets; raise the error of the whole request. Sorted by partition."""
    _, response = await requests.on_coordinator(
        group_id,
        Api.OFFSET_FETCH,
        offset_fetch(group_id, partitions, with_moved_timestamps=True),
        lambda response: [fetched_group(response).error_code],
        version_min=FETCH_ALL_VERSION_MIN,
    )
    group = fetched_group(response)
    raise_for(group.error_code, f"group {group_id!r}")
    offsets = [
        GroupOffset(
            topic.name,
            row.partition_index,
            row.committed_offset,
            None if row.committed_leader_epoch < 0 else row.committed_leader_epoch,
            row.metadata or "",
            error_of(row.error_code, None, f"{topic.name}-{row.partition_index}"),
            None if (moved := getattr(row, "moved_timestamp", -1)) < 0 else moved,
        )
        for topic in group.topics
        for row in topic.partitions
        if row.committed_offset >= 0 or row.error_code
    ]
    return sorted(offsets, key=lambda each: (each.topic, each.partition))


async def alter_group_offsets(
    requests: AdminRequests,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> list[PartitionOutcome]:
    """Ask a group's coordinator to store offsets."""
    positions = {
        partition: OffsetAndMetadata(given) if isinstance(given, int) else given for partition, given in offsets.items()
    }
    request = offset_commit(group_id, positions, GroupMembership())
    _, response = await requests.on_coordinator(
        group_id, Api.OFFSET_COMMIT, request, _partition_codes, version_min=COMMIT_VERSION_MIN
    )
    return _outcomes(group_id, response)


async def delete_group_offsets(
    requests: AdminRequests, group_id: str, partitions: Collection[TopicPartition]
) -> list[PartitionOutcome]:
    """Ask a group's coordinator to delete offsets; raise the error of the whole request."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
        )
        for topic, numbers in by_topic(partitions).items()
    ]
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)
    _, response = await requests.on_coordinator(
        group_id, Api.OFFSET_DELETE, request, lambda answer: [answer.error_code, *_partition_codes(answer)]
    )
    raise_for(response.error_code, f"group {group_id!r}")
    return _outcomes(group_id, response)


async def _describe(requests: AdminRequests, group_id: str) -> GroupDescription:
    try:
        return await _describe_consumer(requests, group_id) or await _describe_classic(requests, group_id)
    except KafkaError as error:
        return GroupDescription(group_id, "", "", "", "", -1, error=error)


async def _describe_consumer(requests: AdminRequests, group_id: str) -> GroupDescription | None:
    """Describe a group of KIP-848; None if it is not one, or if the broker does not support them."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    try:
        coordinator, response = await requests.on_coordinator(
            group_id, Api.CONSUMER_GROUP_DESCRIBE, request, _group_codes
        )
    except UnsupportedVersionError:
        return None
    row = only_row(response.groups, f"group {group_id!r}")
    if row.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    raise_for(row.error_code, row.error_message or f"group {group_id!r}")
    members = tuple(map(_consumer_member, row.members))
    return GroupDescription(
        group_id, _CONSUMER, row.group_state, _CONSUMER, row.assignor_name, coordinator, members, row.group_epoch
    )


async def _describe_classic(requests: AdminRequests, group_id: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=[group_id])
    coordinator, response = await requests.on_coordinator(group_id, Api.DESCRIBE_GROUPS, request, _group_codes)
    row = only_row(response.groups, f"group {group_id!r}")
    raise_for(row.error_code, f"group {group_id!r}")
    if row.group_state == _DEAD:
        raise GroupIdNotFoundError(f"there is no group {group_id!r}")
    members = tuple(_classic_member(member, row.protocol_type) for member in row.members)
    return GroupDescription(
        group_id, _CLASSIC, row.group_state, row.protocol_type, row.protocol_data, coordinator, members
    )


def _group_codes(response: Any) -> list[int]:
    return [row.error_code for row in response.groups]


def _partition_codes(response: Any) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]


def _outcomes(group_id: str, response: Any) -> list[PartitionOutcome]:
    return [
        PartitionOutcome(
            topic.name,
            row.partition_index,
            error_of(row.error_code, None, f"group {group_id!r}, {topic.name}-{row.partition_index}"),
        )
        for topic in response.topics
        for row in topic.partitions
    ]


def _consumer_member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        member.rack_id,
        member.member_epoch,
        tuple(sorted(member.subscribed_topic_names)),
        _partitions(member.target_assignment),
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(row.topic_name, each) for row in assignment.topic_partitions for each in row.partitions)
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == _CONSUMER:
        assignment = _classic_assignment(bytes(member.member_assignment))
    return GroupMember(member.member_id, member.group_instance_id, member.client_id, member.client_host, assignment)


def _classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode the assignment of a member. Clients define its format, so it may be anything."""
    try:
        return tuple(sorted(decode_assignment(data)))
    except DecodeError:
        return ()
