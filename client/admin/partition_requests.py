"""Requests about partitions: their records, offsets, leaders, replicas and log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from ottla.client.admin.results import (
    DeletedRecords,
    ElectionOutcome,
    ListedOffset,
    LogDirDescription,
    LogDirReplica,
    PartitionOutcome,
    Reassignment,
    ReplicaOutcome,
    TopicPartitionReplica,
)
from ottla.client.admin.routing import AdminRequests, error_of
from ottla.client.errors import KafkaError, raise_for
from ottla.client.net.metadata import by_topic
from ottla.client.net.settings import IsolationLevel
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

ElectionType = Literal["preferred", "unclean"]

_CLIENT = -1
# The first version that returns a single offset.
_LIST_OFFSETS_VERSION_MIN = 1
_ELECTION_TYPES: dict[ElectionType, int] = {"preferred": 0, "unclean": 1}


async def delete_records(requests: AdminRequests, offsets: Mapping[TopicPartition, int]) -> list[DeletedRecords]:
    """Ask the leaders to delete records."""

    async def ask(node_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, DeletedRecords]:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=each, offset=offsets[TopicPartition(topic, each)])
                    for each in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=requests.settings.request_timeout_ms)
        response = await requests.cluster.send(node_id, Api.DELETE_RECORDS, request)
        return {
            (partition := TopicPartition(topic.name, row.partition_index)): DeletedRecords(
                *partition, row.low_watermark, error_of(row.error_code, None, str(partition))
            )
            for topic in response.topics
            for row in topic.partitions
        }

    def failed(partition: TopicPartition, error: KafkaError) -> DeletedRecords:
        return DeletedRecords(*partition, -1, error)

    return await requests.by_leader(offsets, ask, failed)


async def list_offsets(
    requests: AdminRequests,
    times: Mapping[TopicPartition, int],
    *,
    isolation_level: IsolationLevel,
) -> list[ListedOffset]:
    """Ask the leaders for offsets."""

    async def ask(node_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, ListedOffset]:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=each, timestamp=int(times[TopicPartition(topic, each)]))
                    for each in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        level = int(isolation_level == "read_committed")
        request = ListOffsetsRequest(replica_id=_CLIENT, isolation_level=level, topics=topics)
        response = await requests.cluster.send(
            node_id, Api.LIST_OFFSETS, request, version_min=_LIST_OFFSETS_VERSION_MIN
        )
        return {
            (partition := TopicPartition(topic.name, row.partition_index)): ListedOffset(
                *partition,
                row.offset,
                row.timestamp,
                row.leader_epoch,
                error_of(row.error_code, None, str(partition)),
            )
            for topic in response.topics
            for row in topic.partitions
        }

    def failed(partition: TopicPartition, error: KafkaError) -> ListedOffset:
        return ListedOffset(*partition, -1, -1, -1, error)

    return await requests.by_leader(times, ask, failed)


async def elect_leaders(
    requests: AdminRequests,
    partitions: Collection[TopicPartition] | None,
    *,
    election_type: ElectionType,
) -> list[ElectionOutcome]:
    """Ask the controller to elect leaders; raise the error of the whole request."""
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=name, partitions=each) for name, each in by_topic(partitions).items()]
    request = ElectLeadersRequest(
        election_type=_ELECTION_TYPES[election_type],
        topic_partitions=topics,
        timeout_ms=requests.settings.request_timeout_ms,
    )
    response = await requests.cluster.send_controller(
        Api.ELECT_LEADERS, request, version_min=_ELECTION_TYPES[election_type]
    )
    raise_for(response.error_code, "leaders cannot be elected")
    outcomes = []
    for topic in response.replica_election_results:
        for row in topic.partition_result:
            is_needed = row.error_code != ErrorCode.ELECTION_NOT_NEEDED
            detail = f"{topic.topic}-{row.partition_id}"
            error = error_of(row.error_code, row.error_message, detail) if is_needed else None
            outcomes.append(ElectionOutcome(topic.topic, row.partition_id, is_needed and error is None, error))
    return outcomes


async def alter_partition_reassignments(
    requests: AdminRequests,
    replicas: Mapping[TopicPartition, Sequence[int] | None],
    *,
    moves_per_broker: int,
    bytes_per_second: int,
) -> list[PartitionOutcome]:
    """Ask the controller to move replicas; raise the error of the whole request."""
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(
                    partition_index=each,
                    replicas=None if (brokers := replicas[TopicPartition(topic, each)]) is None else list(brokers),
                )
                for each in numbers
            ],
        )
        for topic, numbers in by_topic(replicas).items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=requests.settings.request_timeout_ms,
        topics=topics,
        moves_per_broker=moves_per_broker,
        bytes_per_second=bytes_per_second,
    )
    response = await requests.cluster.send_controller(Api.ALTER_PARTITION_REASSIGNMENTS, request)
    raise_for(response.error_code, response.error_message or "")
    return [
        PartitionOutcome(
            topic.name,
            row.partition_index,
            error_of(row.error_code, row.error_message, f"{topic.name}-{row.partition_index}"),
        )
        for topic in response.responses
        for row in topic.partitions
    ]


async def list_partition_reassignments(
    requests: AdminRequests, partitions: Collection[TopicPartition] | None
) -> tuple[Reassignment, ...]:
    """Ask the controller which replicas are moving."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=each)
            for name, each in by_topic(partitions).items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=requests.settings.request_timeout_ms, topics=topics)
    response = await requests.cluster.send_controller(Api.LIST_PARTITION_REASSIGNMENTS, request)
    raise_for(response.error_code, response.error_message or "")
    return tuple(
        Reassignment(
            topic.name,
            row.partition_index,
            tuple(row.replicas),
            tuple(row.adding_replicas),
            tuple(row.removing_replicas),
        )
        for topic in response.topics
        for row in topic.partitions
    )


