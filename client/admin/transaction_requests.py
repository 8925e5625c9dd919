"""Requests about transactions: to their coordinators, and to the partitions that they have written to.

A transaction that hangs is open in a partition, and no coordinator knows of it. So partitions are asked first, then
coordinators. What looks like hanging may have been ended in between, so its partition is asked once more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Final

from ottla.client.admin.results import PartitionOutcome
from ottla.client.admin.routing import TRANSACTIONAL_ID, AdminRequests, error_of, only_row, raised
from ottla.client.admin.topic_requests import describe_topics
from ottla.client.admin.transaction_results import (
    ActiveProducer,
    FencedProducer,
    OpenTransaction,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.errors import InvalidRequestError, KafkaError, TransactionalIdNotFoundError, raise_for
from ottla.client.net.metadata import by_topic
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

# The first version that filters by duration.
_DURATION_VERSION_MIN: Final = 1
_NO_DURATION: Final = -1
_ABORT: Final = False
# A partition may remember thousands of producers, so a response is about this many partitions at most.
_PARTITIONS_MAX: Final = 500


async def list_transactions(
    requests: AdminRequests,
    states: Collection[str],
    producer_ids: Collection[int],
    duration_ms: int | None,
    brokers: Collection[int] | None = None,
) -> tuple[TransactionListing, ...]:
    """Ask every broker, or these, for the transactional ids that they coordinate; sorted by id."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=_NO_DURATION if duration_ms is None else duration_ms,
    )
    version_min = 0 if duration_ms is None else _DURATION_VERSION_MIN
    responses = await requests.on_all_brokers(Api.LIST_TRANSACTIONS, request, version_min=version_min, brokers=brokers)
    unknown = {state for response in responses.values() for state in response.unknown_state_filters}
    if unknown:
        raise InvalidRequestError(f"transactions have no state {', '.join(sorted(unknown))}")
    listings = [
        TransactionListing(row.transactional_id, row.producer_id, row.transaction_state, broker_id)
        for broker_id, response in responses.items()
        for row in response.transaction_states
    ]
    return tuple(sorted(listings, key=lambda listing: listing.transactional_id))


async def describe_transactions(requests: AdminRequests, ids: Sequence[str]) -> list[TransactionDescription]:
    """Ask the coordinator of each transactional id to describe it."""

    async def describe(transactional_id: str) -> TransactionDescription:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        try:
            coordinator, response = await requests.on_coordinator(
                transactional_id,
                Api.DESCRIBE_TRANSACTIONS,
                request,
                lambda answer: [row.error_code for row in answer.transaction_states],
                key_type=TRANSACTIONAL_ID,
            )
            row = only_row(response.transaction_states, f"transactional id {transactional_id!r}")
            is_missing = row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            raise_for(row.error_code, f"{'there is no ' if is_missing else ''}transactional id {transactional_id!r}")
        except KafkaError as error:
            return TransactionDescription(transactional_id, "", -1, -1, -1, None, -1, error=error)
        return _description(coordinator, row)

    return await asyncio.gather(*map(describe, ids))


async def describe_producers(
    requests: AdminRequests, partitions: Collection[TopicPartition], broker_id: int | None
) -> list[PartitionProducers]:
    """Ask the leaders, or one broker that has replicas, for the producers of partitions."""

    async def ask(node_id: int, asked: list[TopicPartition]) -> dict[TopicPartition, PartitionProducers]:
        topics = [TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(asked).items()]
        request = DescribeProducersRequest(topics=topics)
        response = await requests.cluster.send(node_id, Api.DESCRIBE_PRODUCERS, request)
        return {
            (partition := TopicPartition(topic.name, row.partition_index)): PartitionProducers(
                *partition,
                tuple(map(_producer, sorted(row.active_producers, key=lambda each: each.producer_id))),
                error_of(row.error_code, row.error_message, str(partition)),
            )
            for topic in response.topics
            for row in topic.partitions
        }

    def failed(partition: TopicPartition, error: KafkaError) -> PartitionProducers:
        return PartitionProducers(*partition, error=error)

    if broker_id is None:
        return await requests.by_leader(partitions, ask, failed)
    return await requests.at_broker(broker_id, partitions, ask, failed)


async def abort_transaction(
    requests: AdminRequests,
    partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int | None,
) -> list[PartitionOutcome]:
    """Ask the leader of a partition to write an abort marker."""
    topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=_ABORT,
        topics=[topic],
        coordinator_epoch=coordinator_epoch or 0,
    )

    async def ask(node_id: int, asked: list[TopicPartition]) -> dict[TopicPartition, PartitionOutcome]:
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await requests.cluster.send(node_id, Api.WRITE_TXN_MARKERS, request)
        return {
            (each := TopicPartition(topic.name, row.partition_index)): PartitionOutcome(
                *each, error_of(row.error_code, None, f"{each}, producer {producer_id} of epoch {producer_epoch}")
            )
            for result in response.markers
            for topic in result.topics
            for row in topic.partitions
        }

    def failed(each: TopicPartition, error: KafkaError) -> PartitionOutcome:
        return PartitionOutcome(*each, error)

    return await requests.by_leader([partition], ask, failed)


