"""What is checked of each offset that a group commits, in a transaction or not."""

from __future__ import annotations

from ottla.broker.requests.request import GroupsRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition


def offset_error(request: GroupsRequest, partition: TopicPartition, metadata: str | None) -> ErrorCode:
    """Return why an offset cannot be committed: no such partition, or too long metadata; NONE if it can."""
    if request.services.metadata.snapshot.partition(*partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Kafka counts UTF-16 code units, as Java's strings do.
    text = metadata or ""
    length = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    if length > request.services.config().offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE
