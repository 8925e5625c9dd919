"""The consumer: reads partitions that the caller or the group assigns."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack

from ottla.client.consumer.assigned_partitions import AssignedPartition, AssignedPartitions, Reset, joined_columns
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.fetcher import ConsumerFetcher
from ottla.client.consumer.group.assignors import assignors_by_name
from ottla.client.consumer.group.classic_member import ClassicGroupMember
from ottla.client.consumer.group.commits import Commits
from ottla.client.consumer.group.consumer_member import ConsumerGroupMember
from ottla.client.consumer.group.group_host import GroupHost
from ottla.client.consumer.group.offset_requests import GroupMembership
from ottla.client.consumer.offset_lookup import look_up
from ottla.client.consumer.pattern_subscription import PatternSubscription
from ottla.client.consumer.reader import RecordReader
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
from ottla.client.consumer.settings import ConsumerOptions, ConsumerSettings
from ottla.client.errors import ConsumerStoppedError, IllegalStateError, KafkaTimeoutError
from ottla.client.net.client_metrics import Metrics
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.metadata import ClusterMetadata
from ottla.client.net.settings import Config
from ottla.client.records.columns import Columns
from ottla.client.records.fetched_batches import FetchedBatch
from ottla.client.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Offsets,
    TopicPartition,
)
from ottla.protocol.identifiers import NO_GENERATION
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST

_UNLIMITED: Final = 1 << 62
# How often to check whether a position is known.
_POSITION_WAIT_S: Final = 0.005


class Consumer:
    """Reads records; use it on one event loop, between `start` and `stop`, or as `async with`.

    With a group_id, the group shares the topics given here; without one, this consumer reads all their partitions. With
    `assign` the caller chooses the partitions. Auto-commit commits processed records: all that the caller got before it
    last asked for more.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        """Take topics and options; KafkaConfigurationError if one is unknown or not valid. Does not connect yet."""
        self.settings = ConsumerSettings.from_kwargs(options)
        self._assignors = assignors_by_name(self.settings.partition_assignment_strategy)
        self._first_topics = topics
        self._started = False
        # Set when `stop` starts, and when all is closed. In between, a rebalance listener can still commit.
        self._stopping = False
        self._stopped = False
        self._member: ClassicGroupMember | ConsumerGroupMember | None = None
        self._commits: Commits | None = None
        self._pattern: PatternSubscription | None = None
        # The topics that are read without a group.
        self._own_topics: frozenset[str] = frozenset()

    @classmethod
    def from_config(cls, config: Config, *topics: str, **overrides: Unpack[ConsumerOptions]) -> Self:
        """Take options with dotted names, from a mapping or a .properties file."""
        return cls(*topics, **ConsumerSettings.kwargs_from_config(config, overrides))

    def __repr__(self) -> str:
        state = "stopped" if self._stopping else "started" if self._started else "new"
        return f"<Consumer {self.settings.bootstrap_servers} group={self.settings.group_id} {state}>"

    # Life.

    async def start(self) -> None:
        """Connect to the cluster, and start to join and to fetch; NoBrokersAvailable if no broker answers."""
        if self._started:
            raise IllegalStateError("the consumer was already started")
        settings = self.settings
        self._cluster = ClusterClient(settings)
        await self._cluster.start()
        self._started = True
        self._partitions = AssignedPartitions()
        self._metrics = ConsumerMetrics()
        self._host = GroupHost(self._partitions, self._commit_processed, settings.group_id, self._metrics)
        self._reader = RecordReader(settings, self._partitions, self._host, self._membership)
        if settings.group_id:
            self._commits = Commits(
                self._cluster, settings, settings.group_id, self._partitions, self._membership, self._metrics
            )
            self._commits.start()
        self._fetcher = ConsumerFetcher(
            self._cluster,
            settings,
            self._partitions,
            self._commits.committed if self._commits else None,
            self._metrics,
        )
        self._fetcher.start()
        self._cluster.report(self.metrics)
        if self._first_topics:
            self.subscribe(self._first_topics)

    async def stop(self) -> None:
        """With auto-commit, commit the records that the caller got; leave the group and close."""
        if self._started and not self._stopping:
            self._partitions.mark_processed()
        await self._close()

    async def _close(self) -> None:
        if not self._started or self._stopping:
            return
        self._stopping = True
        # Wakes up callers that wait for records.
        self._host.failed(ConsumerStoppedError())
        if self._pattern is not None:
            await self._pattern.close()
        if self._commits is not None:
            await self._commits.close()
        try:
            if self._member is not None:
                await self._member.close()
            else:
                await self._commit_processed(self._partitions.names())
        finally:
            self._stopped = True
            await self._fetcher.close()
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error, the last records that the caller got count as not processed."""
        await (self.stop() if error is None else self._close())

    def metrics(self) -> Metrics:
        """Return what the consumer has measured, by group and name as in Kafka's documentation."""
        connections = self._running().connection_metrics()
        return self._metrics.values(connections, self._partitions, self._host.idle_s())

    # What to read.

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics with the group, or to all topics whose names match the pattern."""
        self._check_running()
        topics = [topics] if isinstance(topics, str) else topics
        if bool(topics) == bool(pattern):
            raise IllegalStateError("subscribe to either topics or a pattern")
        if self._partitions and self._member is None and not self._own_topics:
            raise IllegalStateError("partitions were assigned manually; call unsubscribe() first")
        if self._pattern is not None:
            raise IllegalStateError("the consumer is subscribed to a pattern; call unsubscribe() first")
        if listener and not self.settings.group_id:
            raise IllegalStateError("subscribe() with a listener needs group_id")
        changed = self._topics_changed if self.settings.group_id else self._own_topics_changed
        if pattern:
            self._pattern = PatternSubscription(self._cluster, self.settings, pattern, changed)
            self._pattern.start()
        if not self.settings.group_id:
            self._cluster.add_listener(self._follow_topics)
            self._own_topics_changed(frozenset(topics))
            return
        self._host.listener = listener or self._host.listener
        if self._member is None:
            self._member = self._new_member()
            self._member.start()
        self._topics_changed(frozenset(topics))

    def _new_member(self) -> ClassicGroupMember | ConsumerGroupMember:
        if self.settings.group_protocol == "consumer":
            return ConsumerGroupMember(self._cluster, self.settings, self._host)
        return ClassicGroupMember(self._cluster, self.settings, self._host, self._assignors)

    async def unsubscribe(self) -> None:
        """Leave the group and give up all partitions."""
        self._check_running()
        if self._pattern is not None:
            await self._pattern.close()
            self._pattern = None
        self._own_topics = frozenset()
        try:
            # Stay a member until the listener has run, because it may commit as that member.
            if self._member is not None:
                await self._member.close()
        finally:
            self._member = None
            self._host.topics = frozenset()
            self._partitions.remove(self._partitions.names())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without group assignment."""
        self._check_running()
        if self._member is not None:
            raise IllegalStateError("the group assigns the partitions; call unsubscribe() first")
        wanted = {TopicPartition(*partition) for partition in partitions}
        self._cluster.add_topics({partition.topic for partition in wanted})
        self._cluster.request_refresh()
        self._partitions.remove(self._partitions.names() - wanted)
        self._partitions.add(wanted, "committed")

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        self._check_running()
        return self._host.topics if self.settings.group_id else self._own_topics

    def assignment(self) -> set[TopicPartition]:
        """Return the currently assigned partitions."""
        self._check_open()
        return self._partitions.names()

    async def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set((await self._running().metadata(None)).topics)

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic; None if there is no such topic."""
        return (await self._running().metadata([topic])).partitions_for(topic)

    # Records.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """Return the next record; the iteration ends when the consumer is stopped."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            if self._stopping:
                raise StopAsyncIteration from None
            raise

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Wait for the next record, of these partitions if any are given."""
        self._check_running()
        record = await self._reader.one(partitions, None)
        assert record is not None
        return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return the available records by partition, about 512 KiB of each; wait up to `timeout_ms` if there are none.

        What one call leaves, the next returns without a wait.
        """
        self._check_running()
        limit = max_records or self.settings.max_poll_records or _UNLIMITED
        return await self._reader.many(partitions, timeout_ms, limit)

    poll = getmany

    async def getbatches(
        self, *partitions: TopicPartition, timeout_ms: int = 0
    ) -> dict[TopicPartition, list[FetchedBatch]]:
        """Return the available records as whole batches, which are opened when read; deserializers are not used."""
        self._check_running()
        return await self._reader.batches(partitions, timeout_ms)

    async def getcolumns(self, *partitions: TopicPartition, timeout_ms: int = 0) -> dict[TopicPartition, Columns]:
        """Return the available records as columns, without an object per record; deserializers are not used."""
        batches = await self.getbatches(*partitions, timeout_ms=timeout_ms)
        return {partition: joined_columns(some) for partition, some in batches.items()}

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions until `resume`."""
        for state in self._states(partitions):
            state.paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again."""
        for state in self._states(partitions):
            state.paused = False
        self._partitions.wanted.set()
        self._partitions.arrived.set()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        self._check_running()
        return {state.partition for state in self._partitions if state.paused}

    # Positions.

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at this offset; fetched records are dropped."""
        given = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if given.offset < 0:
            raise IllegalStateError(f"there is no offset {given.offset}")
        self._state(partition).seek(given.offset, given.leader_epoch)
        self._partitions.wanted.set()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of these partitions, or of all."""
        await self._seek_by("earliest", partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, or of all; with read_committed, the last stable one."""
        await self._seek_by("latest", partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Continue at the committed offsets of these partitions, or of all, and return where that is.

        Use it after a transaction was aborted, to read its records again. Partitions without a committed offset begin
        as auto_offset_reset says.
        """
        self._group()
        return await self._seek_by("committed", partitions)

    async def _seek_by(self, reset: Reset, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        states = self._states(partitions)
        for state in states:
            state.seek_by(reset)
        self._partitions.wanted.set()
        found = {}
        for state in states:
            try:
                found[state.partition] = await self.position(state.partition)
            except IllegalStateError:
                # A rebalance may take partitions away that the caller has not named.
                if self._stopped or state.partition in partitions:
                    raise
        return found

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record; waits until it is known."""
        deadline = asyncio.get_running_loop().time() + self.settings.default_api_timeout_ms / 1000
        while (position := self._state(partition).position) is None:
            self._partitions.raise_failure([partition])
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaTimeoutError(f"no position for {partition} within {self.settings.default_api_timeout_ms} ms")
            await asyncio.sleep(_POSITION_WAIT_S)
        return position

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark: the offset after the last replicated record; None before the first fetch.

        With read_committed, records can be read up to `last_stable_offset`.
        """
        return self._state(partition).high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset below which all transactions are completed; None before the first fetch."""
        return self._state(partition).last_stable_offset

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; with read_committed, the last stable offset."""
        return await self._ends(partitions, LATEST)

    async def _ends(self, partitions: Iterable[TopicPartition], end: int) -> dict[TopicPartition, int]:
        found = await look_up(self._running(), dict.fromkeys(partitions, end), self.settings.isolation)
        return {partition: one.offset for partition, one in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time, in milliseconds since 1970; None where there is none."""
        found = await look_up(self._running(), timestamps, self.settings.isolation)
        return {partition: one if one.offset >= 0 else None for partition, one in found.items()}

    # Commits.

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets, or those after all records that were handed out; returns when they are committed."""
        await self._group().commit(offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group for a partition; None if there is none."""
        known = (await self.committed_offsets([partition]))[partition]
        return None if known is None else known.offset

    async def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group for partitions, with their metadata."""
        return await self._group().committed(partitions)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the group and our membership in it, for `Producer.send_offsets_to_transaction`.

        It is the membership under which the last records were returned: if the group has rebalanced since, and so may
        have given their partitions to another member, the offsets of those records are refused.
        """
        self._group()
        member = self._reader.read_as or self._membership()
        if self._member is not None and member.generation == NO_GENERATION:
            raise IllegalStateError("the consumer has not joined its group yet, so it has no offsets to commit")
        assert self.settings.group_id
        return ConsumerGroupMetadata(self.settings.group_id, *member)

    # Private methods.

    def _membership(self) -> GroupMembership:
        return GroupMembership() if self._member is None else self._member.membership()

    async def _commit_processed(self, partitions: Iterable[TopicPartition]) -> None:
        if self._commits is not None:
            await self._commits.commit_processed(partitions)

    def _follow_topics(self, metadata: ClusterMetadata) -> None:
        """Without a group, read all partitions of the topics, including ones added later."""
        numbers = {topic: metadata.partitions_for(topic) or () for topic in self._own_topics}
        self._partitions.add(
            (TopicPartition(topic, number) for topic, some in numbers.items() for number in some), "committed"
        )

    def _own_topics_changed(self, topics: frozenset[str]) -> None:
        """Without a group, read other topics from now on."""
        self._own_topics = topics
        self._partitions.remove({partition for partition in self._partitions.names() if partition.topic not in topics})
        self._cluster.add_topics(topics, allow_auto_create=self.settings.allow_auto_create_topics)
        self._cluster.request_refresh()

    def _topics_changed(self, topics: frozenset[str]) -> None:
        self._host.topics = topics
        self._cluster.add_topics(topics, allow_auto_create=self.settings.allow_auto_create_topics)
        if self._member is not None:
            self._member.subscription_changed()

    def _running(self) -> ClusterClient:
        self._check_open()
        return self._cluster

    def _check_running(self) -> None:
        if not self._started or self._stopping:
            raise ConsumerStoppedError

    def _check_open(self) -> None:
        if not self._started or self._stopped:
            raise ConsumerStoppedError

    def _group(self) -> Commits:
        self._check_open()
        if self._commits is None:
            raise IllegalStateError("committing offsets needs group_id")
        return self._commits

    def _state(self, partition: TopicPartition) -> AssignedPartition:
        self._check_open()
        state = self._partitions.get(partition)
        if state is None:
            raise IllegalStateError(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return state

    def _states(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        self._check_open()
        return [self._state(partition) for partition in partitions or self._partitions.names()]