async def fence_producers(requests: AdminRequests, ids: Sequence[str]) -> list[FencedProducer]:
    """Ask the coordinator of each transactional id for a new producer epoch, as a new producer does."""

    async def fence(transactional_id: str) -> FencedProducer:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=requests.settings.request_timeout_ms
        )
        try:
            _, response = await requests.on_coordinator(
                transactional_id,
                Api.INIT_PRODUCER_ID,
                request,
                lambda answer: [answer.error_code],
                key_type=TRANSACTIONAL_ID,
            )
            raise_for(response.error_code, f"transactional id {transactional_id!r}")
        except KafkaError as error:
            return FencedProducer(transactional_id, -1, -1, error)
        return FencedProducer(transactional_id, response.producer_id, response.producer_epoch)

    return await asyncio.gather(*map(fence, ids))


async def list_open_transactions(
    requests: AdminRequests,
    partitions: Collection[TopicPartition],
    *,
    broker_id: int | None = None,
    idle_ms: int | None = None,
) -> list[OpenTransaction]:
    """Return what is open in partitions, if given only what has had no record for some time, and errors of partitions.

    Raises the error of a coordinator that cannot be asked.
    """
    asked = list(partitions)
    described: list[PartitionProducers] = []
    for start in range(0, len(asked), _PARTITIONS_MAX):
        described += await describe_producers(requests, asked[start : start + _PARTITIONS_MAX], broker_id)
    written_until_ms = time.time() * 1000 - (idle_ms or 0)
    found = [
        (each, producer, producer.transaction_start_offset)
        for each in described
        for producer in each.producers
        if producer.transaction_start_offset is not None
        and (idle_ms is None or (producer.last_timestamp or 0) < written_until_ms)
    ]
    known = await _by_producer_id(requests, {producer.producer_id for _, producer, _ in found})
    opened = [
        _open(each.topic, each.partition, producer, start, known.get(producer.producer_id))
        for each, producer, start in found
    ]
    failed = [
        OpenTransaction(each.topic, each.partition, -1, -1, None, -1, None, is_hanging=False, error=each.error)
        for each in described
        if each.error is not None
    ]
    return [*await _without_ended(requests, opened), *failed]


async def find_hanging_transactions(
    requests: AdminRequests, topics: Collection[str] | None, broker_id: int | None, idle_ms: int
) -> list[OpenTransaction]:
    """Return the transactions that hang in these topics or in all, and errors of partitions."""
    described = raised(await describe_topics(requests, topics), raise_errors=topics is not None)
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in described
        for each in topic.partitions
        if broker_id is None or broker_id in each.replicas
    ]
    found = await list_open_transactions(requests, partitions, broker_id=broker_id, idle_ms=idle_ms)
    return [each for each in found if each.is_hanging or each.error is not None]


async def _by_producer_id(requests: AdminRequests, producer_ids: Collection[int]) -> dict[int, TransactionDescription]:
    """Describe the transactional ids that have these producer ids."""
    if not producer_ids:
        return {}
    listed = await list_transactions(requests, (), sorted(producer_ids), None)
    described = await describe_transactions(requests, [each.transactional_id for each in listed])
    found = {}
    for listing, description in zip(listed, described, strict=True):
        if description.error is None:
            found[listing.producer_id] = description
        elif not isinstance(description.error, TransactionalIdNotFoundError):
            raise description.error
    return found


def _open(
    topic: str, partition: int, producer: ActiveProducer, start_offset: int, known: TransactionDescription | None
) -> OpenTransaction:
    return OpenTransaction(
        topic,
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        start_offset,
        producer.last_timestamp,
        known is None or TopicPartition(topic, partition) not in known.partitions,
        None if known is None else known.transactional_id,
        None if known is None else known.state,
        None if known is None else known.start_time_ms,
        None if known is None else known.timeout_ms,
    )


async def _without_ended(requests: AdminRequests, opened: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Leave out what looked like hanging, and was ended before its coordinator was asked."""
    doubted = {TopicPartition(each.topic, each.partition): None for each in opened if each.is_hanging}
    if not doubted:
        return list(opened)
    described = await describe_producers(requests, doubted, None)
    answered = {(each.topic, each.partition) for each in described if each.error is None}
    still_open = {
        (each.topic, each.partition, producer.producer_id, producer.transaction_start_offset)
        for each in described
        for producer in each.producers
    }
    return [
        each
        for each in opened
        if not each.is_hanging
        or (each.topic, each.partition) not in answered
        or (each.topic, each.partition, each.producer_id, each.start_offset) in still_open
    ]


def _description(coordinator: int, row: TransactionState) -> TransactionDescription:
    return TransactionDescription(
        row.transactional_id,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        _known(row.transaction_start_time_ms),
        coordinator,
        tuple(sorted(TopicPartition(topic.topic, each) for topic in row.topics for each in topic.partitions)),
    )


def _producer(row: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        row.producer_id,
        row.producer_epoch,
        _known(row.last_sequence),
        _known(row.last_timestamp),
        _known(row.coordinator_epoch),
        _known(row.current_txn_start_offset),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
