"""What a classic group consists of, and the phases of its rebalances. `group.py` tells more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

from ottla.broker.groups.classic.member import Member
from ottla.broker.groups.classic.messages import (
    Effects,
    GroupConfig,
    GroupSnapshot,
    GroupState,
    JoinedMember,
    JoinReply,
    SyncReply,
    Write,
)
from ottla.broker.groups.timeline import Timeline
from ottla.protocol.errors import ErrorCode

RespondJoin = Callable[[JoinReply], None]
RespondSync = Callable[[SyncReply], None]


class GroupPhases:
    """The members of one group, and where they stand with each other."""

    def __init__(self, group_id: str, config: GroupConfig, new_id: Callable[[], str]) -> None:
        """`new_id` gives the random part of a member's id."""
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # In the order in which they joined.
        self.members: dict[str, Member] = {}
        self.timeline = Timeline()
        self._config = config
        self._new_id = new_id
        self._static: dict[str, str] = {}
        # Ids that were given out and not used yet, with when they are forgotten.
        self._pending: dict[str, int] = {}
        # While joins are collected: when that ends, and how much longer it may last for an empty group to fill.
        self._join_deadline_ms = 0
        self._is_initial = False
        self._initial_left_ms = 0
        self._has_grown = False
        # Until when members must ask for their assignment; None when all have.
        self._sync_deadline_ms: int | None = None
        # The generation whose assignment is being stored.
        self._storing: int | None = None

    def __repr__(self) -> str:
        return f"<Group {self.group_id} {self.state.value} generation={self.generation} members={len(self.members)}>"

    # Storing

    def snapshot(self, wall_ms: int) -> GroupSnapshot:
        """Return the group as it is stored."""
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
        """Make a group from what was stored; its members need not join again, and their sessions begin now."""
        group = cls(stored.group_id, config, new_id)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        if not stored.members:
            return group
        group.state = GroupState.STABLE
        group.protocol_name = stored.protocol_name
        group.leader_id = stored.leader_id
        for each in stored.members:
            member = Member.of(each, stored.protocol_type, stored.protocol_name or "")
            group.members[member.member_id] = member
            if member.instance_id is not None:
                group._static[member.instance_id] = member.member_id
            member.heard(now_ms)
        group.timeline.noted("the coordinator moved to this broker", now_ms)
        return group

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

    def _forget(self, effects: Effects, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if member.respond_join is not None:
            self._refuse_join(effects, member.member_id, member.respond_join, ErrorCode.UNKNOWN_MEMBER_ID)
        if member.respond_sync is not None:
            effects.replies.append(partial(member.respond_sync, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)))
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def _put_in_place(self, old_id: str, member: Member) -> None:
        self.members = {
            member.member_id if known == old_id else known: member if known == old_id else each
            for known, each in self.members.items()
        }
        assert member.instance_id is not None
        self._static[member.instance_id] = member.member_id
        if self.leader_id == old_id:
            self.leader_id = member.member_id

    def _fence(self, effects: Effects, member: Member) -> None:
        if member.respond_join is not None:
            self._refuse_join(effects, member.member_id, member.respond_join, ErrorCode.FENCED_INSTANCE_ID)
        if member.respond_sync is not None:
            effects.replies.append(partial(member.respond_sync, SyncReply(ErrorCode.FENCED_INSTANCE_ID)))
        member.respond_join = member.respond_sync = None

    # The phases of a rebalance

    def _prepare(self, effects: Effects, cause: str, now_ms: int) -> None:
        """Begin to collect joins."""
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
        """Begin the generation if everybody is there, or the time is over."""
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
            # Static members that are away keep their places until their sessions end.
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
        """Return the protocol with most votes among those that all members have."""
        candidates = common_protocols(self.members.values())
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _reply_join(
        self,
        effects: Effects,
        member: Member,
        respond: RespondJoin,
        leader_id: str | None = None,
        is_unchanged: bool = False,
    ) -> None:
        """Tell a member of the present generation; `is_unchanged`: its leader has nothing to assign."""
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


def common_protocols(members: Iterable[Member]) -> set[str]:
    """Return the protocols that all of some members have."""
    each = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*each) if each else set()
