"""The values that go into and come out of a group of the consumer protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from ottla.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionSet
from ottla.protocol.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
# A static member leaves, and will come back with its instance id.
LEAVE_STATIC_EPOCH: Final = -2
UNCHANGED: Final = -1


class ConsumerGroupState(Enum):
    """The state of a group. The values are the names in Kafka's protocol."""

    EMPTY = "Empty"
    # The group epoch has grown, and the target assignment is not computed yet.
    ASSIGNING = "Assigning"
    # Not all members have reached the target assignment.
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The progress of a member to its target assignment. The values are stored in records."""

    # The member owns its target assignment of its epoch.
    STABLE = 0
    # The member must revoke partitions before it gets the next epoch.
    UNREVOKED_PARTITIONS = 1
    # The member waits for partitions that other members own.
    UNRELEASED_PARTITIONS = 2


class ConsumerGroupConfig(Struct, frozen=True):
    """The broker's options for groups of the consumer protocol."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    # The first one is used if no member asks for one.
    assignors: tuple[str, ...] = ("uniform", "range")


class TopicShape(NamedTuple):
    """The id and the size of a topic."""

    topic_id: bytes
    partition_count: int


class DescribingRight(Protocol):
    """The right of a member's client to describe topics."""

    @property
    def holder(self) -> object:
        """Whose right it is."""
        ...

    @property
    def rules(self) -> object:
        """What the answers follow from: another object once they may have changed."""
        ...

    def denied(self, names: Iterable[str]) -> frozenset[str]:
        """Return the topics that the client may not describe now."""
        ...


class ConsumerHeartbeat(Struct, frozen=True):
    """A member's heartbeat. None means unchanged since the member last sent the value."""

    member_id: str
    # 0 to join, -1 to leave, -2 to leave temporarily as a static member.
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    # All partitions that the member owns, including those that it has not revoked yet.
    owned: PartitionSet | None = None
    # What limits the topics that a regular expression matches; None if the client may describe all topics.
    describing: DescribingRight | None = None

    @property
    def is_full(self) -> bool:
        """Whether all values are present. Members send full heartbeats when a request may have been lost."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != UNCHANGED and has_subscription and self.owned is not None


class ConsumerHeartbeatReply(Struct, frozen=True):
    """The reply to a heartbeat."""

    error: ErrorCode
    detail: str = ""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    # All partitions that the member may own now; None if they have not changed.
    assignment: PartitionSet | None = None


RespondHeartbeat = Callable[[ConsumerHeartbeatReply], None]


class MemberDescription(NamedTuple):
    """A member in the response to ConsumerGroupDescribe."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assigned: PartitionSet = NO_PARTITIONS
    target: PartitionSet = NO_PARTITIONS
