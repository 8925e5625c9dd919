"""What one user sees of a cluster: answers of the brokers, kept for a few seconds.

Pages ask for the same things again and again, and several pages ask at once. So each kind of answer is read once for
all of them, and no faster than it changes.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from ottla.client.admin.admin import Admin
from ottla.client.admin.group_results import GroupListing
from ottla.client.admin.results import ListedOffset, LogDirDescription, OffsetSpec, Reassignment
from ottla.client.errors import KafkaError
from ottla.client.net.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.console.cluster.brokers_http import BrokersHttp
from ottla.console.cluster.fresh import Fresh
from ottla.console.cluster.rates import Rates
from ottla.console.cluster.time_lag import TimeLags
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

T = TypeVar("T")

# How long one broker may take before an answer goes out without it.
_BROKER_TIMEOUT_S: Final = 2.5
_METADATA_AGE_S: Final = 1.0
_LOG_DIRS_AGE_S: Final = 5.0
_GROUPS_AGE_S: Final = 2.0
_GROUP_TOPICS_AGE_S: Final = 10.0
_REASSIGNMENTS_AGE_S: Final = 2.0
# Pages watch the same parts every two seconds.
_SHARED_AGE_S: Final = 1.5
_SHARED_MAX: Final = 64
# Old values are shown for this long while new ones are read; every answer says when it was read.
_STALE_S: Final = 30.0
_METADATA_STALE_S: Final = 5.0
# With more groups than this, topics do not list theirs.
_GROUP_TOPICS_MAX: Final = 300
_GROUPS_AT_ONCE: Final = 16


class MissingBroker(msgspec.Struct, frozen=True):
    """A broker whose part of an answer is missing, and why."""

    broker_id: int
    error: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers and topics at one time, as far as the user may see them."""

    as_of_ms: int
    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicInfo]
    # Brokers that have replicas, but are not alive.
    dead_brokers: tuple[int, ...]

    @property
    def missing(self) -> list[MissingBroker]:
        """The dead brokers, as every partial answer lists them."""
        return [MissingBroker(each, "not a member of the cluster now") for each in self.dead_brokers]


@dataclass(frozen=True, slots=True)
class FromBrokers:
    """What all brokers answered, and which did not."""

    as_of_ms: int
    missing: list[MissingBroker]


@dataclass(frozen=True, slots=True)
class LogDirs(FromBrokers):
    """The log directories of all brokers, with sizes by partition."""

    dirs: tuple[LogDirDescription, ...]
    # On each broker that has a replica: bytes and lag.
    sizes: Mapping[TopicPartition, Mapping[int, tuple[int, int]]]
    topic_sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Groups(FromBrokers):
    """The groups of all coordinators by id."""

    groups: Mapping[str, GroupListing]


@dataclass(slots=True)
class TopicOffsets:
    """The offsets of the partitions of a topic; a partition whose leader does not answer is missing."""

    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    last_write_ms: dict[int, int] = field(default_factory=dict)


