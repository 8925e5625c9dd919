"""ConsumerGroupDescribe (69), versions 0-1.

Behavior: returns the state, epochs and members of groups of the new protocol, with the current and the target
assignment of each member. A group that does not exist, or is a classic one, is GROUP_ID_NOT_FOUND; clients then try
DescribeGroups. A group that reads topics which the client may not describe is TOPIC_AUTHORIZATION_FAILED.

Version notes: version 1 adds the type of a member; it is always 1, a member of the new protocol.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.groups.consumer.assignors import PartitionSet
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.messages import MemberDescription
from ottla.broker.requests.access import GROUP, NOT_ASKED, TOPIC, denied, operations
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_NEW_PROTOCOL: Final = 1
_HIDDEN: Final = Outcome.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def consumer_group_describe(request: GroupsRequest) -> ConsumerGroupDescribeResponse:
    """Describe groups."""
    body: ConsumerGroupDescribeRequest = request.body
    group_ids = dict.fromkeys(body.group_ids)
    hidden = denied(request, GROUP, group_ids)
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[
            _nothing(group_id, _HIDDEN) if group_id in hidden else _described(request, group_id)
            for group_id in group_ids
        ],
    )


def _described(request: GroupsRequest, group_id: str) -> DescribedGroup:
    groups = request.services.consumer_groups
    try:
        found = groups.describe(group_id)
        members = [_member(groups, member) for member in found.members]
        if denied(request, TOPIC, _topics(members)):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The group reads topics that you may not describe.")
    except KafkaError as error:
        return _nothing(group_id, Outcome.refused(error))
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=members,
        authorized_operations=operations(request, GROUP, group_id)
        if request.body.include_authorized_operations
        else NOT_ASKED,
    )


def _nothing(group_id: str, why: Outcome) -> DescribedGroup:
    return DescribedGroup(
        error_code=why.code,
        error_message=why.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _topics(members: list[Member]) -> set[str]:
    return {
        topic.topic_name
        for member in members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _member(groups: ConsumerGroups, member: MemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(groups, member.assigned),
        target_assignment=_assignment(groups, member.target),
        member_type=_NEW_PROTOCOL,
    )


def _assignment(groups: ConsumerGroups, partitions: PartitionSet) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=topic.indexes)
            for topic in groups.named(partitions)
        ]
    )
