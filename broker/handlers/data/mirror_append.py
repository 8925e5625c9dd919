"""MirrorAppend (22000), version 0.

Behavior: appends batches of another cluster at the offsets that they have there, with their holes, producers and
markers; only the leader epoch becomes ours. The batches are appended if the log ends at the given offset, so a request
that arrives late or twice changes nothing: OFFSET_OUT_OF_RANGE, with the offset at which the log ends. The log start
follows the given one; a log that ends before it begins again there. The response waits for the replicas, as with
acks=all. INVALID_TOPIC_EXCEPTION: the topic is internal. CORRUPT_MESSAGE: a batch is damaged, or does not continue the
one before it.

Version notes: this API is ours. Its key is far from Kafka's, and Kafka's brokers do not list it.
"""

from __future__ import annotations

from ottla.broker.replication.waits import PendingAppend, PendingAppends
from ottla.broker.requests.request import DataRequest, Delayed, Respond
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS, NO_OFFSET, TopicPartition
from ottla.protocol.messages.mirror_append import (
    MirrorAppendPartition,
    MirrorAppendPartitionResult,
    MirrorAppendRequest,
    MirrorAppendResponse,
    MirrorAppendTopicResult,
)

# The results of the partitions of each topic, by partition index, in the order of the request.
_Results = list[tuple[str, list[tuple[int, PendingAppend | MirrorAppendPartitionResult]]]]


class _Waiting:
    """A response that waits until every partition is acknowledged or has failed."""

    __slots__ = ("_appends", "_results", "_timeout_ms")

    def __init__(self, results: _Results, appends: list[PendingAppend], timeout_ms: int) -> None:
        self._results = results
        self._appends = appends
        self._timeout_ms = timeout_ms

    def then(self, respond: Respond) -> None:
        """Respond when the appends are done, or the client's timeout is over."""
        PendingAppends(self._appends).when_done(self._timeout_ms, lambda: respond(lambda: _response(self._results)))


def mirror_append(request: DataRequest) -> MirrorAppendResponse | Delayed:
    """Append batches of another cluster."""
    body: MirrorAppendRequest = request.body
    results: _Results = [
        (topic.name, [(data.partition_index, _append(request, topic.name, data)) for data in topic.partitions])
        for topic in body.topics
    ]
    pending = [
        result
        for _, of_topic in results
        for _, result in of_topic
        if isinstance(result, PendingAppend) and result.outcome is None
    ]
    return _Waiting(results, pending, body.timeout_ms) if pending else _response(results)


def _append(
    request: DataRequest, topic: str, data: MirrorAppendPartition
) -> PendingAppend | MirrorAppendPartitionResult:
    end_offset = NO_OFFSET
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
        partition = request.services.partitions.get(TopicPartition(topic, data.partition_index))
        partition.check_leader()
        try:
            return partition.append_mirrored(data.records or b"", data.log_end_offset, data.log_start_offset)
        finally:
            end_offset = partition.log.log_end_offset
    except KafkaError as error:
        return _failed(data.partition_index, error.code, error.detail, end_offset)


def _response(results: _Results) -> MirrorAppendResponse:
    return MirrorAppendResponse(
        throttle_time_ms=0,
        topics=[
            MirrorAppendTopicResult(name=topic, partitions=[_result(index, result) for index, result in of_topic])
            for topic, of_topic in results
        ],
    )


def _result(index: int, result: PendingAppend | MirrorAppendPartitionResult) -> MirrorAppendPartitionResult:
    if not isinstance(result, PendingAppend):
        return result
    # The time is over for an append without an outcome.
    code = ErrorCode.REQUEST_TIMED_OUT if result.outcome is None else result.outcome
    end_offset = result.appended.last_offset + 1
    if code is ErrorCode.NONE:
        return MirrorAppendPartitionResult(
            partition_index=index,
            error_code=0,
            log_start_offset=result.partition.log.log_start_offset,
            log_end_offset=end_offset,
        )
    return _failed(index, code, result.detail, end_offset)


def _failed(index: int, code: ErrorCode, detail: str, end_offset: int) -> MirrorAppendPartitionResult:
    return MirrorAppendPartitionResult(
        partition_index=index,
        error_code=code,
        error_message=f"{code.description} {detail}".strip(),
        log_end_offset=end_offset,
    )
