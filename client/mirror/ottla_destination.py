"""Copies to brokers of ours: batches as they are, at the offsets that they have in the source.

MirrorAppend names the offset at which the log must end. So a request that is late or comes twice changes nothing, two
mirrors do no harm to each other, and after a crash the end of the log says where to go on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from ottla.client.errors import KafkaError
from ottla.client.mirror.errors import MirrorError
from ottla.client.mirror.partition_copy import Fetched, PartitionCopy
from ottla.client.net.cluster_client import ClusterClient
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.mirror_append import MirrorAppendPartition, MirrorAppendRequest, MirrorAppendTopic

_LANE: Final = "mirror-append"
# The position was wrong, or the leader is another one: the next attempt finds out.
_LOOK_UP: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class OttlaDestination:
    """Appends by MirrorAppend."""

    copies_bytes = True

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def start(self) -> None:
        """Nothing is needed."""

    async def close(self) -> None:
        """Nothing was taken."""

    async def prepare(self, copies: Sequence[PartitionCopy]) -> None:
        """Nothing is needed."""

    async def append(self, fetched: Sequence[Fetched]) -> None:
        """Append batches: one request to each leader."""
        led: dict[int, list[Fetched]] = defaultdict(list)
        for each in fetched:
            copy = each.copy
            if not each.batches and copy.source_start <= copy.start_offset:
                copy.advance(copy.end_offset)
                continue
            leader = self._cluster.leader(copy.partition)
            if leader is None:
                self._retry(copy, "the destination has no leader for it")
            else:
                led[leader].append(each)
        await asyncio.gather(*(self._append_at(leader, of_leader) for leader, of_leader in led.items()))

    async def _append_at(self, leader: int, fetched: Sequence[Fetched]) -> None:
        asked = {each.copy.partition: each for each in fetched}
        try:
            response = await self._cluster.send(leader, Api.MIRROR_APPEND, self._request(fetched), lane=_LANE)
        except KafkaError as error:
            for each in fetched:
                self._retry(each.copy, str(error))
            return
        for topic in response.topics:
            for row in topic.partitions:
                found = asked.pop(TopicPartition(topic.name, row.partition_index), None)
                if found is not None:
                    self._take(found, row)
        for each in asked.values():
            self._retry(each.copy, f"broker {leader} did not answer for it")

    def _request(self, fetched: Sequence[Fetched]) -> MirrorAppendRequest:
        topics: dict[str, list[MirrorAppendPartition]] = {}
        for each in fetched:
            copy = each.copy
            row = MirrorAppendPartition(
                partition_index=copy.partition.partition,
                log_end_offset=copy.end_offset,
                log_start_offset=copy.source_start,
                records=each.data,
            )
            topics.setdefault(copy.partition.topic, []).append(row)
        return MirrorAppendRequest(
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topics=[MirrorAppendTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
        )

    def _take(self, fetched: Fetched, row: Any) -> None:
        copy, code = fetched.copy, ErrorCode.of(row.error_code)
        if code is ErrorCode.NONE:
            copy.start_offset = row.log_start_offset
            copy.advance(row.log_end_offset)
            copy.count(fetched.batches)
        elif code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise MirrorError(
                "The user of the destination may not append with offsets: "
                "it needs ClusterAction or Alter on the cluster."
            )
        elif code.retriable or code in _LOOK_UP:
            self._retry(copy, row.error_message or code.name)
        else:
            copy.halt(f"the destination refused it: {row.error_message or code.name}")

    def _retry(self, copy: PartitionCopy, error: str) -> None:
        copy.retry(error, asyncio.get_running_loop().time())
        self._cluster.request_refresh()
