"""Records of `__consumer_offsets` for classic groups: an int16 version, then these fields. Key versions 0 and 1 are
offset commits, 2 is a group."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Bytes, Int32, Int64, String


@message("0-1")
class OffsetCommitKey(Message):
    group: str = wire(String)
    topic: str = wire(String)
    partition: int = wire(Int32)


@message("0-4", flexible="4+")
class OffsetCommitValue(Message):
    offset: int = wire(Int64)
    leader_epoch: int = wire(Int32, "3+", ignorable=True, default=-1)
    metadata: str = wire(String)
    commit_timestamp: int = wire(Int64)
    expire_timestamp: int = wire(Int64, "1", ignorable=True, default=-1)


@message("2")
class GroupMetadataKey(Message):
    group: str = wire(String)


@struct
class MemberMetadata(Message):
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "3+", nullable="3+", ignorable=True, default=None)
    client_id: str = wire(String)
    client_host: str = wire(String)
    rebalance_timeout: int = wire(Int32, "1+", ignorable=True, default=-1)
    session_timeout: int = wire(Int32)
    subscription: bytes = wire(Bytes)
    assignment: bytes = wire(Bytes)


@message("0-4", flexible="4+")
class GroupMetadataValue(Message):
    protocol_type: str = wire(String)
    generation: int = wire(Int32)
    protocol: str | None = wire(String, nullable="0+")
    leader: str | None = wire(String, nullable="0+")
    current_state_timestamp: int = wire(Int64, "2+", ignorable=True, default=-1)
    members: list[MemberMetadata] = wire(Array(MemberMetadata))
