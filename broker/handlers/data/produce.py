"""Produce (0), versions 0-11.

Behavior: each partition takes one batch of magic 2. acks=0 has no response; acks=1 answers when the leader has
appended; acks=-1 waits in purgatory until the high watermark has passed the batch, or the client's time is over. Where
the topic wants the batch on disk (`flush.messages`, `ottla.flush.before.ack`), both wait for that, too. Every partition
that was asked about is answered, with its own error.

Version notes: versions below 3 carry older message formats, which are refused with UNSUPPORTED_FOR_MESSAGE_FORMAT;
they are listed because librdkafka looks for them. zstd needs version 7. 8 adds the records that were wrong; 10 adds a
hint where the leader is.

Not implemented: transactions. A transactional batch is refused, for nothing could end its transaction, and readers of
committed records would wait behind it for ever. The code is the one that InitProducerId answers: the Java client takes
it as final here too, while INVALID_TXN_STATE would make it try to abort, which is not served either.
"""

from __future__ import annotations

from ottla.broker.cluster.topics import INTERNAL_TOPICS
from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.replication.partition import Partition
from ottla.broker.requests.access import TOPIC, TRANSACTIONAL_ID, allows, check
from ottla.broker.requests.leader_hints import LeaderHints, leader_hints
from ottla.broker.requests.lookup import hosted_partition
from ottla.broker.requests.request import Delayed, Request, RequestFailedError, Respond
from ottla.broker.storage.log import Appended
from ottla.broker.storage.validation import InvalidBatchError, InvalidRecordsError
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
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
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _Outcome:
    """How the append to one partition ended, until the response is made of it."""

    __slots__ = ("appended", "code", "detail", "index", "is_flushed", "partition", "record_errors")

    def __init__(self, index: int, code: ErrorCode = ErrorCode.NONE) -> None:
        self.index = index
        self.partition: Partition | None = None
        self.appended: Appended | None = None
        # False while the topic wants the records on disk before they are acknowledged, and they are not yet.
        self.is_flushed = True
        self.code = code
        self.detail = ""
        self.record_errors: list[tuple[int, str]] = []

    def must_wait(self, acks: int) -> bool:
        """Whether the append cannot be acknowledged yet, and may still be."""
        if self.partition is None or self.appended is None or self.code is not ErrorCode.NONE:
            return False
        is_open = acks == -1 and self.partition.commit_error(self.appended.last_offset) is None
        return is_open or not self.is_flushed

    def settle(self, acks: int) -> None:
        """Note how the append ended, now that nobody waits any more."""
        if self.partition is None or self.appended is None or self.code is not ErrorCode.NONE:
            return
        if self.must_wait(acks):
            self.code = ErrorCode.REQUEST_TIMED_OUT
        elif acks == -1:
            self.code = self.partition.commit_error(self.appended.last_offset) or ErrorCode.NONE

    def flush(self, request: Request, key: TopicPartition) -> None:
        """Have the records forced to disk together with what others append meanwhile."""
        assert self.partition is not None
        assert self.appended is not None
        self.is_flushed = False

        def flushed(error: KafkaError | None) -> None:
            if error is not None:
                self.code, self.detail = error.code, error.detail
            self.is_flushed = True
            request.services.partitions.delayed_produces.check(key)

        request.services.group_commit.when_flushed(self.partition.log, self.appended.last_offset + 1, flushed)

    def answer(self) -> PartitionProduceResponse:
        """Make the response of it."""
        if self.code is ErrorCode.NONE and self.appended is not None:
            return PartitionProduceResponse(
                index=self.index,
                error_code=0,
                base_offset=self.appended.first_offset,
                log_append_time_ms=self.appended.log_append_time_ms,
                log_start_offset=self.appended.log_start_offset,
            )
        return PartitionProduceResponse(
            index=self.index,
            error_code=int(self.code),
            base_offset=-1,
            error_message=f"{self.code.description} {self.detail}".strip(),
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=f"record {reason}")
                for index, reason in self.record_errors
            ],
        )


_Outcomes = dict[str, list[_Outcome]]


class _Waiting(DelayedOperation):
    """An acks=all produce: waits until every partition is committed, or cannot be."""

    __slots__ = ("_outcomes", "_request", "_respond")

    def __init__(self, request: Request, outcomes: _Outcomes) -> None:
        super().__init__()
        self._request = request
        self._outcomes = outcomes
        self._respond: Respond | None = None

    def is_satisfied(self) -> bool:
        """Whether no partition has to wait any more."""
        return not _must_wait(self._request, self._outcomes)

    def on_complete(self, *, expired: bool) -> None:
        """Answer with how each partition ended."""
        assert self._respond is not None
        self._respond(lambda: _response(self._request, self._outcomes))

    def then(self, respond: Respond) -> None:
        """Wait in purgatory, and answer from there."""
        self._respond = respond
        keys = [
            outcome.partition.partition
            for outcomes in self._outcomes.values()
            for outcome in outcomes
            if outcome.partition is not None
        ]
        timeout_seconds = max(self._request.body.timeout_ms, 0) / 1000
        self._request.services.partitions.delayed_produces.watch(self, keys, timeout_seconds)


