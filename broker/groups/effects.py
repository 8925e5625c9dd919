"""The effects of an operation on a group. The group only changes its own state; the coordinator does the rest."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.messages import GroupSnapshot
from ottla.protocol.errors import ErrorCode


class Write(Struct):
    """State that must be stored before the members that wait for it are answered."""

    # A classic group is stored as one record, made from its snapshot; a consumer group gives the records that changed.
    snapshot: GroupSnapshot | tuple[StoredRecord, ...]
    # Called under the group's lock with the result of the write.
    done: Callable[[ErrorCode], Effects]


class Effects(Struct):
    """The replies to send now, and the state to write, if any."""

    replies: list[Callable[[], None]] = field(default_factory=list)
    write: Write | None = None
