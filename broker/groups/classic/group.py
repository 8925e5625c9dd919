"""A consumer group of the classic protocol, as a pure state machine.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
                     |  no members are left                 any -> Dead (unloaded or deleted)
                     v
                   Empty

PreparingRebalance collects the joins of all members. Then a new generation begins. In CompletingRebalance the leader of
the generation sends the assignment, which is stored before any member receives it.

Nothing here reads a clock, sends or writes. An operation takes the current time as an argument and returns `Effects`:
the waiting requests to answer, and the state to store. The caller holds the group's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Self

from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.member import NEW_MEMBER_TIMEOUT_MS, ClassicMember
from ottla.broker.groups.classic.messages import (
    CONSUMER_PROTOCOL_TYPE,
    NO_MEMBER_ID,
    GroupConfig,
    GroupSnapshot,
    GroupState,
    JoinedMember,
    JoinReply,
    JoinRequest,
    LeaveMember,
    SyncReply,
    SyncRequest,
)
from ottla.broker.groups.classic.subscription import subscribed_topics
from ottla.broker.groups.effects import Effects, Write
from ottla.broker.groups.records import group_tombstone
from ottla.broker.groups.timeline import Timeline
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import NO_GENERATION

# All joins look at the protocols of all members. Clients have a handful.
_PROTOCOLS_MAX: Final = 100
# Member ids that were handed out and not used yet. Each costs a client one small request.
_PENDING_MAX: Final = 1000

RespondJoin = Callable[[JoinReply], None]
RespondSync = Callable[[SyncReply], None]


class ClassicGroup:
    """A group of the classic protocol: its members, its generation and its state."""

    # The kind of group, as ListGroups names it.
    type_name = "classic"

    def __init__(self, group_id: str, config: GroupConfig, new_id: Callable[[], str]) -> None:
        """`new_id` returns the random part of a new member id."""
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # In the order of joining.
        self.members: dict[str, ClassicMember] = {}
        self.timeline = Timeline()
        self._config = config
        self._new_id = new_id
        # Member ids by instance id.
        self._static: dict[str, str] = {}
        # Member ids that were handed out but not used yet, with the time at which they expire.
        self._pending: dict[str, int] = {}
        # In PreparingRebalance: when it ends, and for how much longer an empty group may wait for more members.
        self._join_deadline_ms = 0
        self._is_initial = False
        self._initial_left_ms = 0
        self._has_grown = False
        # The deadline for members to ask for their assignment; None when no deadline is set.
        self._sync_deadline_ms: int | None = None
        # The generation whose assignment is being written.
        self._storing: int | None = None

    def __repr__(self) -> str:
        state = f"{self.state.value} generation={self.generation} members={len(self.members)}"
        return f"<ClassicGroup {self.group_id} {state}>"

    # Storing

    def snapshot(self, wall_ms: int) -> GroupSnapshot:
        """Return the state of the group to store."""
        members = tuple(member.snapshot(self.protocol_name) for member in self.members.values())
        return GroupSnapshot(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader_id,
            wall_ms,
            members,
        )

    @classmethod
    def load(cls, stored: GroupSnapshot, config: GroupConfig, new_id: Callable[[], str], now_ms: int) -> Self:
        """Restore a stored group. Its members need not join again; their sessions start now."""
        group = cls(stored.group_id, config, new_id)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        if not stored.members:
            return group
        group.state = GroupState.STABLE
        group.protocol_name = stored.protocol_name
        group.leader_id = stored.leader_id
        for each in stored.members:
            member = ClassicMember.of(each, stored.protocol_type, stored.protocol_name or "")
            group.members[member.member_id] = member
            if member.instance_id is not None:
                group._static[member.instance_id] = member.member_id
            member.heard(now_ms)
        group.timeline.noted("the coordinator moved to this broker", now_ms)
        return group

    # Joining

    def join(self, request: JoinRequest, respond: RespondJoin, now_ms: int) -> Effects:
        """Add a member to the next generation. The reply is sent when that generation begins."""
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
        if len(request.protocols) > _PROTOCOLS_MAX or not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _supports(self, request: JoinRequest) -> bool:
        names = {name for name, _ in request.protocols}
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and names)
        others = [member for member in self.members.values() if member.member_id != request.member_id]
        return request.protocol_type == self.protocol_type and bool(
            names & _common_protocols(others) if others else names
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
            if len(self._pending) > _PENDING_MAX:
                # The client that got the oldest id asks for another one, if it is still there.
                del self._pending[next(iter(self._pending))]
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
            # The member did not receive the reply for this generation.
            self._reply_join(effects, member, respond)
            member.heard(now_ms)
        else:
            cause = f"member {member_id} {'joined again as the leader' if is_same else 'changed its subscription'}"
            self._await_join(effects, member, request, respond)
            self._prepare(effects, _with_reason(cause, request.reason), now_ms)

    def _add(self, effects: Effects, member_id: str, request: JoinRequest, respond: RespondJoin, now_ms: int) -> None:
        self._pending.pop(member_id, None)
        member = ClassicMember(member_id, request)
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

    def _await_join(self, effects: Effects, member: ClassicMember, request: JoinRequest, respond: RespondJoin) -> None:
        member.take(request)
        if member.respond_join is not None:
            # The client has given up on the earlier request, so an extra reply does no harm.
            self._refuse_join(effects, member.member_id, member.respond_join, ErrorCode.UNKNOWN_MEMBER_ID)
        member.respond_join = respond

    def _replace_static(
        self, effects: Effects, member_id: str, request: JoinRequest, respond: RespondJoin, now_ms: int
    ) -> None:
        """Let a restarted static member take over its old place."""
        assert request.instance_id is not None
        old_id = self._static[request.instance_id]
        old = self.members[old_id]
        self._fence(effects, old)
        member = ClassicMember(member_id, request)
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
                    # A rebalance began in the meantime, so the member joins it.
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

    # Syncing

    def sync(self, request: SyncRequest, respond: RespondSync, now_ms: int) -> Effects:
        """Reply with the member's assignment once the leader has sent it and it is stored."""
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

    def _sync_reply(self, member: ClassicMember) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # Staying and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Extend a member's session. REBALANCE_IN_PROGRESS tells the member to join again."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._member_error(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        self.members[member_id].heard(now_ms)
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Return NONE if the member may commit offsets. Without a generation, only an empty group accepts commits."""
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

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return NONE if offsets may be committed in a transaction.

        A client that names no member may: its transactional id fences it. A rebalance does not matter, and the member
        is not heard from.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_id == NO_MEMBER_ID and instance_id is None and generation < 0:
            return ErrorCode.NONE
        return self._member_error(member_id, instance_id, generation)

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE: anyone may read the offsets of a classic group."""
        return ErrorCode.NONE

    def leave(self, members: Sequence[LeaveMember], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """Remove members; return one error code per member."""
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

    def _remove(self, effects: Effects, member: ClassicMember, cause: str, now_ms: int) -> None:
        self._forget(effects, member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(effects, cause, now_ms)
        else:
            self._check_joined(effects, now_ms)

    # The phases of a rebalance

    def _prepare(self, effects: Effects, cause: str, now_ms: int) -> None:
        """Start a rebalance: ask all members to join again."""
        self._end_syncs(effects, ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_deadline_ms = self._storing = None
        self.timeline.began(cause, now_ms)
        self._is_initial = self.state is GroupState.EMPTY
        timeout_ms = self._rebalance_timeout_ms()
        if self._is_initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._initial_left_ms = max(timeout_ms - delay_ms, 0)
            self._has_grown = False
        else:
            self._join_deadline_ms = now_ms + timeout_ms
        self.state = GroupState.PREPARING_REBALANCE
        self._check_joined(effects, now_ms)

    def _check_joined(self, effects: Effects, now_ms: int) -> None:
        """Begin the next generation if all members have joined or the deadline has passed."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        is_over = now_ms >= self._join_deadline_ms
        if self._is_initial:
            if not is_over:
                return
            if self._has_grown and self._initial_left_ms > 0 and self._config.initial_rebalance_delay_ms > 0:
                more_ms = min(self._config.initial_rebalance_delay_ms, self._initial_left_ms)
                self._join_deadline_ms = now_ms + more_ms
                self._initial_left_ms -= more_ms
                self._has_grown = False
                return
        elif not is_over and (self._pending or any(each.respond_join is None for each in self.members.values())):
            return
        self._begin_generation(effects, now_ms)

    def _begin_generation(self, effects: Effects, now_ms: int) -> None:
        for member in [each for each in self.members.values() if each.respond_join is None and not each.is_static]:
            self._forget(effects, member)
        joined = [member for member in self.members.values() if member.respond_join is not None]
        if self.members and not joined:
            # Absent static members keep their places until their sessions expire.
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms()
            self._is_initial = False
            return
        self._is_initial = False
        self.generation += 1
        self.timeline.joined(self.generation, len(self.members), now_ms)
        if not self.members:
            self.protocol_name = self.leader_id = None
            self.state = GroupState.EMPTY
            self.timeline.ended(now_ms)
            effects.write = Write(self.snapshot(0), lambda error: Effects())
            return
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.respond_join is None:
            self.leader_id = joined[0].member_id
        self.protocol_name = self._chosen_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.members.values():
            member.has_synced = False
            member.is_new = False
            if member.respond_join is not None:
                member.heard(now_ms)
                self._reply_join(effects, member, member.respond_join)
                member.respond_join = None

    def _chosen_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        candidates = _common_protocols(self.members.values())
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _reply_join(
        self,
        effects: Effects,
        member: ClassicMember,
        respond: RespondJoin,
        leader_id: str | None = None,
        is_unchanged: bool = False,
    ) -> None:
        """Reply with the current generation. If `is_unchanged`, the leader is told to keep the assignment."""
        leader_id = self.leader_id or "" if leader_id is None else leader_id
        members: tuple[JoinedMember, ...] = ()
        if leader_id == member.member_id:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol_name))
                for each in self.members.values()
            )
        reply = JoinReply(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            leader_id,
            members,
            skip_assignment=is_unchanged and bool(members),
        )
        effects.replies.append(partial(respond, reply))

    def _refuse_join(self, effects: Effects, member_id: str, respond: RespondJoin, error: ErrorCode) -> Effects:
        effects.replies.append(partial(respond, JoinReply(error, member_id)))
        return effects

    def _end_syncs(self, effects: Effects, error: ErrorCode) -> None:
        for member in self.members.values():
            if member.respond_sync is not None:
                effects.replies.append(partial(member.respond_sync, SyncReply(error)))
                member.respond_sync = None

    # Members

    def _member_error(self, member_id: str, instance_id: str | None, generation: int | None = None) -> ErrorCode:
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _forget(self, effects: Effects, member: ClassicMember) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if member.respond_join is not None:
            self._refuse_join(effects, member.member_id, member.respond_join, ErrorCode.UNKNOWN_MEMBER_ID)
        if member.respond_sync is not None:
            effects.replies.append(partial(member.respond_sync, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)))
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def _put_in_place(self, old_id: str, member: ClassicMember) -> None:
        self.members = {
            member.member_id if known == old_id else known: member if known == old_id else each
            for known, each in self.members.items()
        }
        assert member.instance_id is not None
        self._static[member.instance_id] = member.member_id
        if self.leader_id == old_id:
            self.leader_id = member.member_id

    def _fence(self, effects: Effects, member: ClassicMember) -> None:
        if member.respond_join is not None:
            self._refuse_join(effects, member.member_id, member.respond_join, ErrorCode.FENCED_INSTANCE_ID)
        if member.respond_sync is not None:
            effects.replies.append(partial(member.respond_sync, SyncReply(ErrorCode.FENCED_INSTANCE_ID)))
        member.respond_join = member.respond_sync = None

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `tick` has something to do; None if there is none."""
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
        """Handle all deadlines that have passed: of sessions, of unused member ids, and of joins and syncs."""
        effects = Effects()
        for member_id in [each for each, deadline_ms in self._pending.items() if now_ms >= deadline_ms]:
            del self._pending[member_id]
        for member in [each for each in self.members.values() if each.is_expired(now_ms)]:
            silent_s = (NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms) / 1000
            cause = f"member {member.member_id} missed heartbeats for {silent_s:g} s from {member.client_host}"
            # Removing an earlier member may have begun a generation, which drops the members that did not join.
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

    # Closing and describing

    def close(self, error: ErrorCode) -> Effects:
        """Mark the group as dead, because it is deleted or has moved, and answer all waiting requests with `error`."""
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
        """Whether the group has no members and no member id is waiting to be used."""
        return self.state is GroupState.EMPTY and not self._pending

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a consumer in the group reads the topic; False if the subscriptions cannot be decoded."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return False
        return any(topic in subscribed_topics(each.metadata(self.protocol_name)) for each in self.members.values())

    def describe(self) -> list[dict[str, Any]]:
        """Return the members for DescribeGroups. Metadata and assignments are filled in only if the group is stable."""
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

    def tombstones(self) -> list[StoredRecord]:
        """Return the records that delete the group. A group that never had a generation was never written."""
        return [group_tombstone(self.group_id)] if self.generation > 0 else []


def _common_protocols(members: Iterable[ClassicMember]) -> set[str]:
    """Return the protocols that all the given members support."""
    each = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*each) if each else set()


def _with_reason(cause: str, reason: str) -> str:
    return f"{cause} ({reason})" if reason else cause
