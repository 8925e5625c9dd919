"""Reads partitions as bytes: every batch as it is in the log, with control batches and what was aborted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.client.errors import KafkaError, LeaderNotAvailableError, error_for
from ottla.client.mirror.partition_copy import Fetched, PartitionCopy
from ottla.client.net.cluster_client import ClusterClient
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError, ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import READ_COMMITTED, FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records import RecordBatch, batches

# A Fetch that waits for records must not delay other requests to the broker.
_LANE: Final = "mirror-fetch"
# The first version whose responses have the log start, and the last that names topics.
_VERSION_MIN: Final = 5
_VERSION_MAX: Final = 12
_WAIT_MS: Final = 500
_FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
_PARTITION_BYTES_MAX: Final = 1024 * 1024


class Reader:
    """Fetches partitions of one cluster."""

    def __init__(self, cluster: ClusterClient, *, committed_only: bool = False) -> None:
        self.cluster = cluster
        self.isolation = READ_COMMITTED if committed_only else 0

    async def fetch(self, node_id: int, copies: Sequence[PartitionCopy], now: float) -> list[Fetched]:
        """Fetch from one leader. A partition with an error is left out, and looked up again later.

        Raises KafkaError if the broker does not answer.
        """
        asked = {copy.partition: copy for copy in copies}
        rows = {
            copy.partition: FetchPartition(
                partition=copy.partition.partition,
                fetch_offset=copy.position or 0,
                partition_max_bytes=_PARTITION_BYTES_MAX,
            )
            for copy in copies
        }
        fetched = []
        for partition, row in await self._send(node_id, rows, _WAIT_MS):
            copy = asked.get(partition)
            if copy is None or copy.position != rows[partition].fetch_offset:
                continue
            try:
                if row.error_code:
                    raise error_for(row.error_code, f"{partition} of the source")
                fetched.append(self._fetched(copy, rows[partition].fetch_offset, row))
            except (KafkaError, CorruptBatchError) as error:
                copy.retry(str(error), now)
                self.cluster.request_refresh()
        return fetched

    def _fetched(self, copy: PartitionCopy, offset: int, row: Any) -> Fetched:
        copy.source_start = max(row.log_start_offset, 0)
        copy.source_end = row.last_stable_offset if self.isolation else row.high_watermark
        data = memoryview(row.records or b"")
        found = checked(data)
        size = sum(batch.size for batch in found)
        return Fetched(copy, offset, found, data[:size], row.aborted_transactions or ())

    async def read(self, partition: TopicPartition, offset: int) -> list[RecordBatch]:
        """Return the batches from the one that holds an offset on, as many as one fetch has; KafkaError if it fails."""
        leader = self.cluster.leader(partition)
        if leader is None:
            raise LeaderNotAvailableError(f"{partition} has no leader")
        row = FetchPartition(
            partition=partition.partition, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES_MAX
        )
        for found, answer in await self._send(leader, {partition: row}, 0):
            if found == partition:
                if answer.error_code:
                    raise error_for(answer.error_code, str(partition))
                return checked(memoryview(answer.records or b""))
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} did not answer for {partition}")

    async def _send(
        self, node_id: int, rows: dict[TopicPartition, FetchPartition], wait_ms: int
    ) -> list[tuple[TopicPartition, Any]]:
        topics: dict[str, list[FetchPartition]] = {}
        for partition, row in rows.items():
            topics.setdefault(partition.topic, []).append(row)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES_MAX,
            isolation_level=self.isolation,
            topics=[FetchTopic(topic=topic, partitions=of_topic) for topic, of_topic in topics.items()],
        )
        response = await self.cluster.send(
            node_id, Api.FETCH, request, lane=_LANE, version_min=_VERSION_MIN, version_max=_VERSION_MAX
        )
        if response.error_code:
            raise error_for(response.error_code, f"broker {node_id}")
        return [
            (TopicPartition(topic.topic, row.partition_index), row)
            for topic in response.responses
            for row in topic.partitions
        ]


def checked(data: memoryview) -> list[RecordBatch]:
    """Return the whole batches in a buffer; CorruptBatchError if a checksum is wrong."""
    found = list(batches(data))
    for batch in found:
        batch.check()
    return found
