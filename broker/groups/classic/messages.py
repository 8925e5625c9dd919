"""What goes into a group and comes out of it: the requests of members, the replies, and the state that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode

NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""
# The protocol type of groups of consumers. Kafka Connect and others have their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class GroupState(Enum):
    """Where a group stands; the values are the names that clients know."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The broker's options for groups."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member wants to be in the next generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    # (name, metadata), the one that it likes best first.
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # Whether the client comes again with an id that it is given, so that one lost on the way leaves no ghost.
    requires_known_member_id: bool = True
    # Whether a leader can be told to keep the assignment that there is.
    supports_skip_assignment: bool = True
    reason: str = ""


class JoinedMember(NamedTuple):
    """A member as its leader learns of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a join. Only the leader is told of the members."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member wants its assignment; the leader brings those of all."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeaveMember(NamedTuple):
    """Who leaves: a member by its id, or a static one by its instance."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


class MemberSnapshot(NamedTuple):
    """A member as it is stored."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """A group as it is stored."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    # Since when it is in its state, in milliseconds since 1970.
    state_timestamp_ms: int
    members: tuple[MemberSnapshot, ...]
