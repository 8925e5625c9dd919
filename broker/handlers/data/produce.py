"""Produce (0), versions 0-11.

Behavior: appends one batch of magic 2 to each partition. acks=0 has no response. acks=1 responds when the leader has
appended. acks=-1 waits in purgatory until the high watermark has passed the batch, or the client's timeout is over. If
the topic requires the batch on disk (`flush.messages`, `ottla.flush.before.ack`), both also wait for the flush. Every
partition of the request has its own error code in the response.

Version notes: versions below 3 carry older message formats, which are refused with UNSUPPORTED_FOR_MESSAGE_FORMAT; they
are listed because librdkafka looks for them. zstd needs version 7. Version 8 adds the invalid records, version 10 adds
the current leader.

Not implemented: transactions. A transactional batch is refused, because nothing could end its transaction, and
read_committed consumers would wait behind it forever. The error code is the one of InitProducerId. The Java client
takes it as final; after INVALID_TXN_STATE it would try to abort, which is not supported either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.replication.pending_append import PendingAppend, PendingAppends
from ottla.broker.requests.access import TOPIC, TRANSACTIONAL_ID, allows, check
from ottla.broker.requests.leader_hints import LeaderHints, leader_hints
from ottla.broker.requests.lookup import hosted_partition
from ottla.broker.requests.request import DataRequest, Delayed, RequestFailedError, Respond
from ottla.broker.storage.validation import InvalidBatchError, InvalidRecordsError
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records import ATTRIBUTES_POSITION, BATCH_HEADER_BYTES, CODEC_MASK, TRANSACTIONAL_BIT

_ADMIN_CLIENT = "__admin_client"
_FORMAT_2_VERSION = 3
_ZSTD_VERSION = 7
_HINTS_VERSION = 10


class _Failed(NamedTuple):
    """Why nothing was appended to a partition."""

    code: ErrorCode
    detail: str = ""
    record_errors: Sequence[tuple[int, str]] = ()


_REFUSED = _Failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

# The results of the partitions of each topic, by partition index.
_Results = dict[str, list[tuple[int, PendingAppend | _Failed]]]


class _Waiting:
    """A response that waits until every batch is acknowledged or has failed."""

    __slots__ = ("_appends", "_request", "_results")

    def __init__(self, request: DataRequest, results: _Results, appends: Sequence[PendingAppend]) -> None:
        self._request = request
        self._results = results
        self._appends = appends

    def then(self, respond: Respond) -> None:
        """Respond when the appends are done, or the client's timeout is over."""
        timeout_ms = self._request.body.timeout_ms
        PendingAppends(self._appends).when_done(
            timeout_ms, lambda: respond(lambda: _response(self._request, self._results))
        )


def produce(request: DataRequest) -> ProduceResponse | Delayed | None:
    """Append the batches of a request."""
    body: ProduceRequest = request.body
    results: _Results = {}
    for topic in body.topic_data:
        if allows(request, TOPIC, topic.name):
            of_topic = [(data.index, _append(request, topic.name, data)) for data in topic.partition_data]
        else:
            of_topic = [(data.index, _REFUSED) for data in topic.partition_data]
        results.setdefault(topic.name, []).extend(of_topic)
    if body.acks == 0:
        if any(isinstance(result, _Failed) for of_topic in results.values() for _, result in of_topic):
            # The client expects no response, so it learns of the error by losing the connection.
            raise RequestFailedError("a produce with acks=0 failed")
        return None
    pending = [
        result
        for of_topic in results.values()
        for _, result in of_topic
        if isinstance(result, PendingAppend) and result.outcome is None
    ]
    return _Waiting(request, results, pending) if pending else _response(request, results)


def _response(request: DataRequest, results: _Results) -> ProduceResponse:
    answers = {topic: [_answer(index, result) for index, result in of_topic] for topic, of_topic in results.items()}
    not_leading = [
        TopicPartition(topic, answer.index)
        for topic, of_topic in answers.items()
        for answer in of_topic
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    hints = leader_hints(request, not_leading) if not_leading and request.version >= _HINTS_VERSION else None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic,
                partition_responses=of_topic if hints is None else [_hinted(topic, each, hints) for each in of_topic],
            )
            for topic, of_topic in answers.items()
        ],
        node_endpoints=[
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack) for node in hints.nodes
        ]
        if hints
        else [],
    )


def _answer(index: int, result: PendingAppend | _Failed) -> PartitionProduceResponse:
    if isinstance(result, PendingAppend):
        # The time is over for an append without an outcome.
        outcome = result.outcome
        code = ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome
        if code is ErrorCode.NONE:
            appended = result.appended
            return PartitionProduceResponse(
                index=index,
                error_code=0,
                base_offset=appended.first_offset,
                log_append_time_ms=appended.log_append_time_ms,
                log_start_offset=appended.log_start_offset,
            )
        result = _Failed(code, result.detail)
    return PartitionProduceResponse(
        index=index,
        error_code=int(result.code),
        base_offset=-1,
        error_message=f"{result.code.description} {result.detail}".strip(),
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=f"record {reason}")
            for batch_index, reason in result.record_errors
        ],
    )


def _hinted(topic: str, answer: PartitionProduceResponse, hints: LeaderHints) -> PartitionProduceResponse:
    leader = hints.leaders.get(TopicPartition(topic, answer.index))
    if leader is None:
        return answer
    fields = {field.name: getattr(answer, field.name) for field in answer.wire_fields}
    fields["current_leader"] = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return PartitionProduceResponse(**fields)


def _append(request: DataRequest, topic: str, data: PartitionProduceData) -> PendingAppend | _Failed:
    """Append one partition's batch."""
    try:
        records = _checked_records(request, topic, data)
        partition = hosted_partition(request, TopicPartition(topic, data.index))
        return partition.append(records, required_acks=request.body.acks)
    except KafkaError as error:
        partitions = request.services.partitions
        partitions.failed_appends[topic] += 1
        if isinstance(error, InvalidBatchError) and error.flaw is not None:
            partitions.flawed_batches[error.flaw] += 1
        record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
        return _Failed(error.code, error.detail, record_errors)


def _checked_records(request: DataRequest, topic: str, data: PartitionProduceData) -> memoryview:
    """Return the records, if the request may append any; raise KafkaError otherwise."""
    version, records = request.version, data.records
    if request.body.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.body.acks}, not -1, 0 or 1")
    if topic in INTERNAL_TOPICS and request.client_id != _ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    if version < _FORMAT_2_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "message formats before Kafka 0.11 are not supported; use a client with Produce version 3 or later",
        )
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    # Records that are shorter than a header are refused by `append`.
    attributes = records[ATTRIBUTES_POSITION + 1] if len(records) >= BATCH_HEADER_BYTES else 0
    if version < _ZSTD_VERSION and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if attributes & TRANSACTIONAL_BIT:
        _refuse_transaction(request)
    return memoryview(records)


def _refuse_transaction(request: DataRequest) -> None:
    """Raise KafkaError. Checks the client's rights first, so that a denial is logged as such."""
    transactional_id = request.body.transactional_id
    if transactional_id is not None:
        check(request, TRANSACTIONAL_ID, transactional_id)
    raise KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "This broker does not support transactions; produce without transactional.id.",
    )
