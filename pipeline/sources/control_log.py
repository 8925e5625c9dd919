"""The control topic of a sink: the last batch of each shard, in the partition of the shard.

The record of a batch is written in the transaction of its rows, so one is there if the others are. Each shard has a
partition of its own, and each sink a topic: the open transaction of another writer would hide the end of a partition
from readers of committed records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from ottla.client.admin.results import NewTopic
from ottla.client.errors import TopicAlreadyExistsError
from ottla.client.net.settings import ClientSettings
from ottla.client.sync.clients import Admin
from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.offset_ranges import OffsetRange
from ottla.pipeline.sources.options import TopicSubscription
from ottla.pipeline.sources.range_fetch import RangeFetch, without_aborted
from ottla.pipeline.sources.topic_client import TopicClient
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST

TOPIC_PREFIX: Final = "ottla-sink-"
# Small segments, as only those that are full are compacted.
_TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
# The last record is nearly always among so many offsets: a batch takes two, one of them for the end of its transaction.
_LOOK_BACK: Final = 16
_TIMEOUT_MS: Final = 120_000


class ShardBatch(msgspec.Struct, frozen=True):
    """The value of a record: which batch was written, and how many rows of it went to the shard."""

    batch: int
    rows: int

    def encode(self) -> bytes:
        """Return the value as JSON."""
        return msgspec.json.encode(self)


class ShardState(NamedTuple):
    """The last batch of a shard, and the offset that the next record of its partition gets."""

    last: ShardBatch | None
    end_offset: int


class ControlLog:
    """The records of one sink; its methods block."""

    def __init__(self, config: Mapping[str, str], sink: str, shards: int) -> None:
        self._client = TopicClient.shared({**config, "isolation.level": "read_committed"})
        self._sink = sink
        self._shards = shards
        self.topic = TOPIC_PREFIX + sink

    def prepare(self) -> None:
        """Create the topic unless it is there; SourceOptionError where the sink had another number of shards."""
        count = len(self._client.partitions(TopicSubscription(topics=frozenset({self.topic}))))
        if not count:
            settings = self._client.settings
            options = {field.name: getattr(settings, field.name) for field in dataclasses.fields(ClientSettings)}
            # All tasks of the first batch try this.
            with Admin(**options) as admin, suppress(TopicAlreadyExistsError):
                admin.create_topics([NewTopic(self.topic, self._shards, configs=_TOPIC_CONFIGS)])
        elif count != self._shards:
            raise SourceOptionError(
                f"shards is {self._shards}, but the sink {self._sink} has had {count} shards so far (the partitions of "
                f"the topic {self.topic}): write {count}, or use a new sinkName or checkpoint."
            )

    def partition(self, shard: int) -> TopicPartition:
        """Return the partition that has a shard's records."""
        return TopicPartition(self.topic, shard)

    def find(self, shard: int) -> ShardState:
        """Return the last batch that is committed; call it when nobody else writes to the shard any more."""
        partition = self.partition(shard)
        first, end = (self._offset(partition, at) for at in (EARLIEST, LATEST))
        look_back = _LOOK_BACK
        while end - look_back > first:
            last = self._last(OffsetRange(partition, end - look_back, end))
            if last is not None:
                return ShardState(last, end)
            look_back *= 4
        return ShardState(self._last(OffsetRange(partition, first, end)) if first < end else None, end)

    def key(self, shard: int) -> bytes:
        """Return the key of a shard's records."""
        return f"{self._sink}/{shard}".encode()

    def _offset(self, partition: TopicPartition, at: int) -> int:
        async def look_up() -> int:
            return (await self._client.look_up({partition: at}))[partition]

        return self._client.submit(lambda _: look_up()).result()

    def _last(self, offsets: OffsetRange) -> ShardBatch | None:
        last = None
        for fetched in RangeFetch(self._client, offsets, timeout_ms=_TIMEOUT_MS, fail_on_data_loss=True):
            for batch in without_aborted(fetched):
                if batch.is_control:
                    continue
                for record in batch.records():
                    if record.value is not None and offsets.begin <= record.offset < offsets.end:
                        last = msgspec.json.decode(record.value, type=ShardBatch)
        return last