def produce(request: Request) -> ProduceResponse | Delayed | None:
    """Append what was sent."""
    body: ProduceRequest = request.body
    outcomes: _Outcomes = {}
    for topic in body.topic_data:
        if allows(request, TOPIC, topic.name):
            appended = [_append(request, topic.name, data) for data in topic.partition_data]
        else:
            appended = [_Outcome(data.index, _REFUSED) for data in topic.partition_data]
        outcomes.setdefault(topic.name, []).extend(appended)
    if body.acks == 0:
        if any(outcome.code is not ErrorCode.NONE for appended in outcomes.values() for outcome in appended):
            # The client does not wait for an answer; losing the connection is how it learns.
            raise RequestFailedError("a produce with acks=0 failed")
        return None
    if _must_wait(request, outcomes):
        return _Waiting(request, outcomes)
    return _response(request, outcomes)


def _must_wait(request: Request, outcomes: _Outcomes) -> bool:
    acks = request.body.acks
    return any(outcome.must_wait(acks) for appended in outcomes.values() for outcome in appended)


def _response(request: Request, outcomes: _Outcomes) -> ProduceResponse:
    for appended in outcomes.values():
        for outcome in appended:
            outcome.settle(request.body.acks)
    not_leading = [
        TopicPartition(topic, outcome.index)
        for topic, appended in outcomes.items()
        for outcome in appended
        if outcome.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    hints = leader_hints(request, not_leading) if not_leading and request.version >= _HINTS_VERSION else None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic,
                partition_responses=[_hinted(topic, outcome, hints) for outcome in appended],
            )
            for topic, appended in outcomes.items()
        ],
        node_endpoints=[
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack) for node in hints.nodes
        ]
        if hints
        else [],
    )


def _hinted(topic: str, outcome: _Outcome, hints: LeaderHints | None) -> PartitionProduceResponse:
    answer = outcome.answer()
    leader = hints.leaders.get(TopicPartition(topic, outcome.index)) if hints else None
    if leader is None:
        return answer
    fields = {field.name: getattr(answer, field.name) for field in answer.wire_fields}
    fields["current_leader"] = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return PartitionProduceResponse(**fields)


def _append(request: Request, topic: str, data: PartitionProduceData) -> _Outcome:
    """Append one partition's batch."""
    outcome = _Outcome(data.index)
    partitions = request.services.partitions
    try:
        records = _checked_records(request, topic, data)
        partition = hosted_partition(request, TopicPartition(topic, data.index))
        appended = partition.append(records, required_acks=request.body.acks)
    except KafkaError as error:
        outcome.code, outcome.detail = error.code, error.detail
        partitions.failed_appends[topic] += 1
        if isinstance(error, InvalidBatchError) and error.flaw is not None:
            partitions.flawed_batches[error.flaw] += 1
        if isinstance(error, InvalidRecordsError):
            outcome.record_errors = error.record_errors
        return outcome
    outcome.partition, outcome.appended = partition, appended
    if not appended.is_duplicate:
        partitions.moved(partition.partition)
    log = partition.log
    if log.is_flush_wanted:
        if request.body.acks != 0:
            outcome.flush(request, partition.partition)
        else:
            request.services.group_commit.request(log)
    return outcome


def _checked_records(request: Request, topic: str, data: PartitionProduceData) -> memoryview:
    """Return the records, if the request may append any; raise KafkaError otherwise."""
    version, records = request.version, data.records
    if request.body.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.body.acks}, not -1, 0 or 1")
    if topic in INTERNAL_TOPICS and request.client_id != _ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the brokers alone")
    if version < _FORMAT_2_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "message formats before Kafka 0.11 are not taken; use a client that speaks Produce 3 or later",
        )
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    # Of what is shorter than a header, nothing is appended.
    attributes = records[ATTRIBUTES_POSITION + 1] if len(records) >= BATCH_HEADER_BYTES else 0
    if version < _ZSTD_VERSION and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7 or later")
    if attributes & TRANSACTIONAL_BIT:
        _refuse_transaction(request)
    return memoryview(records)


def _refuse_transaction(request: Request) -> None:
    """Raise KafkaError, after a look at the rights of the client: a refusal for want of them is written down."""
    transactional_id = request.body.transactional_id
    if transactional_id is not None:
        check(request, TRANSACTIONAL_ID, transactional_id)
    raise KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "This broker has no transactions; produce without transactional.id.",
    )
