"""A member of a group of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

One task joins, and rejoins when needed. Another sends heartbeats while we are a member, so that a slow listener does
not cost us the membership. With eager assignors we give up all partitions before rejoining. With cooperative assignors
we keep them, give up those that move once the assignment is known, and the group rebalances again to assign those.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.client.consumer.group.assignors import Assignor
from ottla.client.consumer.group.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.client.consumer.group.group_host import LANE, LEAVE_TIMEOUT_MS, GroupHost
from ottla.client.consumer.group.offset_requests import GroupMembership
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.consumer.tasks import cancelled
from ottla.client.errors import FencedInstanceIdError, KafkaError, error_for
from ottla.client.net.backoff import Backoff
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.coordinators import LOST_COORDINATOR
from ottla.client.net.metadata import ClusterMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import DecodeError, ErrorCode
from ottla.protocol.identifiers import NO_GENERATION, TopicPartition
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

log = logging.getLogger(__name__)

# A join waits for all other members, and commits and lookups must not wait behind it.

_PROTOCOL_TYPE: Final = "consumer"
# The coordinator answers a join at the latest after the rebalance timeout; we wait this much longer.
_JOIN_GRACE_MS: Final = 5_000
# The first version of LeaveGroup that names members in a list.
_LEAVE_LIST_VERSION: Final = 3
# The first versions with static members.
_STATIC_VERSIONS: Final = {Api.JOIN_GROUP: 5, Api.SYNC_GROUP: 3, Api.HEARTBEAT: 3}

# The coordinator no longer knows us: another member may have our partitions.
_MEMBERSHIP_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_JOIN_AGAIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}) | _MEMBERSHIP_LOST


class ClassicGroupMember:
    """A member from `start` to `close`."""

    def __init__(
        self, cluster: ClusterClient, settings: ConsumerSettings, host: GroupHost, assignors: list[Assignor]
    ) -> None:
        assert settings.group_id is not None
        self.group_id = settings.group_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self._cluster = cluster
        self._settings = settings
        self._host = host
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._cooperative = all(assignor.cooperative for assignor in assignors)
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        # Whether to send heartbeats: from SyncGroup to the next JoinGroup.
        self._is_stable = asyncio.Event()
        self._rejoin = asyncio.Event()
        self._rejoin.set()
        # Our last partitions, kept after they were given up, because sticky assignors need them.
        self._last_assignment: set[TopicPartition] = set()
        # For the leader: the topics of all members, and the partition counts that it assigned.
        self._group_topics: set[str] = set()
        self._shared_out: dict[str, int] | None = None

    def membership(self) -> GroupMembership:
        """The member identity for commits."""
        return GroupMembership(self.generation, self.member_id, self._settings.group_instance_id)

    def start(self) -> None:
        """Start to join."""
        self._cluster.add_listener(self._metadata_changed)
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._send_heartbeats())]

    async def close(self) -> None:
        """Give up all partitions and leave; a static member stays in the group until its session ends."""
        joining, beating = self._tasks[:1], self._tasks[1:]
        await cancelled(joining)
        try:
            # Heartbeats continue, however long the listener takes.
            if self.generation == NO_GENERATION:
                await self._host.lost(self._host.owned)
            else:
                await self._host.revoked(self._host.owned)
        finally:
            await cancelled(beating)
            self._tasks = []
            await self._leave("the consumer is closed")

    def subscription_changed(self) -> None:
        """The subscription of the host has changed."""
        self._rejoin.set()

    # Joining.

    async def _run(self) -> None:
        backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
        while True:
            await self._rejoin.wait()
            if not self._host.topics:
                await self._leave_empty()
                continue
            try:
                await self._join()
                backoff.reset()
            except KafkaError as error:
                if not self._can_go_on(error):
                    await self._host.lost(self._host.owned)
                    self._host.failed(error)
                    return
                if error.code not in _JOIN_AGAIN:
                    await asyncio.sleep(backoff.next())
            except Exception as error:
                # An error of the listener: the caller should see it instead of waiting for ever.
                self._is_stable.clear()
                self._host.failed(error)
                return

    async def _leave_empty(self) -> None:
        """Without subscribed topics, leave the group until that changes."""
        self._rejoin.clear()
        self._is_stable.clear()
        await self._host.revoked(self._host.owned)
        await self._leave("no subscribed topics")

    def _can_go_on(self, error: KafkaError) -> bool:
        """Apply the consequences of an error to our membership; return whether rejoining may help."""
        if error.code is not ErrorCode.MEMBER_ID_REQUIRED:
            log.info("group %s: %s", self.group_id, error)
        if error.code in LOST_COORDINATOR or error.code is ErrorCode.REQUEST_TIMED_OUT:
            self._cluster.forget_coordinator(self.group_id)
        if error.code in _MEMBERSHIP_LOST:
            self._forget_membership(error.code)
        return error.code in _JOIN_AGAIN or error.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE

    def _forget_membership(self, code: ErrorCode) -> None:
        self.generation = NO_GENERATION
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _join(self) -> None:
        """Go through one rebalance."""
        self._rejoin.clear()
        await self._prepare()
        self._is_stable.clear()
        topics = self._host.topics
        # If we stop waiting for a join, the rebalance is still pending.
        self._rejoin.set()
        joined = await self._request(
            Api.JOIN_GROUP, self._join_request, self._settings.max_poll_interval_ms + _JOIN_GRACE_MS
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        _check(joined.error_code, f"cannot join group {self.group_id}")
        self.member_id, self.generation = joined.member_id, joined.generation_id
        log.info("group %s: joined generation %d as %s", self.group_id, self.generation, self.member_id)
        assignor = self._assignors.get(joined.protocol_name)
        if assignor is None:
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group uses {joined.protocol_name}")
        shares = await self._shares(assignor, joined) if joined.leader == joined.member_id else []
        synced = await self._request(
            Api.SYNC_GROUP,
            lambda version: SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._instance(Api.SYNC_GROUP, version),
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=joined.protocol_name,
                assignments=shares,
            ),
            self._settings.max_poll_interval_ms + _JOIN_GRACE_MS,
        )
        _check(synced.error_code, f"no assignment in group {self.group_id}")
        self._rejoin.clear()
        self._is_stable.set()
        await self._take_assignment(decode_assignment(bytes(synced.assignment)))
        if self._host.topics != topics:
            self._rejoin.set()

    async def _prepare(self) -> None:
        """Give up the partitions that must be given up before joining."""
        owned = self._host.owned
        if self.generation == NO_GENERATION:
            await self._host.lost(owned)
        elif self._cooperative:
            await self._host.revoked({partition for partition in owned if partition.topic not in self._host.topics})
        else:
            await self._host.revoked(owned)

    def _join_request(self, version: int) -> JoinGroupRequest:
        settings = self._settings
        protocols = []
        for name, assignor in self._assignors.items():
            user_data = assignor.user_data(self._last_assignment, self.generation)
            subscription = Subscription(
                self._host.topics, self._host.owned, self.generation, user_data, settings.client_rack or None
            )
            protocols.append(JoinGroupRequestProtocol(name=name, metadata=encode_subscription(subscription)))
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self._instance(Api.JOIN_GROUP, version),
            protocol_type=_PROTOCOL_TYPE,
            protocols=protocols,
        )

    async def _shares(self, assignor: Assignor, joined: Any) -> list[SyncGroupRequestAssignment]:
        """As the leader, assign the partitions; a static leader that rejoined in time has nothing to do."""
        if joined.skip_assignment:
            return []
        try:
            members = {
                row.member_id: decode_subscription(bytes(row.metadata), row.group_instance_id) for row in joined.members
            }
        except DecodeError as error:
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        self._group_topics = {topic for member in members.values() for topic in member.topics}
        self._cluster.add_topics(self._group_topics)
        metadata = await self._cluster.metadata(self._group_topics)
        self._shared_out = self._counts(metadata)
        assigned = assignor.assign(self._shared_out, members)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(given))
            for member_id, given in assigned.items()
        ]

    async def _take_assignment(self, assigned: set[TopicPartition]) -> None:
        owned = self._host.owned
        self._last_assignment = assigned
        # We may have unsubscribed from a topic while the others were joining.
        wanted = {partition for partition in assigned if partition.topic in self._host.topics}
        if owned - wanted:
            await self._host.revoked(owned - wanted)
            self._rejoin.set()
        await self._host.assigned(wanted - owned)

    # Reasons to rejoin.

    def _counts(self, metadata: ClusterMetadata) -> dict[str, int]:
        return {topic: len(metadata.partitions_for(topic) or ()) for topic in self._group_topics}

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        """As the leader, rebalance when topics appear, disappear or get more partitions."""
        if self._shared_out is not None and self._is_stable.is_set() and self._counts(metadata) != self._shared_out:
            self._shared_out = None
            self._rejoin.set()

    async def _send_heartbeats(self) -> None:
        answered_at = self._loop.time()
        while True:
            if not self._is_stable.is_set():
                await self._is_stable.wait()
                answered_at = self._loop.time()
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            if not self._is_stable.is_set():
                continue
            if self._host.idle_s() > self._settings.max_poll_interval_ms / 1000:
                await self._leave_until_polled()
                continue
            try:
                await self._beat()
                answered_at = self._loop.time()
            except KafkaError as error:
                if isinstance(error, FencedInstanceIdError):
                    self._host.failed(error)
                    return
                self._can_go_on(error)
                is_over = self._loop.time() - answered_at > self._settings.session_timeout_ms / 1000
                if is_over:
                    self._forget_membership(ErrorCode.UNKNOWN_MEMBER_ID)
                if is_over or error.code in _JOIN_AGAIN:
                    self._rejoin.set()

    async def _beat(self) -> None:
        generation = self.generation
        response = await self._request(
            Api.HEARTBEAT,
            lambda version: HeartbeatRequest(
                group_id=self.group_id,
                generation_id=generation,
                member_id=self.member_id,
                group_instance_id=self._instance(Api.HEARTBEAT, version),
            ),
            self._settings.session_timeout_ms,
        )
        # A response for an older generation says nothing about this one.
        if generation == self.generation and self._is_stable.is_set():
            _check(response.error_code, f"group {self.group_id}")

    async def _leave_until_polled(self) -> None:
        """The caller is too slow: leave the group, and rejoin when it asks for records again."""
        log.warning("group %s: leaving, no call for records within max_poll_interval_ms", self.group_id)
        self._is_stable.clear()
        self._host.polled.clear()
        await self._leave("max_poll_interval_ms is over")
        self._forget_membership(ErrorCode.UNKNOWN_MEMBER_ID)
        await self._host.lost(self._host.owned)
        await self._host.polled.wait()
        self._rejoin.set()

    async def _leave(self, reason: str) -> None:
        """Leave the group; a static member only stops its heartbeats, so that it can come back in time."""
        if not self.member_id or self._settings.group_instance_id is not None:
            return

        def build(version: int) -> LeaveGroupRequest:
            if version < _LEAVE_LIST_VERSION:
                return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
            return LeaveGroupRequest(
                group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id, reason=reason)]
            )

        # On another lane than a pending join. If this fails, the session times out by itself.
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                await self._request(Api.LEAVE_GROUP, build, LEAVE_TIMEOUT_MS, lane="")
        self._forget_membership(ErrorCode.UNKNOWN_MEMBER_ID)

    # Requests.

    def _instance(self, api: Api, version: int) -> str | None:
        return self._settings.group_instance_id if version >= _STATIC_VERSIONS[api] else None

    async def _request(self, api: Api, build: Callable[[int], Any], timeout_ms: int, lane: str = LANE) -> Any:
        node_id = await self._cluster.coordinator(self.group_id)
        return await self._cluster.send(node_id, api, build, timeout_ms, lane=lane)


def _check(code: int, detail: str) -> None:
    if code:
        raise error_for(code, detail)
