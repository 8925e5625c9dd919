"""AddPartitionsToTxn (24), versions 0-5.

Behavior: adds partitions to the transaction of a producer, before it sends them records; the first ones begin the
transaction. Responds when every in-sync replica of `__transaction_state` knows it. It is all or nothing: if one
partition is unknown or not allowed, or belongs to an internal topic, the others are OPERATION_NOT_ATTEMPTED.

Version notes: versions up to 3 are for clients. From version 4 on, brokers ask for several transactions at once,
usually only whether the partitions are part of them; one that is not is TRANSACTION_ABORTABLE. Before version 2, a
fenced producer gets INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ottla.broker.requests.access import CLUSTER, TOPIC, TRANSACTIONAL_ID, allows, denied
from ottla.broker.requests.coordinator_wait import when_at_rest
from ottla.broker.requests.gathering import Gathering
from ottla.broker.requests.request import Delayed, Later, Respond, TransactionsRequest
from ottla.broker.requests.transaction_errors import known_to_client
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_BROKERS_VERSION: Final = 4

Codes = Mapping[TopicPartition, ErrorCode]


def add_partitions_to_txn(request: TransactionsRequest) -> Message | Delayed:
    """Add partitions to transactions, or tell which they have."""
    body: AddPartitionsToTxnRequest = request.body
    if request.version >= _BROKERS_VERSION:
        if not allows(request, CLUSTER):
            return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return Gathering(
            body.transactions, partial(_handle, request), lambda results: _broker_response(request, results)
        )
    topics = body.v3_and_below_topics
    if not allows(request, TRANSACTIONAL_ID, body.v3_and_below_transactional_id):
        codes = dict.fromkeys(_partitions(topics), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _client_response(request, codes)
    codes = _refused(request, topics, denied(request, TOPIC, (topic.name for topic in topics)))
    return (
        _client_response(request, codes) if codes else when_at_rest(request, body.v3_and_below_transactional_id, _add)
    )


def _add(request: TransactionsRequest) -> Delayed:
    """Add the partitions that a client names."""
    body: AddPartitionsToTxnRequest = request.body
    partitions = set(_partitions(body.v3_and_below_topics))

    def start(respond: Respond) -> None:
        request.services.transactions.add_partitions(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            partitions,
            lambda code: respond(
                lambda: _client_response(request, dict.fromkeys(partitions, known_to_client(request, code)))
            ),
        )

    return Later(start)


def _refused(
    request: TransactionsRequest, topics: Sequence[AddPartitionsToTxnTopic], hidden: frozenset[str]
) -> dict[TopicPartition, ErrorCode]:
    """Return the codes if a partition is refused; nothing if all can be added."""
    snapshot = request.services.metadata.snapshot
    codes: dict[TopicPartition, ErrorCode] = {}
    is_refused = False
    for partition in _partitions(topics):
        code = ErrorCode.OPERATION_NOT_ATTEMPTED
        if partition.topic in hidden or (partition.topic in INTERNAL_TOPICS and request.version < _BROKERS_VERSION):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif snapshot.partition(*partition) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_refused = is_refused or code is not ErrorCode.OPERATION_NOT_ATTEMPTED
        codes[partition] = code
    return codes if is_refused else {}


def _client_response(request: TransactionsRequest, codes: Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0, results_by_topic_v3_and_below=_results(request.body.v3_and_below_topics, codes)
    )


def _handle(
    request: TransactionsRequest, transaction: AddPartitionsToTxnTransaction, done: Callable[[Codes], None]
) -> None:
    """Handle one of the transactions that a broker asks about."""
    refused = _refused(request, transaction.topics, frozenset())
    if refused:
        done(refused)
        return
    partitions = set(_partitions(transaction.topics))
    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    transactions = request.services.transactions
    if not transaction.verify_only:
        transactions.add_partitions(*producer, partitions, lambda code: done(dict.fromkeys(partitions, code)))
        return
    codes: Codes
    try:
        codes = transactions.verify(*producer, partitions)
    except KafkaError as error:
        codes = dict.fromkeys(partitions, error.code)
    done(codes)


def _broker_response(request: TransactionsRequest, results: Sequence[Codes]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, codes)
            )
            for transaction, codes in zip(request.body.transactions, results, strict=True)
        ],
    )


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(topics: Iterable[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
