"""AlterReplicaLogDirs: move replicas between the log directories of a broker."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Int16, Int32, String


@struct
class AlterReplicaLogDirTopic(Message):
    name: str = wire(String)
    partitions: list[int] = wire(Array(Int32))


@struct
class AlterReplicaLogDir(Message):
    path: str = wire(String)
    topics: list[AlterReplicaLogDirTopic] = wire(Array(AlterReplicaLogDirTopic))


@message("0-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir] = wire(Array(AlterReplicaLogDir))


@struct
class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = wire(String)
    partitions: list[AlterReplicaLogDirPartitionResult] = wire(Array(AlterReplicaLogDirPartitionResult))


@message("0-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: int = wire(Int32)
    results: list[AlterReplicaLogDirTopicResult] = wire(Array(AlterReplicaLogDirTopicResult))
