"""CreateTopics: create topics, by counts or by explicit assignment."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import UUID_ZERO, Array, Boolean, Int8, Int16, Int32, String, Uuid


@struct
class CreatableReplicaAssignment(Message):
    partition_index: int = wire(Int32)
    broker_ids: list[int] = wire(Array(Int32))


@struct
class CreatableTopicConfig(Message):
    name: str = wire(String)
    value: str | None = wire(String, nullable="0+")


@struct
class CreatableTopic(Message):
    name: str = wire(String)
    num_partitions: int = wire(Int32)
    replication_factor: int = wire(Int16)
    assignments: list[CreatableReplicaAssignment] = wire(Array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = wire(Array(CreatableTopicConfig))


@message("0-7", flexible="5+")
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = wire(Array(CreatableTopic))
    timeout_ms: int = wire(Int32, default=60000)
    validate_only: bool = wire(Boolean, "1+", default=False)


@struct
class CreatableTopicConfigs(Message):
    name: str = wire(String)
    value: str | None = wire(String, nullable="5+")
    read_only: bool = wire(Boolean)
    config_source: int = wire(Int8, default=-1)
    is_sensitive: bool = wire(Boolean)


@struct
class CreatableTopicResult(Message):
    name: str = wire(String)
    topic_id: bytes = wire(Uuid, "7+", ignorable=True, default=UUID_ZERO)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "1+", nullable="0+", ignorable=True, default="")
    topic_config_error_code: int = wire(Int16, "5+", tag=0, ignorable=True, default=0)
    num_partitions: int = wire(Int32, "5+", ignorable=True, default=-1)
    replication_factor: int = wire(Int16, "5+", ignorable=True, default=-1)
    configs: list[CreatableTopicConfigs] | None = wire(
        Array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True, factory=list
    )


@message("0-7", flexible="5+")
class CreateTopicsResponse(Message):
    throttle_time_ms: int = wire(Int32, "2+", ignorable=True, default=0)
    topics: list[CreatableTopicResult] = wire(Array(CreatableTopicResult))