async def describe_log_dirs(
    requests: AdminRequests, partitions: Collection[TopicPartition] | None, brokers: Collection[int] | None
) -> list[LogDirDescription]:
    """Ask every broker, or these, about their log directories."""
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=each) for name, each in by_topic(partitions).items()]
    request = DescribeLogDirsRequest(topics=topics)
    responses = await requests.on_all_brokers(Api.DESCRIBE_LOG_DIRS, request, brokers=brokers)
    return [_log_dir(broker_id, row) for broker_id, response in responses.items() for row in response.results]


async def alter_replica_log_dirs(
    requests: AdminRequests, moves: Mapping[TopicPartitionReplica, str]
) -> list[ReplicaOutcome]:
    """Ask each broker to move its replicas to other log directories."""
    by_broker: dict[int, dict[TopicPartitionReplica, str]] = {}
    for replica, path in moves.items():
        by_broker.setdefault(replica.broker_id, {})[replica] = path
    await requests.cluster.metadata((), force=True)
    answers = await asyncio.gather(*(_move_on(requests, broker, each) for broker, each in by_broker.items()))
    outcomes = {replica: outcome for answer in answers for replica, outcome in answer.items()}
    return [outcomes[replica] for replica in moves]


async def _move_on(
    requests: AdminRequests, broker_id: int, moves: Mapping[TopicPartitionReplica, str]
) -> dict[TopicPartitionReplica, ReplicaOutcome]:
    by_path: dict[str, list[TopicPartition]] = {}
    for replica, path in moves.items():
        by_path.setdefault(path, []).append(TopicPartition(replica.topic, replica.partition))
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=each) for name, each in by_topic(partitions).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
    )
    try:
        response = await requests.cluster.send(broker_id, Api.ALTER_REPLICA_LOG_DIRS, request)
    except KafkaError as error:
        return {replica: ReplicaOutcome(*replica, error) for replica in moves}
    codes = {
        (topic.topic_name, row.partition_index): row.error_code
        for topic in response.results
        for row in topic.partitions
    }
    return {
        replica: ReplicaOutcome(*replica, error_of(codes[replica[:2]], None, f"{replica.topic}-{replica.partition}"))
        for replica in moves
    }


def _log_dir(broker_id: int, row: DescribeLogDirsResult) -> LogDirDescription:
    replicas = tuple(
        LogDirReplica(topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
        for topic in row.topics
        for each in topic.partitions
    )
    return LogDirDescription(
        broker_id,
        row.log_dir,
        None if row.total_bytes < 0 else row.total_bytes,
        None if row.usable_bytes < 0 else row.usable_bytes,
        replicas,
        error_of(row.error_code, None, f"broker {broker_id}: {row.log_dir}"),
    )
