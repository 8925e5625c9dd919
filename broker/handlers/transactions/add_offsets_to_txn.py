"""AddOffsetsToTxn (25), versions 0-4.

Behavior: adds the partition of `__consumer_offsets` to which a group belongs to a transaction, before offsets of the
group are committed in it with TxnOffsetCommit. Responds when every in-sync replica of `__transaction_state` knows it.

Version notes: before version 2, a fenced producer gets INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, partition_for
from ottla.broker.requests.access import GROUP, TRANSACTIONAL_ID, check
from ottla.broker.requests.coordinator_wait import when_at_rest
from ottla.broker.requests.request import Delayed, Later, Respond, TransactionsRequest
from ottla.broker.requests.transaction_errors import known_to_client
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def add_offsets_to_txn(request: TransactionsRequest) -> Message | Delayed:
    """Add the offsets of a group to a transaction."""
    body: AddOffsetsToTxnRequest = request.body
    try:
        check(request, TRANSACTIONAL_ID, body.transactional_id)
        check(request, GROUP, body.group_id)
    except KafkaError as error:
        return _response(request, error.code)
    return when_at_rest(request, body.transactional_id, _add)


def _add(request: TransactionsRequest) -> Delayed:
    body: AddOffsetsToTxnRequest = request.body

    def start(respond: Respond) -> None:
        request.services.transactions.add_partitions(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            {_offsets_partition(request, body.group_id)},
            lambda code: respond(lambda: _response(request, code)),
        )

    return Later(start)


def _offsets_partition(request: TransactionsRequest, group_id: str) -> TopicPartition:
    services = request.services
    topic = services.metadata.snapshot.topic(CONSUMER_OFFSETS)
    # A client may ask for the group's coordinator, and so have the topic created, only after this.
    count = services.config().offsets_topic_num_partitions if topic is None else len(topic.partitions)
    return TopicPartition(CONSUMER_OFFSETS, partition_for(group_id, count))


def _response(request: TransactionsRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=known_to_client(request, code))
