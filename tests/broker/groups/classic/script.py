"""A classic group with a clock that the test controls, driven by lines that read like a script.

a = group.joins("a")                 the request waits; `a.reply` is None until it is answered
group.passes(3_000)                  the clock moves, and deadlines on the way fire
assert a.reply.generation == 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.classic.messages import (
    GroupConfig,
    GroupSnapshot,
    JoinReply,
    JoinRequest,
    LeaveMember,
    SyncReply,
    SyncRequest,
)
from ottla.broker.groups.effects import Effects
from ottla.protocol.errors import ErrorCode

RANGE = (("range", b"topics"),)


@dataclass
class Waiting:
    """A request and its replies."""

    replies: list[Any] = field(default_factory=list)

    @property
    def reply(self) -> Any:
        """The reply; None if there is none yet. Fails if there was more than one."""
        assert len(self.replies) <= 1
        return self.replies[0] if self.replies else None


class Script:
    """A group with its clock and its storage."""

    def __init__(self, **options: int) -> None:
        self.now_ms = 0
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **options})
        numbers = count(1)
        self.new_id = lambda: str(next(numbers))
        self.group = ClassicGroup("g", self.config, self.new_id)
        # The stored snapshots. Writes fail if `write_error` is set, and wait for `writes_end` if `is_slow`.
        self.stored: list[GroupSnapshot] = []
        self.write_error = ErrorCode.NONE
        self.is_slow = False
        self._open_writes: list[Any] = []

    @property
    def state(self) -> str:
        """The name of the state in Kafka's protocol."""
        return self.group.state.value

    def joins(self, name: str, member_id: str = "", **fields: Any) -> Waiting:
        """A client joins. If it is given a member id, it joins again with that id, as real clients do."""
        waiting = Waiting()
        given: dict[str, Any] = {
            "instance_id": None,
            "client_id": name,
            "client_host": "/10.0.0.5",
            "protocol_type": "consumer",
            "protocols": RANGE,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            **fields,
        }
        request = JoinRequest(member_id=member_id, **given)
        self.take(self.group.join(request, waiting.replies.append, self.now_ms))
        if waiting.replies and waiting.replies[0].error is ErrorCode.MEMBER_ID_REQUIRED:
            return self.joins(name, waiting.replies[0].member_id, **fields)
        return waiting

    def syncs(
        self, joined: JoinReply, assignments: Mapping[str, bytes] | None = None, instance_id: str | None = None
    ) -> Waiting:
        """A member asks for its assignment; the leader sends `assignments`."""
        waiting = Waiting()
        request = SyncRequest(
            joined.member_id, instance_id, joined.generation, "consumer", joined.protocol_name, assignments or {}
        )
        self.take(self.group.sync(request, waiting.replies.append, self.now_ms))
        return waiting

    def heartbeats(self, joined: JoinReply, instance_id: str | None = None) -> ErrorCode:
        """A member sends a heartbeat."""
        return self.group.heartbeat(joined.member_id, instance_id, joined.generation, self.now_ms)

    def leaves(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        """A member leaves."""
        errors, effects = self.group.leave([LeaveMember(member_id, instance_id)], self.now_ms)
        self.take(effects)
        return errors[0]

    def passes(self, milliseconds: int) -> None:
        """Let time pass, and fire all deadlines on the way."""
        end_ms = self.now_ms + milliseconds
        for _ in range(1000):
            deadline_ms = self.group.next_deadline_ms
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.tick(self.now_ms))
        self.now_ms = end_ms

    def take(self, effects: Effects) -> None:
        """Carry out the effects of an operation."""
        for reply in effects.replies:
            reply()
        if effects.write is not None:
            self._open_writes.append(effects.write)
            if not self.is_slow:
                self.writes_end()

    def writes_end(self) -> None:
        """Finish all open writes, with `write_error` as their result."""
        writes, self._open_writes = self._open_writes, []
        for write in writes:
            if self.write_error is ErrorCode.NONE:
                assert isinstance(write.snapshot, GroupSnapshot)
                self.stored.append(write.snapshot)
            self.take(write.done(self.write_error))

    def stable(self, *names: str) -> list[JoinReply]:
        """Make a stable group with these members; return their join replies, the leader first."""
        waiting: list[Waiting] = []
        for name in names:
            waiting.append(self.joins(name))
            # Existing members must join again.
            for index, each in enumerate(waiting):
                if each.replies and self.state == "PreparingRebalance":
                    waiting[index] = self.joins(names[index], each.reply.member_id)
        joined = [each.reply for each in waiting]
        leader = next(each for each in joined if each.leader_id == each.member_id)
        self.syncs(leader, {each.member_id: each.member_id.encode() for each in joined})
        for each in joined:
            if each is not leader:
                answer: SyncReply = self.syncs(each).reply
                assert answer.error is ErrorCode.NONE
        assert self.state == "Stable"
        return sorted(joined, key=lambda each: each is not leader)
