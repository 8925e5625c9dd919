"""Records of `__consumer_offsets` for groups of the new protocol; key versions 3 to 8 tell them apart."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Bytes, Int8, Int32, String, Uuid


@message("3")
class ConsumerGroupMetadataKey(Message):
    group_id: str = wire(String)


@message("0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    epoch: int = wire(Int32)


@message("4")
class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str = wire(String)


@struct
class PartitionMetadata(Message):
    partition: int = wire(Int32)
    racks: list[str] = wire(Array(String))


@struct
class TopicMetadata(Message):
    topic_id: bytes = wire(Uuid)
    topic_name: str = wire(String)
    num_partitions: int = wire(Int32)
    partition_metadata: list[PartitionMetadata] = wire(Array(PartitionMetadata))


@message("0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    topics: list[TopicMetadata] = wire(Array(TopicMetadata))


@message("5")
class ConsumerGroupMemberMetadataKey(Message):
    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class ClassicProtocol(Message):
    name: str = wire(String)
    metadata: bytes = wire(Bytes)


@struct
class ClassicMemberMetadata(Message):
    session_timeout_ms: int = wire(Int32, default=0)
    supported_protocols: list[ClassicProtocol] = wire(Array(ClassicProtocol), factory=list)


@message("0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: str | None = wire(String, nullable="0+")
    rack_id: str | None = wire(String, nullable="0+")
    client_id: str = wire(String)
    client_host: str = wire(String)
    subscribed_topic_names: list[str] = wire(Array(String))
    subscribed_topic_regex: str | None = wire(String, nullable="0+")
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    server_assignor: str | None = wire(String, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, nullable="0+", tag=0, default=None
    )


@message("6")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str = wire(String)


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = wire(Int32)


@message("7")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class TopicPartitions(Message):
    topic_id: bytes = wire(Uuid)
    partitions: list[int] = wire(Array(Int32))


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[TopicPartitions] = wire(Array(TopicPartitions))


@message("8")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str = wire(String)
    member_id: str = wire(String)


@message("0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: int = wire(Int32)
    previous_member_epoch: int = wire(Int32)
    state: int = wire(Int8)
    assigned_partitions: list[TopicPartitions] = wire(Array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = wire(Array(TopicPartitions))