class ClusterView:
    """Reads a cluster as one user; close it when the user is gone."""

    def __init__(self, admin: Admin, http: aiohttp.ClientSession, clock_ms: Callable[[], int] | None = None) -> None:
        self.admin = admin
        self.rates = Rates()
        self.brokers_http = BrokersHttp(admin, http)
        self.now_ms = clock_ms or (lambda: int(time.time() * 1000))
        self.time_lags = TimeLags(admin, self.now_ms)
        self._state = Fresh(self._read_state, max_age_s=_METADATA_AGE_S, stale_s=_METADATA_STALE_S)
        self._log_dirs = Fresh(self._read_log_dirs, max_age_s=_LOG_DIRS_AGE_S, stale_s=_STALE_S)
        self._groups = Fresh(self._read_groups, max_age_s=_GROUPS_AGE_S, stale_s=_STALE_S)
        self._group_topics = Fresh(self._read_group_topics, max_age_s=_GROUP_TOPICS_AGE_S, stale_s=_STALE_S)
        self._shared: OrderedDict[str, Fresh[Any]] = OrderedDict()
        self._reassignments = Fresh(admin.list_partition_reassignments, max_age_s=_REASSIGNMENTS_AGE_S)
        self._all: tuple[Fresh[Any], ...] = (
            self._state,
            self._log_dirs,
            self._groups,
            self._group_topics,
            self._reassignments,
        )

    async def close(self) -> None:
        """End what is under way."""
        for each in (*self._all, *self._shared.values()):
            await each.close()
        await self.brokers_http.close()

    def changed(self) -> None:
        """Read everything again: the user changed something."""
        for each in (*self._all, *self._shared.values()):
            each.forget()

    async def shared(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        """Return what `read` returns; those who ask for the same name within a second or so share one answer."""
        fresh = self._shared.setdefault(name, Fresh(read, max_age_s=_SHARED_AGE_S))
        self._shared.move_to_end(name)
        while len(self._shared) > _SHARED_MAX:
            # What is under way there ends by itself.
            self._shared.popitem(last=False)
        answer: T = await fresh.get()
        return answer

    async def state(self) -> ClusterState:
        """Return brokers and topics."""
        return await self._state.get()

    async def log_dirs(self) -> LogDirs:
        """Return the log directories and the sizes of partitions."""
        return await self._log_dirs.get()

    async def groups(self) -> Groups:
        """Return the groups."""
        return await self._groups.get()

    async def reassignments(self) -> Sequence[Reassignment]:
        """Return the partitions that move to other brokers; KafkaError if the user may not see that."""
        return await self._reassignments.get()

    async def groups_by_topic(self) -> Mapping[str, list[str]]:
        """Return the groups that have committed offsets of each topic; empty if there are too many groups."""
        return await self._group_topics.get()

    async def offsets(self, topics: Collection[TopicInfo], *, with_last_write: bool = True) -> dict[str, TopicOffsets]:
        """Ask leaders for the first and the next offset of all partitions, and for the time of the last record."""
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        found = {topic.name: TopicOffsets() for topic in topics}
        specs = [OffsetSpec.EARLIEST, OffsetSpec.LATEST, *([OffsetSpec.MAX_TIMESTAMP] if with_last_write else [])]
        starts, ends, *last = await asyncio.gather(*(self.listed_offsets(partitions, spec) for spec in specs))
        for each in starts:
            found[each.topic].starts[each.partition] = each.offset
        for each in ends:
            found[each.topic].ends[each.partition] = each.offset
        for each in (row for rows in last for row in rows):
            if each.timestamp >= 0:
                found[each.topic].last_write_ms[each.partition] = each.timestamp
        return found

    async def listed_offsets(self, partitions: Collection[TopicPartition], spec: int) -> Sequence[ListedOffset]:
        """Look up one offset of each partition; partitions that cannot be asked are left out."""
        if not partitions:
            return ()
        # A partition without a leader would be retried until the deadline.
        state = await self.state()
        asked = [each for each in partitions if _leader(state, each) in state.brokers]
        try:
            async with asyncio.timeout(_BROKER_TIMEOUT_S):
                rows = await self.admin.list_offsets(dict.fromkeys(asked, spec), raise_errors=False)
        except (KafkaError, TimeoutError):
            return ()
        return [row for row in rows if row.error is None]

    async def from_brokers(
        self, ask: Callable[[int], Awaitable[T]], broker_ids: Collection[int] | None = None
    ) -> tuple[dict[int, T], list[MissingBroker]]:
        """Ask all brokers at once; return the answers, and the brokers that gave none."""
        asked = sorted(self.admin.cluster.brokers if broker_ids is None else broker_ids)

        async def one(broker_id: int) -> T | MissingBroker:
            try:
                async with asyncio.timeout(_BROKER_TIMEOUT_S):
                    return await ask(broker_id)
            except TimeoutError:
                return MissingBroker(broker_id, f"no answer within {_BROKER_TIMEOUT_S:g} s")
            except KafkaError as error:
                return MissingBroker(broker_id, str(error))

        # Brokers that are not members are known only from the replicas that they should have.
        state, found = await asyncio.gather(self.state(), asyncio.gather(*map(one, asked)))
        missing = {each.broker_id: each for each in state.missing} if broker_ids is None else {}
        answers: dict[int, T] = {}
        for broker_id, answer in zip(asked, found, strict=True):
            if isinstance(answer, MissingBroker):
                missing.setdefault(broker_id, answer)
            else:
                answers[broker_id] = answer
        return answers, list(missing.values())

    async def _read_state(self) -> ClusterState:
        metadata = await self.admin.cluster.metadata(None, force=True)
        topics = {name: topic for name, topic in metadata.topics.items() if topic.error is ErrorCode.NONE}
        known = {broker for topic in topics.values() for each in topic.partitions.values() for broker in each.replicas}
        return ClusterState(
            as_of_ms=self.now_ms(),
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id,
            brokers=dict(sorted(metadata.brokers.items())),
            topics=dict(sorted(topics.items())),
            dead_brokers=tuple(sorted(known.difference(metadata.brokers))),
        )

    async def _read_log_dirs(self) -> LogDirs:
        answers, missing = await self.from_brokers(
            lambda broker_id: self.admin.describe_log_dirs(brokers=[broker_id], raise_errors=False)
        )
        sizes: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        topic_sizes: dict[str, int] = {}
        dirs = tuple(each for answer in answers.values() for each in answer)
        for log_dir in dirs:
            for replica in log_dir.replicas:
                if not replica.is_future:
                    partition = TopicPartition(replica.topic, replica.partition)
                    sizes.setdefault(partition, {})[log_dir.broker_id] = (replica.size_bytes, replica.offset_lag)
                topic_sizes[replica.topic] = topic_sizes.get(replica.topic, 0) + replica.size_bytes
        return LogDirs(self.now_ms(), missing, dirs, sizes, topic_sizes)

    async def _read_groups(self) -> Groups:
        answers, missing = await self.from_brokers(lambda broker_id: self.admin.list_groups(brokers=[broker_id]))
        groups = {each.group_id: each for answer in answers.values() for each in answer}
        return Groups(self.now_ms(), missing, dict(sorted(groups.items())))

    async def _read_group_topics(self) -> Mapping[str, list[str]]:
        groups = (await self.groups()).groups
        if len(groups) > _GROUP_TOPICS_MAX:
            return {}
        free = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def topics(group_id: str) -> set[str]:
            async with free:
                try:
                    async with asyncio.timeout(_BROKER_TIMEOUT_S):
                        return {each.topic for each in await self.admin.list_group_offsets(group_id)}
                except (KafkaError, TimeoutError):
                    return set()

        found: dict[str, list[str]] = {}
        for group_id, read in zip(groups, await asyncio.gather(*map(topics, groups)), strict=True):
            for topic in read:
                found.setdefault(topic, []).append(group_id)
        return found


def _leader(state: ClusterState, partition: TopicPartition) -> int | None:
    topic = state.topics.get(partition.topic)
    known: PartitionInfo | None = None if topic is None else topic.partitions.get(partition.partition)
    return None if known is None else known.leader
