"""What goes into a group of the new protocol and comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ottla.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionSet
from ottla.protocol.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
# A static member goes, and will come back under its instance id.
LEAVE_STATIC_EPOCH: Final = -2
UNCHANGED: Final = -1


class ConsumerGroupState(Enum):
    """Where a group stands; the values are the names that clients know."""

    EMPTY = "Empty"
    # Something has changed, and who is to have what is not known yet.
    ASSIGNING = "Assigning"
    # It is known, and not all members have it.
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """Where a member stands on its way to its target; the values are those that are stored."""

    # It has what it is to have at its epoch.
    STABLE = 0
    # It must give partitions back before it gets to the next epoch.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that others have.
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """The broker's options for groups of the new protocol."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    # The first one is taken where members ask for none.
    assignors: tuple[str, ...] = ("uniform", "range")


class TopicShape(NamedTuple):
    """What an assignor must know of a topic."""

    topic_id: bytes
    partition_count: int


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """What a member says. None stands for what has not changed since it said it last."""

    member_id: str
    # 0 to join, -1 to leave, -2 to leave for a while as a static member.
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    # What it has and has not given back yet.
    owned: PartitionSet | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as one does that is not sure that it was heard."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != UNCHANGED and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    """The answer to a heartbeat."""

    error: ErrorCode
    detail: str = ""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    # All that the member is to have now; None where that has not changed.
    assignment: PartitionSet | None = None


RespondHeartbeat = Callable[[ConsumerHeartbeatReply], None]


class MemberDescription(NamedTuple):
    """A member as ConsumerGroupDescribe tells of it."""

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
