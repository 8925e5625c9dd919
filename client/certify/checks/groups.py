"""Consumer groups of the classic protocol: members, generations, offsets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.certify.check import CheckFailed, Checks, expect, expect_error, expect_that
from ottla.client.certify.trial import Topic, Trial
from ottla.client.consumer.group.consumer_protocol import Subscription, encode_assignment, encode_subscription
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CHECKS: Final = Checks("groups", "Consumer groups")

_GROUPS: Final = {
    Api.FIND_COORDINATOR: 0,
    Api.JOIN_GROUP: 2,
    Api.SYNC_GROUP: 1,
    Api.HEARTBEAT: 1,
    Api.LEAVE_GROUP: 1,
}
_OFFSETS: Final = {Api.FIND_COORDINATOR: 0, Api.OFFSET_COMMIT: 2, Api.OFFSET_FETCH: 2}
_STATIC: Final = _GROUPS | {Api.JOIN_GROUP: 5, Api.SYNC_GROUP: 3, Api.HEARTBEAT: 3}
_EVERYTHING, _MINE, _YOURS = (encode_assignment([TopicPartition("topic", number)]) for number in range(3))
_SESSION_TIMEOUT_MS: Final = 10_000
# The shortest that brokers allow by default.
_SHORT_SESSION_TIMEOUT_MS: Final = 6_000
_PAUSE_S: Final = 0.1
_MEMBER_ID_REQUIRED_VERSION: Final = 4
_LEAVE_LIST_VERSION: Final = 3
_FETCH_GROUPS_VERSION: Final = 8


@dataclass
class Member:
    """A member of a group as a client keeps it."""

    trial: Trial
    group: str
    name: str
    instance: str | None = None
    session_timeout_ms: int = _SESSION_TIMEOUT_MS
    member_id: str = ""
    generation: int = -1
    protocol: str = "range"

    @property
    def metadata(self) -> bytes:
        """What the leader of the group learns about this member."""
        return encode_subscription(Subscription([self.group], user_data=self.name.encode()))

    async def ask(self, api: Api, message: Any) -> Any:
        """Send a request to the coordinator, on a connection of this member."""
        return await self.trial.ask_coordinator(self.group, api, message, lane=self.name)

    async def try_join(self, **options: Any) -> Any:
        """Send one JoinGroup; return its answer."""
        if self.member_id or self.instance:
            # Before it joins: the answer may never be read.
            self.trial.will_leave(self.group, self.member_id, self.instance)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=options.pop("session_timeout_ms", self.session_timeout_ms),
            rebalance_timeout_ms=self.session_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=options.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=self.metadata)],
        )
        return await self.ask(Api.JOIN_GROUP, request)

    async def join(self) -> Any:
        """Join, also if the broker wants the member id that it gives first; return the answer."""
        is_new = self.member_id == ""
        while True:
            response = await self.try_join()
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                response = await self.try_join()
            if response.error_code != ErrorCode.UNKNOWN_MEMBER_ID or not is_new:
                break
            # Kafka forgets a group that nobody has joined yet when a topic is deleted; clients begin again.
            self.member_id = ""
        expect_error(f"JoinGroup of {self.name}", response.error_code, ErrorCode.NONE)
        self.member_id, self.generation = response.member_id, response.generation_id
        self.trial.will_leave(self.group, self.member_id, self.instance)
        return response

    async def try_sync(self, assignments: dict[str, bytes] | None = None, **options: Any) -> Any:
        """Send one SyncGroup; return its answer. `options` are fields of it."""
        rows = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=rows,
            **({"protocol_type": "consumer", "protocol_name": self.protocol} | options),
        )
        return await self.ask(Api.SYNC_GROUP, request)

    async def sync(self, assignments: dict[str, bytes] | None = None) -> bytes:
        """Return what the leader has assigned to this member."""
        response = await self.try_sync(assignments)
        expect_error(f"SyncGroup of {self.name}", response.error_code, ErrorCode.NONE)
        return bytes(response.assignment)

    async def heartbeat(self) -> int:
        """Return the error code of a heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int((await self.ask(Api.HEARTBEAT, request)).error_code)

    async def heartbeat_until(self, code: ErrorCode) -> None:
        """Send heartbeats until one is answered like this."""
        while (seen := await self.heartbeat()) != code:
            expect_error("Heartbeat", seen, ErrorCode.NONE)
            self.trial.waiting_for = f"Heartbeat to be answered {code.name}"
            await asyncio.sleep(_PAUSE_S)

    async def leave(self) -> int:
        """Leave; return the error code."""

        def build(version: int) -> Message:
            if version < _LEAVE_LIST_VERSION:
                return LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            row = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
            return LeaveGroupRequest(group_id=self.group, members=[row])

        response = await self.ask(Api.LEAVE_GROUP, build)
        rows = getattr(response, "members", [])
        return int(response.error_code or (rows[0].error_code if rows else 0))


