"""A consumer group of the classic protocol, as a pure state machine.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
                     |  nobody is left                      any -> Dead (unloaded or deleted)
                     v
                   Empty

PreparingRebalance collects the joins of all members; then a generation begins, and in CompletingRebalance its leader
brings the assignment, which is stored before anybody gets it. Nothing here reads a clock, sends or writes: an operation
is given the time, and returns which waiting requests to answer, and what to store (`Effects`). One thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ottla.broker.groups.classic.group_phases import GroupPhases, RespondJoin, RespondSync, common_protocols
from ottla.broker.groups.classic.member import NEW_MEMBER_TIMEOUT_MS, Member
from ottla.broker.groups.classic.messages import (
    NO_GENERATION,
    NO_MEMBER_ID,
    Effects,
    GroupState,
    JoinRequest,
    LeaveMember,
    SyncReply,
    SyncRequest,
    Write,
)
from ottla.broker.groups.classic.subscription import subscribed_topics
from ottla.protocol.errors import ErrorCode

CONSUMER_PROTOCOL_TYPE = "consumer"


class Group(GroupPhases):
    """A group, and what its members ask of it."""

    # Joining

    def join(self, request: JoinRequest, respond: RespondJoin, now_ms: int) -> Effects:
        """Bring a member into the next generation; it is answered when that begins."""
        effects = Effects()
        error = self._join_error(request)
        if error is not ErrorCode.NONE:
            return self._refuse_join(effects, request.member_id, respond, error)
        if request.member_id == NO_MEMBER_ID:
            self._join_unknown(effects, request, respond, now_ms)
        else:
            self._join_known(effects, request, respond, now_ms)
        return effects

    def _join_error(self, request: JoinRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        config = self._config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        is_member = request.member_id in self.members or request.instance_id in self._static
        if not is_member and len(self.members) >= config.max_size:
            self._pending.pop(request.member_id, None)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _supports(self, request: JoinRequest) -> bool:
        names = {name for name, _ in request.protocols}
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and names)
        others = [member for member in self.members.values() if member.member_id != request.member_id]
        return request.protocol_type == self.protocol_type and bool(
            names & common_protocols(others) if others else names
        )

    def _join_unknown(self, effects: Effects, request: JoinRequest, respond: RespondJoin, now_ms: int) -> None:
        if request.instance_id is not None:
            member_id = f"{request.instance_id}-{self._new_id()}"
            if request.instance_id in self._static:
                self._replace_static(effects, member_id, request, respond, now_ms)
            else:
                self._add(effects, member_id, request, respond, now_ms)
            return
        member_id = f"{request.client_id}-{self._new_id()}"
        if request.requires_known_member_id:
            self._pending[member_id] = now_ms + request.session_timeout_ms
            self._refuse_join(effects, member_id, respond, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(effects, member_id, request, respond, now_ms)

    def _join_known(self, effects: Effects, request: JoinRequest, respond: RespondJoin, now_ms: int) -> None:
        member_id = request.member_id
        if member_id in self._pending and request.instance_id is None:
            self._add(effects, member_id, request, respond, now_ms)
            return
        error = self._member_error(member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(effects, member_id, respond, error)
            return
        member = self.members[member_id]
        is_same = member.protocols == request.protocols
        is_leader = member_id == self.leader_id
        if self.state is GroupState.PREPARING_REBALANCE:
            self._await_join(effects, member, request, respond)
            self._check_joined(effects, now_ms)
        elif is_same and not (is_leader and self.state is GroupState.STABLE):
            # It did not get the answer of this generation.
            self._reply_join(effects, member, respond)
            member.heard(now_ms)
        else:
            cause = f"member {member_id} {'joined again as the leader' if is_same else 'changed its subscription'}"
            self._await_join(effects, member, request, respond)
            self._prepare(effects, _with_reason(cause, request.reason), now_ms)

    def _add(self, effects: Effects, member_id: str, request: JoinRequest, respond: RespondJoin, now_ms: int) -> None:
        self._pending.pop(member_id, None)
        member = Member(member_id, request)
        member.is_new = True
        member.session_deadline_ms = now_ms + NEW_MEMBER_TIMEOUT_MS
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if request.instance_id is not None:
            self._static[request.instance_id] = member_id
        self.leader_id = self.leader_id or member_id
        self._await_join(effects, member, request, respond)
        self._has_grown = True
        if self.state is GroupState.PREPARING_REBALANCE:
            self._check_joined(effects, now_ms)
        else:
            cause = f"member {member_id} joined from {request.client_host}"
            self._prepare(effects, _with_reason(cause, request.reason), now_ms)

    def _await_join(self, effects: Effects, member: Member, request: JoinRequest, respond: RespondJoin) -> None:
        member.take(request)
        if member.respond_join is not None:
            # The client has given this one up; one answer more does no harm.
            self._refuse_join(effects, member.member_id, member.respond_join, ErrorCode.UNKNOWN_MEMBER_ID)
        member.respond_join = respond

    def _replace_static(
        self, effects: Effects, member_id: str, request: JoinRequest, respond: RespondJoin, now_ms: int
    ) -> None:
        """Let a static member that was restarted take the place that it had."""
        assert request.instance_id is not None
        old_id = self._static[request.instance_id]
        old = self.members[old_id]
        self._fence(effects, old)
        member = Member(member_id, request)
        member.assignment, member.has_synced = old.assignment, old.has_synced
        member.heard(now_ms)
        old_leader_id = self.leader_id
        self._put_in_place(old_id, member)
        if self.state is GroupState.STABLE and self._chosen_protocol() == self.protocol_name:
            self.timeline.noted(f"static member {request.instance_id} came back", now_ms)
            leader_id = self.leader_id if request.supports_skip_assignment else old_leader_id

            def stored(error: ErrorCode) -> Effects:
                done = Effects()
                if self.members.get(member_id) is not member:
                    return self._refuse_join(done, member_id, respond, ErrorCode.UNKNOWN_MEMBER_ID)
                if error is not ErrorCode.NONE:
                    self._put_in_place(member_id, old)
                    return self._refuse_join(done, NO_MEMBER_ID, respond, error)
                if self.state is GroupState.STABLE:
                    self._reply_join(done, member, respond, leader_id or "", request.supports_skip_assignment)
                else:
                    # A rebalance began meanwhile: it takes part in that.
                    self._await_join(done, member, request, respond)
                    self._check_joined(done, now_ms)
                return done

            effects.write = Write(self.snapshot(0), stored)
            return
        self._await_join(effects, member, request, respond)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._check_joined(effects, now_ms)
        else:
            self._prepare(effects, f"static member {request.instance_id} came back with another protocol", now_ms)

    # Assignments

    def sync(self, request: SyncRequest, respond: RespondSync, now_ms: int) -> Effects:
        """Give a member its assignment when the leader has brought it and it is stored."""
        effects = Effects()
        error = self._sync_error(request)
        if error is not ErrorCode.NONE:
            effects.replies.append(partial(respond, SyncReply(error)))
            return effects
        member = self.members[request.member_id]
        member.has_synced = True
        member.heard(now_ms)
        if self.state is GroupState.STABLE:
            effects.replies.append(partial(respond, self._sync_reply(member)))
            return effects
        if member.respond_sync is not None:
            effects.replies.append(partial(member.respond_sync, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.respond_sync = respond
        if request.member_id == self.leader_id and self._storing is None:
            self._store(effects, request, now_ms)
        return effects

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._member_error(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return error
        if (request.protocol_type is not None and request.protocol_type != self.protocol_type) or (
            request.protocol_name is not None and request.protocol_name != self.protocol_name
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _store(self, effects: Effects, request: SyncRequest, now_ms: int) -> None:
        generation = self._storing = self.generation
        for member in self.members.values():
            member.assignment = request.assignments.get(member.member_id, b"")

        def stored(error: ErrorCode) -> Effects:
            done = Effects()
            if self.state is not GroupState.COMPLETING_REBALANCE or self.generation != generation:
                return done
            self._storing = None
            if error is not ErrorCode.NONE:
                self._end_syncs(done, error)
                self._prepare(done, f"the assignment could not be stored: {error.name}", now_ms)
                return done
            self.state = GroupState.STABLE
            self.timeline.ended(now_ms)
            for member in self.members.values():
                if member.respond_sync is not None:
                    done.replies.append(partial(member.respond_sync, self._sync_reply(member)))
                    member.respond_sync = None
            return done

        effects.write = Write(self.snapshot(0), stored)

    def _sync_reply(self, member: Member) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # Staying and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Keep a member's session; REBALANCE_IN_PROGRESS asks it to join again."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._member_error(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        self.members[member_id].heard(now_ms)
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Say whether offsets may be committed; without a generation only while nobody is in the group."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._member_error(member_id, instance_id, generation)
        if error is ErrorCode.ILLEGAL_GENERATION and generation == NO_GENERATION:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.members[member_id].heard(now_ms)
        return ErrorCode.NONE

    def leave(self, members: Sequence[LeaveMember], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """Take members out; each has its own error."""
        effects = Effects()
        return [self._leave(effects, member, now_ms) for member in members], effects

    def _leave(self, effects: Effects, leaving: LeaveMember, now_ms: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member_id = leaving.member_id
        if member_id == NO_MEMBER_ID and leaving.instance_id is not None:
            member_id = self._static.get(leaving.instance_id, NO_MEMBER_ID)
        if leaving.instance_id is None and self._pending.pop(member_id, None) is not None:
            self._check_joined(effects, now_ms)
            return ErrorCode.NONE
        error = self._member_error(member_id, leaving.instance_id)
        if error is ErrorCode.NONE:
            cause = _with_reason(f"member {member_id} left", leaving.reason)
            self._remove(effects, self.members[member_id], cause, now_ms)
        return error

    def _remove(self, effects: Effects, member: Member, cause: str, now_ms: int) -> None:
        self._forget(effects, member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(effects, cause, now_ms)
        else:
            self._check_joined(effects, now_ms)

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the earliest."""
        deadlines = [*self._pending.values()]
        if self.state is GroupState.PREPARING_REBALANCE:
            deadlines.append(self._join_deadline_ms)
        elif self._sync_deadline_ms is not None:
            deadlines.append(self._sync_deadline_ms)
        for member in self.members.values():
            if member.is_new or (member.respond_join is None and member.respond_sync is None):
                deadlines.append(member.session_deadline_ms)
        return min(deadlines, default=None)

    def tick(self, now_ms: int) -> Effects:
        """Do what is due: sessions that are over, ids that nobody used, phases that lasted too long."""
        effects = Effects()
        for member_id in [each for each, deadline_ms in self._pending.items() if now_ms >= deadline_ms]:
            del self._pending[member_id]
        for member in [each for each in self.members.values() if each.is_expired(now_ms)]:
            silent_s = (NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms) / 1000
            cause = f"member {member.member_id} missed heartbeats for {silent_s:g} s from {member.client_host}"
            # The generation that begins when the first one goes may have left it behind already.
            if member.member_id in self.members:
                self._remove(effects, member, cause, now_ms)
        if self._sync_deadline_ms is not None and now_ms >= self._sync_deadline_ms:
            self._end_waiting_for_syncs(effects, now_ms)
        self._check_joined(effects, now_ms)
        return effects

    def _end_waiting_for_syncs(self, effects: Effects, now_ms: int) -> None:
        self._sync_deadline_ms = None
        silent = [member for member in self.members.values() if not member.has_synced]
        for member in silent:
            self._forget(effects, member)
        if silent:
            names = ", ".join(member.member_id for member in silent[:3])
            self._prepare(effects, f"{len(silent)} members did not ask for their assignment: {names}", now_ms)

    # Ending and looking

    def close(self, error: ErrorCode) -> Effects:
        """End: the group is deleted, or another broker coordinates it; whoever waits is answered with the error."""
        effects = Effects()
        self.state = GroupState.DEAD
        self._end_syncs(effects, error)
        for member in self.members.values():
            if member.respond_join is not None:
                self._refuse_join(effects, member.member_id, member.respond_join, error)
                member.respond_join = None
        return effects

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it, and nobody is about to be."""
        return self.state is GroupState.EMPTY and not self._pending

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members of a consumer group read a topic; False where what they say cannot be understood."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return False
        return any(topic in subscribed_topics(each.metadata(self.protocol_name)) for each in self.members.values())

    def describe(self) -> list[dict[str, Any]]:
        """Return what DescribeGroups says of the members; what they do is known only while the group is stable."""
        is_stable = self.state is GroupState.STABLE
        return [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(self.protocol_name) if is_stable else b"",
                "member_assignment": member.assignment if is_stable else b"",
            }
            for member in self.members.values()
        ]


def _with_reason(cause: str, reason: str) -> str:
    return f"{cause} ({reason})" if reason else cause
