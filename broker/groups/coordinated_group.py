"""A group in the hands of its coordinator: the state machine with its offsets, lock and timer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.groups.classic.messages import GroupState
from ottla.broker.groups.effects import Effects
from ottla.broker.groups.offsets.offset_store import OffsetStore
from ottla.broker.groups.records import StoredRecord
from ottla.protocol.errors import ErrorCode


class AnyGroup(Protocol):
    """What the coordinator needs of a group of any kind."""

    group_id: str
    # The kind of group, as ListGroups names it.
    type_name: str

    @property
    def state(self) -> Any:
        """Where it stands; `value` is the name that clients know."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """What its members have in common; None where it never had any."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it, and nobody is about to be."""
        ...

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the earliest."""
        ...

    def tick(self, now_ms: int) -> Effects:
        """Do what is due."""
        ...

    def close(self, error: ErrorCode) -> Effects:
        """End; whoever waits is answered with the error."""
        ...

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Say whether offsets may be committed."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Say whether offsets may be read."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic."""
        ...

    def tombstones(self) -> list[StoredRecord]:
        """Return the records that delete the group."""
        ...


class CoordinatedGroup:
    """One group of one partition of `__consumer_offsets`. `lock` protects the group and its offsets."""

    __slots__ = ("_known_state", "group", "lock", "offsets", "partition", "state_since_ms", "timer")

    def __init__(self, group: AnyGroup, offsets: OffsetStore, partition: int, state_since_ms: int) -> None:
        self.group = group
        self.offsets = offsets
        self.partition = partition
        self.lock = threading.Lock()
        # Since when it is in its state, in milliseconds since 1970.
        self.state_since_ms = state_since_ms
        self._known_state = group.state
        # What will look at the group next.
        self.timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<CoordinatedGroup {self.group!r} {self.offsets!r}>"

    @property
    def group_id(self) -> str:
        """Its name."""
        return self.group.group_id

    @property
    def type_name(self) -> str:
        """Its kind, as ListGroups names it."""
        return self.group.type_name

    @property
    def is_dead(self) -> bool:
        """Whether it was deleted, or another broker has it."""
        return bool(self.group.state.value == GroupState.DEAD.value)

    def note_state(self, wall_ms: int) -> None:
        """Remember when the state changed; called under the lock after every operation that may change it."""
        if self.group.state is not self._known_state:
            self._known_state = self.group.state
            self.state_since_ms = wall_ms


class Timer(DelayedOperation):
    """Looks at a group at a given time, unless another timer has taken its place."""

    __slots__ = ("_due", "deadline_ms", "owner")

    def __init__(self, owner: CoordinatedGroup, deadline_ms: int, due: Callable[[CoordinatedGroup], None]) -> None:
        super().__init__()
        self.owner = owner
        self.deadline_ms = deadline_ms
        self._due = due

    def is_satisfied(self) -> bool:
        """Whether nobody needs it any more."""
        return self.owner.timer is not self

    def on_complete(self, *, expired: bool) -> None:
        """Look at the group."""
        if expired and self.owner.timer is self:
            self._due(self.owner)
