"""The values that go into and come out of a classic group: requests, replies and stored state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct, field

from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import NO_GENERATION

NO_MEMBER_ID: Final = ""
# The protocol type of groups of consumers. Kafka Connect and others have their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class GroupState(Enum):
    """The state of a classic group. The values are the names in Kafka's protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupConfig(Struct, frozen=True):
    """The broker's options for classic groups."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000


class JoinRequest(Struct, frozen=True):
    """A member's request to be in the next generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    # (name, metadata), in the order of preference.
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # Whether a client without an id must join again with the id it is given. A lost reply then leaves no dead member.
    requires_known_member_id: bool = True
    # Whether the client, as a leader, can be told to keep the current assignment.
    supports_skip_assignment: bool = True
    reason: str = ""


class JoinedMember(NamedTuple):
    """A member in the reply to the leader's join."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(Struct, frozen=True):
    """The reply to a join. Only the leader's reply lists the members."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(Struct, frozen=True):
    """A member's request for its assignment. The leader's request carries the assignments of all members."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class SyncReply(Struct, frozen=True):
    """The reply to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeaveMember(NamedTuple):
    """A member that leaves, given by its member id or, for a static member, by its instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


class MemberSnapshot(NamedTuple):
    """The stored state of a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """The stored state of a classic group."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    # When the group entered its current state, in milliseconds since 1970.
    state_timestamp_ms: int
    members: tuple[MemberSnapshot, ...]
