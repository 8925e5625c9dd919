"""DescribeProducers (61), version 0.

Behavior: tells which producers a partition knows, and where their open transactions begin. Every replica may answer.
"""

from __future__ import annotations

from ottla.broker.requests.access import TOPIC, allows
from ottla.broker.requests.request import DataRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers(request: DataRequest) -> DescribeProducersResponse:
    """Describe the producers of partitions."""
    topics = []
    for topic in request.body.topics:
        is_allowed = allows(request, TOPIC, topic.name)
        partitions = [
            _described(request, TopicPartition(topic.name, index))
            if is_allowed
            else _failed(index, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            for index in dict.fromkeys(topic.partition_indexes)
        ]
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _described(request: DataRequest, key: TopicPartition) -> PartitionResponse:
    try:
        log = request.services.partitions.get(key).log
    except KafkaError as error:
        return _failed(key.partition, error)
    with log.lock:
        producers = log.producers.entries()
    return PartitionResponse(
        partition_index=key.partition,
        error_code=0,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.current_transaction_first_offset,
            )
            for each in producers
        ],
    )


def _failed(index: int, error: KafkaError) -> PartitionResponse:
    message = f"{error.code.description} {error.detail}".strip()
    return PartitionResponse(partition_index=index, error_code=error.code, error_message=message, active_producers=[])
