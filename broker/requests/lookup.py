"""Finding the partition or topic that a request names, with the errors that clients expect."""

from __future__ import annotations

from ottla.broker.replication.partition import Partition
from ottla.broker.requests.request import DataRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition


def hosted_partition(request: DataRequest, partition: TopicPartition) -> Partition:
    """Return a partition of this broker, or raise KafkaError.

    NOT_LEADER_OR_FOLLOWER: another broker has it. UNKNOWN_TOPIC_OR_PARTITION: the cluster does not have it.
    KAFKA_STORAGE_ERROR: its disk failed.
    """
    try:
        return request.services.partitions.get(partition)
    except KafkaError as error:
        is_known = request.services.metadata.snapshot.partition(*partition) is not None
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and not is_known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition)) from error
        raise


def topic_name(request: DataRequest, topic_id: bytes) -> str | None:
    """Return the name of a topic, from the metadata or from a partition of it on this broker; None if unknown."""
    services = request.services
    return services.metadata.snapshot.topic_names.get(topic_id) or services.partitions.topic_name(topic_id)
