"""Consumer groups of the new protocol (KIP-848), where brokers assign partitions."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.client.certify.check import Checks, NotApplicable, expect, expect_error, expect_that
from ottla.client.certify.trial import Topic, Trial
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions

CHECKS: Final = Checks("consumer-groups", "Consumer groups of the new protocol")

_NEEDED: Final = {Api.CONSUMER_GROUP_HEARTBEAT: 0}
_REBALANCE_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.1


class _Member:
    """A member that owns what it is assigned as soon as it hears of it."""

    def __init__(self, trial: Trial, member_id: str, topic: Topic) -> None:
        self.trial = trial
        self.group = trial.group()
        self.member_id = member_id
        self.topic = topic
        self.epoch = 0
        self.owned: list[int] = []

    async def try_heartbeat(self, epoch: int) -> Any:
        """Send one heartbeat with an epoch; return its answer."""
        owned = [RequestTopicPartitions(topic_id=self.topic.topic_id, partitions=self.owned)]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self.topic.name],
            topic_partitions=owned if self.owned else [],
        )
        response = await self.trial.ask_coordinator(
            self.group, Api.CONSUMER_GROUP_HEARTBEAT, request, lane=self.member_id
        )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise NotApplicable("ConsumerGroupHeartbeat is offered, but the protocol is switched off")
        return response

    async def heartbeat(self) -> None:
        """Send a heartbeat, which has to succeed, and take what is assigned."""
        if self.epoch == 0:
            # Before it joins: the answer may never be read.
            self.trial.will_leave_consumer_group(self.group, self.member_id)
        response = await self.try_heartbeat(self.epoch)
        expect_error(f"the heartbeat of {self.member_id}", response.error_code, ErrorCode.NONE)
        if self.epoch == 0:
            self.member_id = response.member_id or self.member_id
            self.trial.will_leave_consumer_group(self.group, self.member_id)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            self.owned = sorted(number for row in rows for number in row.partitions)


async def _settled(trial: Trial, *members: _Member) -> None:
    """Send heartbeats until all partitions have an owner, each one a different one."""
    while True:
        for member in members:
            await member.heartbeat()
        owned = sorted(number for member in members for number in member.owned)
        if owned == list(range(members[0].topic.partitions)) and all(member.owned for member in members):
            return
        trial.waiting_for = f"all partitions to be assigned; {[member.owned for member in members]} are"
        await asyncio.sleep(_PAUSE_S)


@CHECKS.check(_NEEDED)
async def one_member(trial: Trial) -> None:
    """A member that joins gets an epoch and all partitions of the topic."""
    member = _Member(trial, "member-1-of-certify-000", await trial.topic(partitions=4))
    await _settled(trial, member)
    expect_that(member.epoch > 0, "an epoch above 0", member.epoch)


@CHECKS.check(_NEEDED)
async def two_members(trial: Trial) -> None:
    """Two members share the partitions; when one leaves, the other gets all of them."""
    topic = await trial.topic(partitions=4)
    first, second = (_Member(trial, f"member-{number}-of-certify-00", topic) for number in (1, 2))
    await _settled(trial, first)
    await _settled(trial, first, second)
    expect("how many each has", (len(first.owned), len(second.owned)), (2, 2))
    response = await second.try_heartbeat(-1)
    expect_error("leaving", response.error_code, ErrorCode.NONE)
    await _settled(trial, first)


@CHECKS.check(_NEEDED)
async def epochs(trial: Trial) -> None:
    """A member with an epoch of the future is FENCED_MEMBER_EPOCH, and an unknown one UNKNOWN_MEMBER_ID."""
    topic = await trial.topic()
    member = _Member(trial, "member-1-of-certify-000", topic)
    await _settled(trial, member)
    response = await member.try_heartbeat(member.epoch + 10)
    expect_error("an epoch of the future", response.error_code, ErrorCode.FENCED_MEMBER_EPOCH)
    stranger = _Member(trial, "stranger-of-certify-000", topic)
    response = await stranger.try_heartbeat(member.epoch)
    expect_error("an unknown member", response.error_code, ErrorCode.UNKNOWN_MEMBER_ID)


@CHECKS.check(_NEEDED | {Api.CONSUMER_GROUP_DESCRIBE: 0})
async def describing(trial: Trial) -> None:
    """The group is described with its member, its epoch and its partitions."""
    topic = await trial.topic(partitions=2)
    member = _Member(trial, "member-1-of-certify-000", topic)
    await _settled(trial, member)
    request = ConsumerGroupDescribeRequest(group_ids=[member.group], include_authorized_operations=False)
    while True:
        response = await trial.ask_coordinator(member.group, Api.CONSUMER_GROUP_DESCRIBE, request)
        (group,) = response.groups
        expect_error("ConsumerGroupDescribe", group.error_code, ErrorCode.NONE)
        if group.group_state == "Stable":
            break
        trial.waiting_for = f"the group to be Stable; it is {group.group_state}"
        await member.heartbeat()
        await asyncio.sleep(_PAUSE_S)
    (row,) = group.members
    expect("the member", row.member_id, member.member_id)
    assigned = sorted(number for each in row.assignment.topic_partitions for number in each.partitions)
    expect("its partitions", assigned, [0, 1])
