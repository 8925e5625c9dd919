"""DescribeTransactions (65), version 0.

Behavior: tells the state of transactional ids that this broker coordinates. The partitions are those that take part, or
still lack their marker; topics that the client may not describe are left out. TRANSACTIONAL_ID_NOT_FOUND: the id was
never used, or is forgotten.
"""

from __future__ import annotations

from ottla.broker.requests.access import TOPIC, TRANSACTIONAL_ID, check, denied
from ottla.broker.requests.request import TransactionsRequest
from ottla.broker.transactions.transaction import TransactionState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.describe_transactions import DescribeTransactionsResponse, TopicData
from ottla.protocol.messages.describe_transactions import TransactionState as DescribedTransaction


def describe_transactions(request: TransactionsRequest) -> DescribeTransactionsResponse:
    """Describe transactional ids."""
    asked = dict.fromkeys(request.body.transactional_ids)
    return DescribeTransactionsResponse(
        throttle_time_ms=0, transaction_states=[_described(request, each) for each in asked]
    )


def _described(request: TransactionsRequest, transactional_id: str) -> DescribedTransaction:
    try:
        check(request, TRANSACTIONAL_ID, transactional_id)
        entry = request.services.transactions.find(transactional_id)
        if entry is None or entry.transaction.state is TransactionState.DEAD:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        return DescribedTransaction(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    with entry.lock:
        stored, is_prepared = entry.transaction.stored, entry.transaction.state.is_prepared
        partitions = set(entry.transaction.unmarked) if is_prepared else stored.partitions
    return DescribedTransaction(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=stored.state.title,
        transaction_timeout_ms=stored.timeout_ms,
        transaction_start_time_ms=stored.start_ms,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        topics=_topics(request, partitions),
    )


def _topics(
    request: TransactionsRequest, partitions: set[TopicPartition] | frozenset[TopicPartition]
) -> list[TopicData]:
    hidden = denied(request, TOPIC, {partition.topic for partition in partitions}, log_if_denied=False)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        if topic not in hidden:
            by_topic.setdefault(topic, []).append(index)
    return [TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
