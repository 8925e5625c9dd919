"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.groups.classic.messages import JoinReply, JoinRequest, MemberSnapshot, SyncReply

# A new member sends no heartbeats before its join is answered, and that depends on how fast the others join.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000


class ClassicMember:
    """One member, with its join or sync request that waits for an answer."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "has_synced",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "respond_join",
        "respond_sync",
        "session_deadline_ms",
        "session_timeout_ms",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.assignment = b""
        # Whether the member has asked for its assignment in this generation.
        self.has_synced = False
        # Whether the member has never been in a generation.
        self.is_new = False
        self.session_deadline_ms = 0
        self.respond_join: Callable[[JoinReply], None] | None = None
        self.respond_sync: Callable[[SyncReply], None] | None = None
        self.take(request)

    def __repr__(self) -> str:
        return f"<ClassicMember {self.member_id} protocols={[name for name, _ in self.protocols]}>"

    @classmethod
    def of(cls, stored: MemberSnapshot, protocol_type: str, protocol_name: str) -> ClassicMember:
        """Restore a stored member. Only the chosen protocol was stored, so the member supports only that one."""
        request = JoinRequest(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            protocol_type,
            ((protocol_name, stored.subscription),),
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
        )
        member = cls(stored.member_id, request)
        member.assignment = stored.assignment
        member.has_synced = True
        return member

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its place when it restarts."""
        return self.instance_id is not None

    def take(self, request: JoinRequest) -> None:
        """Take over the values of a new join request."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support the protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's preferred protocol among the candidates, all of which it supports."""
        return next(name for name, _ in self.protocols if name in candidates)

    def heard(self, now_ms: int) -> None:
        """Restart the member's session."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def is_expired(self, now_ms: int) -> bool:
        """Whether the session has expired. It cannot expire while a request waits, unless the member is new."""
        if not self.is_new and (self.respond_join is not None or self.respond_sync is not None):
            return False
        return now_ms >= self.session_deadline_ms

    def snapshot(self, protocol_name: str | None) -> MemberSnapshot:
        """Return the state of the member to store."""
        return MemberSnapshot(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            self.assignment,
        )
