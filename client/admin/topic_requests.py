"""Requests about topics: create, delete, bring back, add partitions, list and describe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from ottla.client.admin.routing import AdminRequests, error_of
from ottla.client.admin.topic_results import (
    CreatedTopic,
    DeletedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicOutcome,
    UndeletedTopic,
)
from ottla.client.errors import UnknownTopicOrPartitionError, error_for
from ottla.client.net.metadata import TopicInfo
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.undelete_topics import UndeletableTopic, UndeleteTopicsRequest
from ottla.protocol.primitives import UUID_ZERO, uuid_from_text, uuid_to_text

_UNDELETE_PAUSE_S = 0.1
# From this version on, topics are rows with a name or an id.
_DELETE_ROWS_VERSION = 6


async def create_topics(
    requests: AdminRequests, topics: Sequence[NewTopic], *, validate_only: bool
) -> list[CreatedTopic]:
    """Ask the controller to create topics."""
    rows = [_creatable(topic) for topic in topics]
    request = CreateTopicsRequest(
        topics=rows, timeout_ms=requests.settings.request_timeout_ms, validate_only=validate_only
    )
    response = await requests.cluster.send_controller(Api.CREATE_TOPICS, request)
    return [
        CreatedTopic(
            row.name,
            _topic_id(row.topic_id),
            None if row.num_partitions < 0 else row.num_partitions,
            None if row.replication_factor < 0 else row.replication_factor,
            error_of(row.error_code, row.error_message, f"topic {row.name!r}"),
        )
        for row in response.topics
    ]


async def delete_topics(requests: AdminRequests, names: Sequence[str]) -> list[TopicOutcome]:
    """Ask the controller to delete topics."""
    timeout_ms = requests.settings.request_timeout_ms

    def build(version: int) -> DeleteTopicsRequest:
        if version < _DELETE_ROWS_VERSION:
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
        rows = [DeleteTopicState(name=name, topic_id=UUID_ZERO) for name in names]
        return DeleteTopicsRequest(topics=rows, timeout_ms=timeout_ms)

    response = await requests.cluster.send_controller(Api.DELETE_TOPICS, build)
    return [
        TopicOutcome(row.name or "", error_of(row.error_code, row.error_message, f"topic {row.name!r}"))
        for row in response.responses
    ]


async def list_deleted_topics(requests: AdminRequests) -> tuple[DeletedTopic, ...]:
    """Ask the controller for the deleted topics that it keeps."""
    response = await requests.cluster.send_controller(Api.UNDELETE_TOPICS, UndeleteTopicsRequest(topics=None))
    if (error := error_of(response.error_code, response.error_message, "deleted topics")) is not None:
        raise error
    return tuple(
        DeletedTopic(
            row.name or "",
            uuid_to_text(row.topic_id),
            row.partitions,
            row.deleted_ms,
            row.kept_until_ms,
            tuple(row.given_up_by),
            error_of(row.error_code, row.error_message, f"topic {row.name!r}"),
        )
        for row in response.topics
    )


async def undelete_topics(
    requests: AdminRequests, topics: Mapping[str, str | None], *, validate_only: bool
) -> list[UndeletedTopic]:
    """Ask the controller to bring deleted topics back, by id, each with its new name or None."""
    rows = [UndeletableTopic(topic_id=uuid_from_text(each), new_name=name) for each, name in topics.items()]
    request = UndeleteTopicsRequest(
        topics=rows, timeout_ms=requests.settings.request_timeout_ms, validate_only=validate_only
    )
    deadline = time.monotonic() + requests.settings.request_timeout_ms / 1000
    while True:
        response = await requests.cluster.send_controller(Api.UNDELETE_TOPICS, request)
        if (error := error_of(response.error_code, response.error_message, "deleted topics")) is not None:
            raise error
        # A topic that was deleted a moment ago is not wholly deleted yet. One that is back is not an error.
        is_late = any(row.error_code == ErrorCode.REQUEST_TIMED_OUT for row in response.topics)
        if not is_late or time.monotonic() > deadline:
            break
        await asyncio.sleep(_UNDELETE_PAUSE_S)
    return [
        UndeletedTopic(
            row.name,
            uuid_to_text(row.topic_id),
            error_of(row.error_code, row.error_message, f"topic {row.name or uuid_to_text(row.topic_id)!r}"),
        )
        for row in response.topics
    ]


async def create_partitions(
    requests: AdminRequests,
    counts: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None,
    validate_only: bool,
) -> list[TopicOutcome]:
    """Ask the controller to add partitions."""
    rows = []
    for name, count in counts.items():
        given = (assignments or {}).get(name)
        brokers = None if given is None else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in given]
        rows.append(CreatePartitionsTopic(name=name, count=count, assignments=brokers))
    request = CreatePartitionsRequest(
        topics=rows, timeout_ms=requests.settings.request_timeout_ms, validate_only=validate_only
    )
    response = await requests.cluster.send_controller(Api.CREATE_PARTITIONS, request)
    return [
        TopicOutcome(row.name, error_of(row.error_code, row.error_message, f"topic {row.name!r}"))
        for row in response.results
    ]


async def list_topics(requests: AdminRequests, *, include_internal: bool) -> tuple[TopicListing, ...]:
    """List topics from fresh metadata, sorted by name."""
    described = await describe_topics(requests, None)
    return tuple(
        TopicListing(each.name, each.topic_id, each.is_internal, len(each.partitions), each.replication_factor)
        for each in described
        if each.error is None and (include_internal or not each.is_internal)
    )


async def describe_topics(requests: AdminRequests, names: Collection[str] | None) -> list[TopicDescription]:
    """Describe topics from fresh metadata; a topic that does not exist has an error."""
    metadata = await requests.cluster.metadata(None if names is None else set(names), force=True)
    wanted = sorted(metadata.topics) if names is None else list(dict.fromkeys(names))
    return [_described(name, metadata.topics.get(name)) for name in wanted]


def _creatable(topic: NewTopic) -> CreatableTopic:
    # The broker accepts either numbers or assignments.
    is_assigned = bool(topic.replica_assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if is_assigned else topic.num_partitions,
        replication_factor=-1 if is_assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.replica_assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _topic_id(topic_id: bytes) -> str | None:
    return None if topic_id == UUID_ZERO else uuid_to_text(topic_id)


def _described(name: str, topic: TopicInfo | None) -> TopicDescription:
    if topic is None or topic.error:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        is_missing = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = UnknownTopicOrPartitionError(f"there is no topic {name!r}")
        return TopicDescription(name, None, False, (), missing if is_missing else error_for(code, f"topic {name!r}"))
    partitions = tuple(
        PartitionDescription(
            each.partition, each.leader, each.leader_epoch, each.replicas, each.isr, each.offline_replicas
        )
        for each in topic.partitions.values()
    )
    return TopicDescription(name, _topic_id(topic.topic_id), topic.is_internal, partitions)
