"""What is checked of each offset that a group commits, in a transaction or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.broker.requests.access import TOPIC, denied
from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

Offsets = dict[TopicPartition, CommittedOffset]
Refused = dict[TopicPartition, ErrorCode]


def checked_offsets(request: GroupsRequest, committed: Callable[[Any], CommittedOffset]) -> tuple[Offsets, Refused]:
    """Return the offsets of a request that can be committed, and the errors of the others.

    `committed` makes an offset out of a row of the request.
    """
    offsets: Offsets = {}
    refused: Refused = {}
    hidden = denied(request, TOPIC, (topic.name for topic in request.body.topics))
    for topic in request.body.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.name, row.partition_index)
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if topic.name not in hidden:
                error = _error(request, key, row.committed_metadata)
            if error is ErrorCode.NONE:
                offsets[key] = committed(row)
            else:
                refused[key] = error
    return offsets, refused


def _error(request: GroupsRequest, partition: TopicPartition, metadata: str | None) -> ErrorCode:
    if request.services.metadata.snapshot.partition(*partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Kafka counts UTF-16 code units, as Java's strings do.
    text = metadata or ""
    length = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    if length > request.services.config().offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE
