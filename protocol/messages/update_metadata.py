"""UpdateMetadata: the controller hands every broker the cluster metadata. Version 5 groups by topic."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import UUID_ZERO, Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid

# Instead of a leader: the topic is being deleted, so brokers forget the partition.
LEADER_DURING_DELETE: Final = -2
# By their numbers on the wire.
SECURITY_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


@struct
class UpdateMetadataPartitionState(Message):
    topic_name: str = wire(String, "0-4", ignorable=True, default="")
    partition_index: int = wire(Int32)
    controller_epoch: int = wire(Int32)
    leader: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    isr: list[int] = wire(Array(Int32))
    zk_version: int = wire(Int32)
    replicas: list[int] = wire(Array(Int32))
    offline_replicas: list[int] = wire(Array(Int32), "4+", ignorable=True, factory=list)
    # Ours alone: the topic is being deleted, and can be brought back.
    is_kept: bool = wire(Boolean, "6+", tag=10_000, ignorable=True, default=False)


@struct
class UpdateMetadataTopicState(Message):
    topic_name: str = wire(String)
    topic_id: bytes = wire(Uuid, "7+", ignorable=True, default=UUID_ZERO)
    partition_states: list[UpdateMetadataPartitionState] = wire(Array(UpdateMetadataPartitionState))


@struct
class UpdateMetadataEndpoint(Message):
    port: int = wire(Int32)
    host: str = wire(String)
    listener: str = wire(String, "3+", ignorable=True, default="")
    security_protocol: int = wire(Int16)


@struct
class UpdateMetadataBroker(Message):
    id: int = wire(Int32)
    v0_host: str = wire(String, "0", ignorable=True, default="")
    v0_port: int = wire(Int32, "0", ignorable=True, default=0)
    endpoints: list[UpdateMetadataEndpoint] = wire(Array(UpdateMetadataEndpoint), "1+", ignorable=True, factory=list)
    rack: str | None = wire(String, "2+", nullable="0+", ignorable=True, default="")


@message("0-8", flexible="6+")
class UpdateMetadataRequest(Message):
    controller_id: int = wire(Int32)
    is_kraft_controller: bool = wire(Boolean, "8+", default=False)
    type: int = wire(Int8, "8+", tag=0, default=0)
    controller_epoch: int = wire(Int32)
    broker_epoch: int = wire(Int64, "5+", ignorable=True, default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = wire(
        Array(UpdateMetadataPartitionState), "0-4", factory=list
    )
    topic_states: list[UpdateMetadataTopicState] = wire(Array(UpdateMetadataTopicState), "5+", factory=list)
    live_brokers: list[UpdateMetadataBroker] = wire(Array(UpdateMetadataBroker))


@message("0-8", flexible="6+")
class UpdateMetadataResponse(Message):
    error_code: int = wire(Int16)