async def _alone(trial: Trial, **options: Any) -> Member:
    """Return the only member of a new group, which is stable."""
    member = Member(trial, trial.group(), "first", **options)
    await member.join()
    await member.sync({member.member_id: _EVERYTHING})
    return member


async def _pair(trial: Trial) -> tuple[Member, Member, Any]:
    """Return two members of a group that have joined, the leader first, and the answer that the leader got."""
    first = await _alone(trial)
    second = Member(trial, trial.group(), "second")
    joining = asyncio.create_task(second.join())
    try:
        await first.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
        answer = await first.join()
        other = await joining
    finally:
        joining.cancel()
    expect("the leaders that both are told", {answer.leader, other.leader}, {answer.leader})
    if answer.leader == first.member_id:
        return first, second, answer
    return second, first, other


@CHECKS.check(_GROUPS)
async def coordinator(trial: Trial) -> None:
    """The coordinator of a group is a live broker, and stays the same."""
    found = set()
    for _ in range(3):
        trial.client.forget_coordinator(trial.group())
        found.add(await trial.client.coordinator(trial.group()))
    expect_that(len(found) == 1 and found <= set(trial.brokers), "one live broker", found)


@CHECKS.check(_GROUPS | {Api.JOIN_GROUP: 4})
async def member_id_first(trial: Trial) -> None:
    """From version 4 on, a new member first gets its id with MEMBER_ID_REQUIRED, and joins with it."""
    member = Member(trial, trial.group(), "first")
    response = await member.try_join()
    expect_error("the first JoinGroup", response.error_code, ErrorCode.MEMBER_ID_REQUIRED)
    expect_that(response.member_id != "", "a member id", "none")
    member.member_id = given = response.member_id
    response = await member.try_join()
    if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        # As in Member.join.
        member.member_id = ""
        member.member_id = given = (await member.try_join()).member_id
        response = await member.try_join()
    expect_error("JoinGroup with the id", response.error_code, ErrorCode.NONE)
    expect("the id after joining", response.member_id, given)


@CHECKS.check(_GROUPS)
async def life_of_a_group(trial: Trial) -> None:
    """Two members join; the leader sees what both offer, and each gets what the leader assigns to it."""
    leader, follower, answer = await _pair(trial)
    expect("the protocol", answer.protocol_name, "range")
    expect("both generations", follower.generation, leader.generation)
    offered = {row.member_id: row.metadata for row in answer.members}
    expect("the members that the leader sees", offered, {each.member_id: each.metadata for each in (leader, follower)})
    waiting = asyncio.create_task(follower.sync())
    try:
        mine = await leader.sync({leader.member_id: _MINE, follower.member_id: _YOURS})
        yours = await waiting
    finally:
        waiting.cancel()
    expect("the assignments", (mine, yours), (_MINE, _YOURS))
    for member in (leader, follower):
        expect_error(f"Heartbeat of {member.name}", await member.heartbeat(), ErrorCode.NONE)


