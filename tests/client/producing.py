"""Records for tests that have no producer."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.admin.admin import Admin
from ottla.client.errors import raise_for
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record_batch_builder import RecordBatchBuilder


async def produce(
    admin: Admin, partition: TopicPartition, values: Sequence[bytes | None], timestamp: int = 1_000
) -> None:
    """Write one batch; its records have keys k0, k1, ..., one header, and timestamps that count up."""
    builder = RecordBatchBuilder()
    for number, value in enumerate(values):
        builder.append(timestamp + number, b"k%d" % number, value, [("h", b"x")])
    data = PartitionProduceData(index=partition.partition, records=builder.build())
    topics = [TopicProduceData(name=partition.topic, partition_data=[data])]
    metadata = await admin.cluster.metadata([partition.topic])
    leader = metadata.leader(partition)
    assert leader is not None
    response = await admin.cluster.send(
        leader, Api.PRODUCE, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    )
    raise_for(response.responses[0].partition_responses[0].error_code)
