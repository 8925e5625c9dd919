"""Metadata: brokers, topics, partitions and leaders. Version 10 adds topic ids."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import UUID_ZERO, Array, Boolean, Int16, Int32, String, Uuid


@struct
class MetadataRequestTopic(Message):
    topic_id: bytes = wire(Uuid, "10+", ignorable=True, default=UUID_ZERO)
    name: str | None = wire(String, nullable="10+")


@message("0-12", flexible="9+")
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = wire(Array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = wire(Boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(Boolean, "8-10", default=False)
    include_topic_authorized_operations: bool = wire(Boolean, "8+", default=False)


@struct
class MetadataResponseBroker(Message):
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, "1+", nullable="1+", ignorable=True, default=None)


@struct
class MetadataResponsePartition(Message):
    error_code: int = wire(Int16)
    partition_index: int = wire(Int32)
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32, "7+", ignorable=True, default=-1)
    replica_nodes: list[int] = wire(Array(Int32))
    isr_nodes: list[int] = wire(Array(Int32))
    offline_replicas: list[int] = wire(Array(Int32), "5+", ignorable=True, factory=list)


@struct
class MetadataResponseTopic(Message):
    error_code: int = wire(Int16)
    name: str | None = wire(String, nullable="12+")
    topic_id: bytes = wire(Uuid, "10+", ignorable=True, default=UUID_ZERO)
    is_internal: bool = wire(Boolean, "1+", ignorable=True, default=False)
    partitions: list[MetadataResponsePartition] = wire(Array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(Int32, "8+", default=-2147483648)


@message("0-12", flexible="9+")
class MetadataResponse(Message):
    throttle_time_ms: int = wire(Int32, "3+", ignorable=True, default=0)
    brokers: list[MetadataResponseBroker] = wire(Array(MetadataResponseBroker))
    cluster_id: str | None = wire(String, "2+", nullable="2+", ignorable=True, default=None)
    controller_id: int = wire(Int32, "1+", ignorable=True, default=-1)
    topics: list[MetadataResponseTopic] = wire(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(Int32, "8-10", default=-2147483648)