@CHECKS.check(_GROUPS)
async def leaving(trial: Trial) -> None:
    """When a member leaves, the others rebalance, and its id is UNKNOWN_MEMBER_ID."""
    leader, follower, _ = await _pair(trial)
    await leader.sync({leader.member_id: _MINE, follower.member_id: _YOURS})
    await follower.sync()
    expect_error("LeaveGroup", await follower.leave(), ErrorCode.NONE)
    await leader.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
    expect_error("Heartbeat of a member that left", await follower.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    before = leader.generation
    answer = await leader.join()
    expect("the members that are left", [row.member_id for row in answer.members], [leader.member_id])
    expect("the generation", leader.generation, before + 1)


@CHECKS.check(_GROUPS | _OFFSETS)
async def generations(trial: Trial) -> None:
    """A member of an earlier generation is refused with ILLEGAL_GENERATION in heartbeats, syncs and commits."""
    member = await _alone(trial)
    topic = await trial.topic()
    member.generation -= 1
    expect_error("Heartbeat", await member.heartbeat(), ErrorCode.ILLEGAL_GENERATION)
    expect_error("SyncGroup", (await member.try_sync()).error_code, ErrorCode.ILLEGAL_GENERATION)
    code = await commit_offset(trial, member.group, topic, 1, member=member)
    expect_error("OffsetCommit", code, ErrorCode.ILLEGAL_GENERATION)
    member.generation += 1
    expect_error("Heartbeat of the current generation", await member.heartbeat(), ErrorCode.NONE)


@CHECKS.check(_GROUPS | _OFFSETS)
async def unknown_member(trial: Trial) -> None:
    """A member that the group does not have is UNKNOWN_MEMBER_ID in heartbeats, syncs, commits and leaves."""
    member = await _alone(trial)
    topic = await trial.topic()
    stranger = Member(trial, member.group, "stranger", member_id="stranger", generation=member.generation)
    expect_error("Heartbeat", await stranger.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    expect_error("SyncGroup", (await stranger.try_sync()).error_code, ErrorCode.UNKNOWN_MEMBER_ID)
    expect_error("JoinGroup", (await stranger.try_join()).error_code, ErrorCode.UNKNOWN_MEMBER_ID)
    expect_error("LeaveGroup", await stranger.leave(), ErrorCode.UNKNOWN_MEMBER_ID)
    code = await commit_offset(trial, member.group, topic, 1, member=stranger)
    expect_error("OffsetCommit", code, ErrorCode.UNKNOWN_MEMBER_ID)


@CHECKS.check(_GROUPS)
async def protocols(trial: Trial) -> None:
    """A member that supports none of the group's protocols is INCONSISTENT_GROUP_PROTOCOL."""
    member = await _alone(trial)
    other = Member(trial, member.group, "other", protocol="other")
    response = await other.try_join()
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        other.member_id = response.member_id
        response = await other.try_join()
    expect_error("another protocol", response.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@CHECKS.check(_GROUPS | {Api.SYNC_GROUP: 5})
async def protocol_of_a_sync(trial: Trial) -> None:
    """From version 5 on, SyncGroup with no protocol, or with another one, is INCONSISTENT_GROUP_PROTOCOL."""
    member = await _alone(trial)
    for options in ({"protocol_name": "other"}, {"protocol_type": None, "protocol_name": None}):
        response = await member.try_sync(**options)
        expect_error(f"SyncGroup with {options}", response.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    expect("the assignment afterwards", await member.sync(), _EVERYTHING)


@CHECKS.check(_GROUPS)
async def session_timeouts(trial: Trial) -> None:
    """A session timeout of a millisecond is INVALID_SESSION_TIMEOUT, and an empty group id INVALID_GROUP_ID."""
    member = Member(trial, trial.group(), "first")
    response = await member.try_join(session_timeout_ms=1)
    expect_error("a session timeout of 1 ms", response.error_code, ErrorCode.INVALID_SESSION_TIMEOUT)
    nameless = JoinGroupRequest(
        group_id="",
        session_timeout_ms=_SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=_SESSION_TIMEOUT_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    response = await trial.ask(Api.JOIN_GROUP, nameless, final=True)
    expect_error("a group without a name", response.error_code, ErrorCode.INVALID_GROUP_ID)


@CHECKS.check(_GROUPS)
async def silent_member(trial: Trial) -> None:
    """A member that sends no heartbeat for its session timeout is removed, and the others rebalance."""
    first = await _alone(trial)
    silent = Member(trial, first.group, "silent", session_timeout_ms=_SHORT_SESSION_TIMEOUT_MS)
    joining = asyncio.create_task(silent.join())
    try:
        await first.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
        answer = await first.join()
        await joining
    finally:
        joining.cancel()
    if answer.leader != first.member_id:
        raise CheckFailed("the first member to be the leader", "another one is")
    await first.sync({first.member_id: _MINE, silent.member_id: _YOURS})
    await silent.sync()
    await first.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
    answer = await first.join()
    expect("the members that are left", [row.member_id for row in answer.members], [first.member_id])


@CHECKS.check(_STATIC)
async def static_member(trial: Trial) -> None:
    """A static member that comes back keeps its assignment without a rebalance, and its old id is fenced."""
    member = await _alone(trial, instance="instance")
    again = Member(trial, member.group, "again", instance="instance")
    response = await again.join()
    expect("the generation after it came back", response.generation_id, member.generation)
    expect_that(again.member_id != member.member_id, "another member id", "the same one")
    expect("its assignment", await again.sync(), _EVERYTHING)
    expect_error("Heartbeat with the old id", await member.heartbeat(), ErrorCode.FENCED_INSTANCE_ID)
    expect_error("Heartbeat with the new id", await again.heartbeat(), ErrorCode.NONE)


async def commit_offset(
    trial: Trial, group: str, topic: Topic, offset: int, *, metadata: str | None = "", member: Member | None = None
) -> int:
    """Commit an offset, of a member or of nobody; return the error code."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic.name, partitions=[partition])],
    )
    response = await trial.ask_coordinator(group, Api.OFFSET_COMMIT, request)
    return int(response.topics[0].partitions[0].error_code)


async def committed(
    trial: Trial, group: str, topic: Topic | None, *, partition: int = 0, require_stable: bool = False
) -> list[Any]:
    """Return the rows of OffsetFetch for a partition, or for all that the group has if there is no topic."""

    def build(version: int) -> Message:
        indexes = [partition]
        if version < _FETCH_GROUPS_VERSION:
            rows = None if topic is None else [OffsetFetchRequestTopic(name=topic.name, partition_indexes=indexes)]
            return OffsetFetchRequest(group_id=group, topics=rows, require_stable=require_stable)
        named = None if topic is None else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=indexes)]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=named)], require_stable=require_stable
        )

    response = await trial.ask_coordinator(group, Api.OFFSET_FETCH, build)
    topics = response.groups[0].topics if response.groups else response.topics
    return [row for each in topics for row in each.partitions]


@CHECKS.check(_OFFSETS)
async def offsets(trial: Trial) -> None:
    """A committed offset is read back with its metadata; a partition without one has -1."""
    topic, group = await trial.topic(partitions=2), trial.group()
    expect_error("OffsetCommit", await commit_offset(trial, group, topic, 42, metadata="čau"), ErrorCode.NONE)
    (row,) = await committed(trial, group, topic)
    expect("offset and metadata", (row.committed_offset, row.metadata), (42, "čau"))
    (row,) = await committed(trial, group, topic, partition=1)
    expect_error("a partition without an offset", row.error_code, ErrorCode.NONE)
    expect("its offset", row.committed_offset, -1)
    expect("the offsets of all partitions", len(await committed(trial, group, None)), 1)


@CHECKS.check(_GROUPS | _OFFSETS)
async def offsets_of_members(trial: Trial) -> None:
    """A member commits with its generation; while it is there, nobody commits without one."""
    member = await _alone(trial)
    topic = await trial.topic()
    expect_error("the member", await commit_offset(trial, member.group, topic, 7, member=member), ErrorCode.NONE)
    expect_error(
        "a commit without a member", await commit_offset(trial, member.group, topic, 8), ErrorCode.UNKNOWN_MEMBER_ID
    )
    (row,) = await committed(trial, member.group, topic)
    expect("the committed offset", row.committed_offset, 7)


@CHECKS.check(_OFFSETS)
async def refused_commits(trial: Trial) -> None:
    """An unknown topic is UNKNOWN_TOPIC_OR_PARTITION, and metadata of 30,000 characters OFFSET_METADATA_TOO_LARGE."""
    topic, group = await trial.topic(), trial.group()
    unknown = Topic(trial.name("unknown"), topic.topic_id, 1)
    code = await commit_offset(trial, group, unknown, 1)
    expect_error("an unknown topic", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code = await commit_offset(trial, group, topic, 1, metadata="x" * 30_000)
    expect_error("metadata of 30,000 characters", code, ErrorCode.OFFSET_METADATA_TOO_LARGE)


@CHECKS.check(_GROUPS | {Api.DESCRIBE_GROUPS: 0, Api.LIST_GROUPS: 0})
async def describing(trial: Trial) -> None:
    """A stable group is described with its member and assignment, and its coordinator lists it."""
    member = await _alone(trial)
    response = await trial.ask_coordinator(
        member.group, Api.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[member.group])
    )
    (group,) = response.groups
    expect_error("DescribeGroups", group.error_code, ErrorCode.NONE)
    expect("the state", group.group_state, "Stable")
    (row,) = group.members
    expect("member and assignment", (row.member_id, row.member_assignment), (member.member_id, _EVERYTHING))
    node = await trial.client.coordinator(member.group)
    listed = await trial.ask(Api.LIST_GROUPS, ListGroupsRequest(), node=node)
    found = {each.group_id: each.protocol_type for each in listed.groups}
    expect("the protocol type in the list", found.get(member.group), "consumer")


@CHECKS.check(_GROUPS | _OFFSETS | {Api.DELETE_GROUPS: 0})
async def deleting(trial: Trial) -> None:
    """A group with members is NON_EMPTY_GROUP, one without is deleted, and then it is GROUP_ID_NOT_FOUND."""
    member = await _alone(trial)
    # An empty group without offsets may disappear by itself.
    expect_error(
        "OffsetCommit", await commit_offset(trial, member.group, await trial.topic(), 1, member=member), ErrorCode.NONE
    )

    async def delete() -> int:
        request = DeleteGroupsRequest(groups_names=[member.group])
        response = await trial.ask_coordinator(member.group, Api.DELETE_GROUPS, request)
        return int(response.results[0].error_code)

    expect_error("a group with a member", await delete(), ErrorCode.NON_EMPTY_GROUP)
    await member.leave()
    expect_error("an empty group", await delete(), ErrorCode.NONE)
    expect_error("a group that was deleted", await delete(), ErrorCode.GROUP_ID_NOT_FOUND)


@CHECKS.check(_OFFSETS | {Api.OFFSET_DELETE: 0})
async def deleting_offsets(trial: Trial) -> None:
    """OffsetDelete removes a committed offset; for an unknown group it is GROUP_ID_NOT_FOUND."""
    topic, group = await trial.topic(), trial.group()
    await commit_offset(trial, group, topic, 5)

    async def delete(name: str) -> Any:
        rows = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id=name, topics=[OffsetDeleteRequestTopic(name=topic.name, partitions=rows)]
        )
        return await trial.ask_coordinator(name, Api.OFFSET_DELETE, request)

    response = await delete(group)
    expect_error("OffsetDelete", response.error_code, ErrorCode.NONE)
    expect_error("its partition", response.topics[0].partitions[0].error_code, ErrorCode.NONE)
    (row,) = await committed(trial, group, topic)
    expect("the offset afterwards", row.committed_offset, -1)
    expect_error("an unknown group", (await delete(trial.name("nobody"))).error_code, ErrorCode.GROUP_ID_NOT_FOUND)
