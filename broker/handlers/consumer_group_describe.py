"""ConsumerGroupDescribe (69), versions 0-1.

Behavior: state, epochs and members of groups of the new protocol, with what each member has and is to have. A group
that does not exist, or is a classic one, is GROUP_ID_NOT_FOUND; clients ask DescribeGroups then.

Version notes: 1 adds the type of a member: 1, of the new protocol. Who may do what with a group is not known here.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.groups.assignors import Partitions
from ottla.broker.groups.consumer_groups import ConsumerGroups
from ottla.broker.groups.consumer_messages import MemberDescription
from ottla.broker.handlers.outcome import Outcome
from ottla.broker.handlers.request import Request
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


def consumer_group_describe(request: Request) -> ConsumerGroupDescribeResponse:
    """Describe groups."""
    body: ConsumerGroupDescribeRequest = request.body
    groups = request.services.consumer_groups
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[_described(groups, group_id) for group_id in body.group_ids]
    )


def _described(groups: ConsumerGroups, group_id: str) -> DescribedGroup:
    try:
        found = groups.describe(group_id)
    except KafkaError as error:
        outcome = Outcome.refused(error)
        return DescribedGroup(
            error_code=outcome.code,
            error_message=outcome.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=[_member(groups, member) for member in found.members],
    )


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


def _assignment(groups: ConsumerGroups, partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=topic.indexes)
            for topic in groups.named(partitions)
        ]
    )
