"""Produce (0), versions 0-11.

Behavior: appends one batch of magic 2 to each partition. acks=0 has no response. acks=1 responds when the leader has
appended. acks=-1 waits in purgatory until the high watermark has passed the batch, or the client's timeout is over. If
the topic requires the batch on disk (`flush.messages`, `ottla.flush.before.ack`), both also wait for the flush. Every
partition of the request has its own error code in the response.

Version notes: versions below 3 carry older message formats, which are refused with UNSUPPORTED_FOR_MESSAGE_FORMAT; they
are listed because librdkafka looks for them. zstd needs version 7. Version 8 adds the invalid records, version 10 adds
the current leader.

Transactions: a transactional batch needs a transactional id that the client may write, and all batches of a request
belong to one producer. Before the first batch of a transaction in a partition, the coordinator is asked whether the
partition was added. Later requests of the connection wait meanwhile. An answer that does not come is
NOT_ENOUGH_REPLICAS, after which clients just try again. A partition that was not added is TRANSACTION_ABORTABLE, before
version 11 INVALID_TXN_STATE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.waits import PendingAppend, PendingAppends
from ottla.broker.requests.access import TOPIC, TRANSACTIONAL_ID, allows
from ottla.broker.requests.leader_hints import LeaderHints, leader_hints
from ottla.broker.requests.request import DataRequest, Delayed, EffectPending, RequestFailedError, Respond
from ottla.broker.storage.producers.verification import VerificationGuard
from ottla.broker.storage.validation import InvalidBatchError, InvalidRecordsError
from ottla.broker.transactions.verifier import Question, Verified
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    RecordBatch,
)

_ADMIN_CLIENT = "__admin_client"
_FORMAT_2_VERSION = 3
_ZSTD_VERSION = 7
_HINTS_VERSION = 10
_ABORTABLE_VERSION = 11
# The lower half of the attributes has all that is asked here.
_LOW_ATTRIBUTES_POSITION = ATTRIBUTES_POSITION + 1


# What the coordinator of a transaction answers, as producers understand it. They know nothing of its coordinator here.
_VERIFICATION_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}


class _Failed(NamedTuple):
    """Why nothing was appended to a partition."""

    code: ErrorCode
    detail: str = ""
    record_errors: Sequence[tuple[int, str]] = ()


_REFUSED = _Failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class _Unverified(NamedTuple):
    """A batch that begins a transaction in its partition, if the coordinator confirms it."""

    partition: Partition
    batch: RecordBatch
    guard: VerificationGuard


# The results of the partitions of each topic, by partition index.
_Results = dict[str, list[tuple[int, PendingAppend | _Failed]]]
_FirstResults = dict[str, list[tuple[int, PendingAppend | _Failed | _Unverified]]]


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
            timeout_ms, lambda: respond(lambda: _response(self._request, self._results, may_wait=False))
        )


class _Verifying(EffectPending):
    """A response that waits for the coordinator of the transaction, and only then for the replicas."""

    __slots__ = ("_producer", "_request", "_results")

    def __init__(self, request: DataRequest, results: _FirstResults, producer: tuple[int, int]) -> None:
        self._request = request
        self._producer = producer
        # The frame of the request is gone when the answer comes.
        self._results = {topic: [(index, _kept(each)) for index, each in of] for topic, of in results.items()}

    def then(self, respond: Respond) -> None:
        """Ask, append what is confirmed, and go on as usual."""
        request, results = self._request, self._results

        def done(codes: Verified) -> None:
            respond(lambda: _answered(request, _appended(request, results, codes)))

        request.services.verifier.verify(
            Question(request.body.transactional_id, *self._producer, _unverified(results), done)
        )


def produce(request: DataRequest) -> ProduceResponse | Delayed | None:
    """Append the batches of a request."""
    if request.body.transactional_id is not None:
        return _produce_in_transaction(request)
    return _answered(request, _results(request, _append))


def _produce_in_transaction(request: DataRequest) -> ProduceResponse | Delayed | None:
    transaction = _Transaction(request)
    results = _results(request, transaction.append)
    unverified = _unverified(results)
    if not unverified:
        return _answered(request, _appended(request, results, {}))
    question = Question(request.body.transactional_id, *transaction.producer, unverified, lambda codes: None)
    codes = request.services.verifier.verify_here(question)
    if codes is not None:
        return _answered(request, _appended(request, results, codes))
    return _Verifying(request, results, transaction.producer)


R = TypeVar("R")


def _results(
    request: DataRequest, append: Callable[[DataRequest, str, PartitionProduceData], R]
) -> dict[str, list[tuple[int, R | _Failed]]]:
    """Append the batches in the order of the request."""
    results: dict[str, list[tuple[int, R | _Failed]]] = {}
    for topic in request.body.topic_data:
        name = topic.name
        of_topic = results.setdefault(name, [])
        is_allowed = allows(request, TOPIC, name)
        for data in topic.partition_data:
            result: R | _Failed = _REFUSED
            if is_allowed:
                try:
                    result = append(request, name, data)
                except KafkaError as error:
                    result = _failed(request, name, error)
            of_topic.append((data.index, result))
    return results


def _answered(request: DataRequest, results: _Results) -> ProduceResponse | Delayed | None:
    """Return the response, or wait for the replicas."""
    if request.body.acks == 0:
        if any(isinstance(result, _Failed) for of_topic in results.values() for _, result in of_topic):
            # The client expects no response, so it learns of the error by losing the connection.
            raise RequestFailedError("a produce with acks=0 failed")
        return None
    response = _response(request, results, may_wait=True)
    if response is not None:
        return response
    return _Waiting(
        request,
        results,
        [
            result
            for of_topic in results.values()
            for _, result in of_topic
            if isinstance(result, PendingAppend) and result.outcome is None
        ],
    )


def _response(request: DataRequest, results: _Results, *, may_wait: bool) -> ProduceResponse | None:
    """Return the response; None if an append has no outcome yet and may wait for it."""
    responses: list[TopicProduceResponse] = []
    not_leading: list[TopicPartition] = []
    for topic, of_topic in results.items():
        answers: list[PartitionProduceResponse] = []
        responses.append(TopicProduceResponse(name=topic, partition_responses=answers))
        for index, result in of_topic:
            answer = _answer(index, result, may_wait)
            if answer is None:
                return None
            answers.append(answer)
            if answer.error_code and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                not_leading.append(TopicPartition(topic, index))
    if not not_leading or request.version < _HINTS_VERSION:
        return ProduceResponse(responses=responses)
    hints = leader_hints(request, not_leading)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=each.name,
                partition_responses=[_hinted(each.name, answer, hints) for answer in each.partition_responses],
            )
            for each in responses
        ],
        node_endpoints=[
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack) for node in hints.nodes
        ],
    )


def _answer(index: int, result: PendingAppend | _Failed, may_wait: bool) -> PartitionProduceResponse | None:
    if isinstance(result, PendingAppend):
        outcome = result.outcome
        if outcome is None and may_wait:
            return None
        # The time is over for an append without an outcome.
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


def _failed(request: DataRequest, topic: str, error: KafkaError) -> _Failed:
    partitions = request.services.partitions
    if request.services.metadata.snapshot.topic(topic) is not None:
        partitions.failed_appends[topic] += 1
    if isinstance(error, InvalidBatchError) and error.flaw is not None:
        partitions.flawed_batches[error.flaw] += 1
    record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return _Failed(error.code, error.detail, record_errors)


def _append(request: DataRequest, topic: str, data: PartitionProduceData) -> PendingAppend:
    """Append one partition's batch."""
    records = _checked_records(request, topic, data)
    partition = request.services.partitions.get(TopicPartition(topic, data.index))
    return partition.append(records, required_acks=request.body.acks)


