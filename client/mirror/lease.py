"""The right to write markers, which one mirror has at a time: membership in a group of the destination.

The leader of the group has the lease. The group's coordinator keeps it for the session timeout after the last
heartbeat, so a mirror that was killed has it a few seconds longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any, Final

from ottla.client.errors import KafkaError, RequestTimedOutError, error_for
from ottla.client.mirror.errors import MirrorError
from ottla.client.net.cluster_client import ClusterClient
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

# The least that brokers allow by default.
_SESSION_MS: Final = 6_000
_HEARTBEAT_SECONDS: Final = 1.5
_LOOK_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 2.0
_JOIN_ATTEMPTS_MAX: Final = 5
_PROTOCOL: Final = "ottla-mirror"
# The first version in which a member names itself when it leaves.
_LEAVE_VERSION_MIN: Final = 3


class Lease:
    """One mirror's membership."""

    def __init__(self, cluster: ClusterClient, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._member_id = ""
        self._generation = -1
        self._held_until = 0.0
        self._lost: MirrorError | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Take it; MirrorError if another mirror has it longer than one that was killed would."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SESSION_MS / 1000 + _HEARTBEAT_SECONDS
        while holders := await self._members():
            if loop.time() > deadline:
                raise self._refusal(holders[0])
            await asyncio.sleep(_LOOK_SECONDS)
        await self._cluster.retrying(self._join)
        self._keeping = asyncio.create_task(self._keep())

    def check(self) -> None:
        """Raise MirrorError if another mirror has it, and another KafkaError while that is not known."""
        if self._lost is not None:
            raise self._lost
        if asyncio.get_running_loop().time() > self._held_until:
            raise RequestTimedOutError(f"the coordinator of group {self._group_id} does not answer")

    async def give_back(self, *, at_once: bool) -> None:
        """Leave the group, if that is quick; else the lease ends with the session."""
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping
        if self._member_id and at_once:
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._leave()

    async def _keep(self) -> None:
        while self._lost is None:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            try:
                response = await self._ask(
                    Api.HEARTBEAT,
                    HeartbeatRequest(
                        group_id=self._group_id, generation_id=self._generation, member_id=self._member_id
                    ),
                )
                code = ErrorCode.of(response.error_code)
                if code is ErrorCode.NONE:
                    self._extend()
                elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                    # Another mirror has joined. It leaves again when it sees that it does not lead the group.
                    await self._join()
                elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                    self._member_id = ""
                    await self._join()
                else:
                    self._cluster.forget_coordinator(self._group_id)
            except MirrorError as error:
                self._lost = error
            except KafkaError:
                # Until the session is over, nobody else gets it; then `check` stops us.
                continue

    async def _join(self) -> None:
        """Become the leader of the group; MirrorError if another member is, KafkaError if it cannot be found out."""
        for _ in range(_JOIN_ATTEMPTS_MAX):
            response = await self._ask(Api.JOIN_GROUP, self._join_request())
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
            elif code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            elif code is ErrorCode.NONE:
                break
            else:
                self._cluster.forget_coordinator(self._group_id)
                raise error_for(code, f"group {self._group_id}")
        else:
            raise RequestTimedOutError(f"cannot join group {self._group_id}")
        self._member_id, self._generation = response.member_id, response.generation_id
        if response.leader != self._member_id:
            await self._leave()
            raise self._refusal("")
        assignments = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"") for each in response.members
        ]
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=_PROTOCOL,
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        synced = await self._ask(Api.SYNC_GROUP, request)
        if synced.error_code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            raise error_for(synced.error_code, f"group {self._group_id}")
        self._extend()

    def _join_request(self) -> JoinGroupRequest:
        whereabouts = f"{socket.gethostname()}:{os.getpid()}".encode()
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self._member_id,
            protocol_type=_PROTOCOL,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=whereabouts)],
        )

    async def _members(self) -> list[str]:
        """Return who has the lease, as client id and host."""
        request = DescribeGroupsRequest(groups=[self._group_id])

        async def attempt() -> Any:
            response = await self._ask(Api.DESCRIBE_GROUPS, request)
            if response.groups[0].error_code:
                self._cluster.forget_coordinator(self._group_id)
                raise error_for(response.groups[0].error_code, f"group {self._group_id}")
            return response

        response = await self._cluster.retrying(attempt)
        return [f"{member.client_id} at {member.client_host}" for member in response.groups[0].members]

    async def _leave(self) -> None:
        identity = MemberIdentity(member_id=self._member_id)
        request = LeaveGroupRequest(group_id=self._group_id, members=[identity])
        self._member_id = ""
        await self._cluster.send_coordinator(self._group_id, Api.LEAVE_GROUP, request, version_min=_LEAVE_VERSION_MIN)

    async def _ask(self, api: Api, request: Any) -> Any:
        return await self._cluster.send_coordinator(self._group_id, api, request)

    def _extend(self) -> None:
        self._held_until = asyncio.get_running_loop().time() + _SESSION_MS / 1000

    def _refusal(self, holder: str) -> MirrorError:
        who = f" ({holder})" if holder else ""
        return MirrorError(
            f"Another mirror copies from this source to this destination{who}. Stop it first; "
            "mirrors of different topics need different names (--name)."
        )
