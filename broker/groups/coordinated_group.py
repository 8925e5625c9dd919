"""A group with the things its coordinator keeps for it: offsets, lock and timer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.messages import GroupState
from ottla.broker.groups.effects import Effects
from ottla.broker.groups.offsets.offset_store import OffsetStore
from ottla.protocol.errors import ErrorCode


class AnyGroup(Protocol):
    """The operations that the coordinator needs from both kinds of groups."""

    group_id: str
    # The kind of group, as ListGroups names it.
    type_name: str

    @property
    def state(self) -> Any:
        """The state; its `value` is the name in Kafka's protocol."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of the members; None if there never were any."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and no client is about to join."""
        ...

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `tick` has something to do; None if there is none."""
        ...

    def tick(self, now_ms: int) -> Effects:
        """Handle all deadlines that have passed."""
        ...

    def close(self, error: ErrorCode) -> Effects:
        """Mark the group as dead. Waiting requests get `error`, or the result of their write."""
        ...

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Return NONE if the member may commit offsets."""
        ...

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return NONE if the member may commit offsets in a transaction."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE if the client may read offsets."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether any member reads the topic."""
        ...

    def tombstones(self) -> list[StoredRecord]:
        """Return the records that delete the group."""
        ...


class CoordinatedGroup:
    """A group of either kind. `lock` protects the group and its offsets."""

    __slots__ = ("_known_state", "group", "lock", "offsets", "partition", "state_since_ms", "timer")

    def __init__(self, group: AnyGroup, offsets: OffsetStore, partition: int, state_since_ms: int) -> None:
        self.group = group
        self.offsets = offsets
        # The partition of `__consumer_offsets` that stores the group.
        self.partition = partition
        self.lock = threading.Lock()
        # When the group entered its current state, in milliseconds since 1970.
        self.state_since_ms = state_since_ms
        self._known_state = group.state
        self.timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<CoordinatedGroup {self.group!r} {self.offsets!r}>"

    @property
    def group_id(self) -> str:
        """The group id."""
        return self.group.group_id

    @property
    def type_name(self) -> str:
        """The kind of group, as ListGroups names it."""
        return self.group.type_name

    @property
    def is_dead(self) -> bool:
        """Whether the group was deleted, or moved to another broker."""
        return bool(self.group.state.value == GroupState.DEAD.value)

    def note_state(self, wall_ms: int) -> None:
        """Remember when the state changed. Called under the lock after every operation that may change it."""
        if self.group.state is not self._known_state:
            self._known_state = self.group.state
            self.state_since_ms = wall_ms


class Timer(DelayedOperation):
    """Calls `due` at the deadline of a group, unless another timer has replaced this one."""

    __slots__ = ("_due", "deadline_ms", "owner")

    def __init__(self, owner: CoordinatedGroup, deadline_ms: int, due: Callable[[CoordinatedGroup], None]) -> None:
        super().__init__()
        self.owner = owner
        self.deadline_ms = deadline_ms
        self._due = due

    def is_satisfied(self) -> bool:
        """Whether another timer has replaced this one."""
        return self.owner.timer is not self

    def on_complete(self, *, expired: bool) -> None:
        """Call `due` if the deadline has passed."""
        if expired and self.owner.timer is self:
            self._due(self.owner)
