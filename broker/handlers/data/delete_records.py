"""DeleteRecords (21), versions 0-2.

Behavior: moves the log start of each partition to the given offset (-1: the high watermark). Records below it are no
longer served; the next retention run deletes their segments. The response waits until every live replica has the new
log start, so that no failover brings the records back. REQUEST_TIMED_OUT: some replica did not in time.
POLICY_VIOLATION: the topic is only compacted. INVALID_TOPIC_EXCEPTION: the topic is internal. OFFSET_OUT_OF_RANGE: the
offset is above the high watermark.
"""

from __future__ import annotations

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partitions import Partitions
from ottla.broker.requests.access import TOPIC, denied
from ottla.broker.requests.request import DataRequest, Delayed, Respond
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS, NO_OFFSET, TopicPartition
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1


class _Deletion:
    """The deletion in one partition. Its states: (a) refused, (b) done by the leader, (c) done by all replicas."""

    __slots__ = ("_index", "_offset", "_refusal", "partition")

    def __init__(
        self,
        index: int,
        refusal: ErrorCode = ErrorCode.NONE,
        partition: Partition | None = None,
        offset: int = NO_OFFSET,
    ) -> None:
        """Take the error of a refusal, or the partition and its new log start."""
        self._index = index
        self._refusal = refusal
        self.partition = partition
        self._offset = offset

    def result(self, partitions: Partitions) -> DeleteRecordsPartitionResult | None:
        """Return the result; None while replicas still have to follow."""
        if self.partition is None:
            return self._failed(self._refusal)  # (a)
        try:
            partitions.get(self.partition.partition)
            low_watermark = self.partition.low_watermark()
        except KafkaError as error:
            # Another broker leads, which may not have seen the deletion, or the disk failed.
            return self._failed(error.code)
        if low_watermark < self._offset:
            return None  # (b)
        return DeleteRecordsPartitionResult(partition_index=self._index, low_watermark=low_watermark, error_code=0)

    def last_result(self, partitions: Partitions) -> DeleteRecordsPartitionResult:
        """Return the final result; a partition that is not done is REQUEST_TIMED_OUT."""
        return self.result(partitions) or self._failed(ErrorCode.REQUEST_TIMED_OUT)

    def _failed(self, code: ErrorCode) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(partition_index=self._index, low_watermark=NO_OFFSET, error_code=code)


class _Waiting(DelayedOperation):
    """Waits until the other replicas follow the leader's deletions."""

    __slots__ = ("_deletions", "_request", "_respond")

    def __init__(self, request: DataRequest, deletions: list[tuple[str, list[_Deletion]]]) -> None:
        super().__init__()
        self._request = request
        # By topic, in the order of the request.
        self._deletions = deletions
        self._respond: Respond | None = None

    def is_satisfied(self) -> bool:
        """Whether every partition has its result."""
        partitions = self._request.services.partitions
        return all(each.result(partitions) is not None for _, asked in self._deletions for each in asked)

    def on_complete(self, *, expired: bool) -> None:
        """Answer with the result of each partition."""
        assert self._respond is not None
        self._respond(self.response)

    def response(self) -> DeleteRecordsResponse:
        """Return the response for the current state."""
        partitions = self._request.services.partitions
        return DeleteRecordsResponse(
            throttle_time_ms=0,
            topics=[
                DeleteRecordsTopicResult(name=topic, partitions=[each.last_result(partitions) for each in asked])
                for topic, asked in self._deletions
            ],
        )

    def then(self, respond: Respond) -> None:
        """Wait in purgatory, then respond."""
        self._respond = respond
        keys = {each.partition.partition for _, asked in self._deletions for each in asked if each.partition}
        timeout_seconds = max(self._request.body.timeout_ms, 0) / 1000
        self._request.services.partitions.waits.deletions.watch(self, keys, timeout_seconds)


def delete_records(request: DataRequest) -> DeleteRecordsResponse | Delayed:
    """Move log starts forward."""
    body: DeleteRecordsRequest = request.body
    hidden = denied(request, TOPIC, {topic.name for topic in body.topics})
    waiting = _Waiting(
        request,
        [
            (
                topic.name,
                [_Deletion(wanted.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for wanted in topic.partitions]
                if topic.name in hidden
                else [_delete(request, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in body.topics
        ],
    )
    return waiting.response() if waiting.is_satisfied() else waiting


def _delete(request: DataRequest, topic: str, wanted: DeleteRecordsPartition) -> _Deletion:
    """Move the log start of one partition, as its leader."""
    key = TopicPartition(topic, wanted.partition_index)
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
        partition = request.services.partitions.get(key)
        partition.check_leader()
        if "delete" not in partition.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the cleanup.policy of {topic} does not allow deletion")
        offset = partition.delete_records(None if wanted.offset == _HIGH_WATERMARK else wanted.offset)
    except KafkaError as error:
        return _Deletion(wanted.partition_index, error.code)
    return _Deletion(wanted.partition_index, partition=partition, offset=offset)
