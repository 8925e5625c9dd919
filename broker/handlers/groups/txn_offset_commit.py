"""TxnOffsetCommit (28), versions 0-4.

Behavior: writes offsets of a group as part of a producer's transaction. They take effect when the transaction is
committed, and are dropped if it is aborted. Before the first ones of a transaction, its coordinator is asked whether
the group was added to it (AddOffsetsToTxn). A member that names itself must be in the group's current generation. Each
partition has its own error, as in OffsetCommit; all others get the error of the group, the transaction or the write.

Version notes: version 2 adds the leader epoch, version 3 the member. Before version 4, TRANSACTION_ABORTABLE is
INVALID_TXN_STATE. Before version 2, a coordinator that is loading is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from ottla.broker.coordination.stored_records import TransactionalProducer
from ottla.broker.groups.offsets.group_offsets import Committer
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.broker.requests.access import GROUP, TRANSACTIONAL_ID, check
from ottla.broker.requests.coordinator_wait import when_ready
from ottla.broker.requests.offset_checks import checked_offsets
from ottla.broker.requests.request import Delayed, GroupsRequest, Later, Respond
from ottla.broker.transactions.verifier import Question, Verified
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.records import NO_TIMESTAMP

_LOADING_VERSION: Final = 2
_ABORTABLE_VERSION: Final = 4
# The coordinator of the transaction could not be asked. The client has nothing to do with that: it tries again here.
_NOT_ASKED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


def txn_offset_commit(request: GroupsRequest) -> Message | Delayed:
    """Store offsets of a group in a transaction."""
    body: TxnOffsetCommitRequest = request.body
    try:
        check(request, TRANSACTIONAL_ID, body.transactional_id)
        check(request, GROUP, body.group_id)
    except KafkaError as error:
        return _response(request, {}, error.code)
    return when_ready(request, [body.group_id], lambda ready: Later(_Committing(ready).start))


class _Committing:
    """Responds when the offsets are written."""

    def __init__(self, request: GroupsRequest) -> None:
        self._request = request
        body: TxnOffsetCommitRequest = request.body
        self._body = body
        self._producer = TransactionalProducer(body.producer_id, body.producer_epoch)

    def start(self, respond: Respond) -> None:
        """Have the transaction confirmed, commit, and respond when that is done."""
        offsets, refused = checked_offsets(self._request, partial(_committed, self._request.services.clock()))

        def done(code: ErrorCode) -> None:
            respond(lambda: _response(self._request, refused, code))

        group_offsets, group_id = self._request.services.group_offsets, self._body.group_id
        try:
            partition, producer = group_offsets.begin_verification(group_id, self._producer)
        except KafkaError as error:
            done(error.code)
            return

        def commit() -> None:
            committer = Committer(self._body.member_id, self._body.group_instance_id, self._body.generation_id)
            try:
                group_offsets.commit_in_transaction(group_id, committer, producer, offsets, done)
            except KafkaError as error:
                done(error.code)

        def verified(codes: Verified) -> None:
            code = codes[partition]
            if code is ErrorCode.NONE:
                commit()
            else:
                done(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in _NOT_ASKED else code)

        if producer.guard is None:
            commit()
            return
        question = Question(
            self._body.transactional_id, producer.producer_id, producer.producer_epoch, [partition], verified
        )
        self._request.services.verifier.verify(question)


def _committed(now_ms: int, row: TxnOffsetCommitRequestPartition) -> CommittedOffset:
    metadata = row.committed_metadata or ""
    return CommittedOffset(row.committed_offset, row.committed_leader_epoch, metadata, now_ms, NO_TIMESTAMP)


def _response(
    request: GroupsRequest, refused: Mapping[TopicPartition, ErrorCode], code: ErrorCode
) -> TxnOffsetCommitResponse:
    code = _known_to_client(request, code)
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=refused.get(TopicPartition(topic.name, row.partition_index), code),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.body.topics
        ],
    )


def _known_to_client(request: GroupsRequest, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and request.version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.version < _LOADING_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
