"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.groups.classic.messages import JoinReply, JoinRequest, MemberSnapshot, SyncReply

# A member that has just been added heartbeats only when it was told so, which takes as long as the others need.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000


class ClassicMember:
    """What a group knows of one member, and the request of it that waits."""

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
        # Whether it has asked for its assignment in this generation.
        self.has_synced = False
        self.is_new = False
        self.session_deadline_ms = 0
        self.respond_join: Callable[[JoinReply], None] | None = None
        self.respond_sync: Callable[[SyncReply], None] | None = None
        self.take(request)

    def __repr__(self) -> str:
        return f"<ClassicMember {self.member_id} protocols={[name for name, _ in self.protocols]}>"

    @classmethod
    def of(cls, stored: MemberSnapshot, protocol_type: str, protocol_name: str) -> ClassicMember:
        """Make it from what was stored: of its protocols, only the one that was chosen."""
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
        """Whether it keeps its place when it restarts."""
        return self.instance_id is not None

    def take(self, request: JoinRequest) -> None:
        """Take what a join says anew."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what it says to one protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the protocol that it likes best among some that it has."""
        return next(name for name, _ in self.protocols if name in candidates)

    def heard(self, now_ms: int) -> None:
        """Begin its session anew."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def is_expired(self, now_ms: int) -> bool:
        """Whether its session is over. While it waits for us it need not heartbeat, except for a new one."""
        if not self.is_new and (self.respond_join is not None or self.respond_sync is not None):
            return False
        return now_ms >= self.session_deadline_ms

    def snapshot(self, protocol_name: str | None) -> MemberSnapshot:
        """Return it as it is stored."""
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