class _Transaction:
    """The batches of a request with a transactional id. Those that begin a transaction in their partition wait."""

    __slots__ = ("_is_allowed", "producer")

    def __init__(self, request: DataRequest) -> None:
        self._is_allowed = allows(request, TRANSACTIONAL_ID, request.body.transactional_id)
        # The id and epoch of the first batch.
        self.producer = (NO_PRODUCER_ID, -1)

    def append(self, request: DataRequest, topic: str, data: PartitionProduceData) -> PendingAppend | _Unverified:
        """Append one partition's batch, unless the coordinator must be asked about it first."""
        records = _checked_records(request, topic, data)
        acks = request.body.acks
        partition = request.services.partitions.get(TopicPartition(topic, data.index))
        batch = partition.validated(records, acks)
        if batch.is_transactional:
            self._check(batch)
            guard = partition.begin_verification(batch)
            if guard is not None:
                return _Unverified(partition, batch, guard)
        return partition.append_validated(batch, acks)

    def _check(self, batch: RecordBatch) -> None:
        if not self._is_allowed:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        producer = (batch.producer_id, batch.producer_epoch)
        if self.producer[0] == NO_PRODUCER_ID:
            self.producer = producer
        if producer != self.producer:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request has batches of two producers")


def _unverified(results: _FirstResults) -> list[TopicPartition]:
    return [
        each.partition.partition
        for of_topic in results.values()
        for _, each in of_topic
        if isinstance(each, _Unverified)
    ]


def _kept(result: PendingAppend | _Failed | _Unverified) -> PendingAppend | _Failed | _Unverified:
    """Return a result that needs the frame of the request no more."""
    if isinstance(result, _Unverified):
        return result._replace(batch=RecordBatch(bytes(result.batch.view)))
    return result


def _appended(request: DataRequest, results: _FirstResults, codes: Verified) -> _Results:
    """Append what the coordinator has confirmed."""
    appended: _Results = {}
    for topic, of_topic in results.items():
        appended[topic] = [
            (index, _append_verified(request, each, codes[each.partition.partition]))
            if isinstance(each, _Unverified)
            else (index, each)
            for index, each in of_topic
        ]
    return appended


def _append_verified(request: DataRequest, unverified: _Unverified, code: ErrorCode) -> PendingAppend | _Failed:
    partition, batch, guard = unverified
    try:
        if code is not ErrorCode.NONE:
            if code is ErrorCode.TRANSACTION_ABORTABLE and request.version < _ABORTABLE_VERSION:
                code = ErrorCode.INVALID_TXN_STATE
            raise KafkaError(
                _VERIFICATION_ERRORS.get(code, code), f"the coordinator of the transaction answered {code.name}"
            )
        return partition.append_validated(batch, request.body.acks, guard)
    except KafkaError as error:
        return _failed(request, partition.partition.topic, error)


def _checked_records(request: DataRequest, topic: str, data: PartitionProduceData) -> memoryview:
    """Return the records, if the request may append any; raise KafkaError otherwise."""
    version = request.version
    records: memoryview | None = data.records
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
    attributes = records[_LOW_ATTRIBUTES_POSITION] if len(records) >= BATCH_HEADER_BYTES else 0
    if version < _ZSTD_VERSION and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if attributes & TRANSACTIONAL_BIT and request.body.transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a batch of a transaction needs a transactional id"
        )
    return records
