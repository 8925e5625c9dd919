"""AIOKafkaConsumer: aiokafka's consumer on ours.

What differs from ours: `start` returns when the group has assigned partitions; subscribe and assign may come before it;
`unsubscribe` is no coroutine; the listener gets all partitions in each rebalance; deserializers get nulls, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from ottla.client import errors as ours
from ottla.client.aiokafka.abc import ConsumerRebalanceListener
from ottla.client.aiokafka.assignors import RoundRobinPartitionAssignor, our_assignor, tell_assignment
from ottla.client.aiokafka.client import AIOKafkaClient, bootstrapping
from ottla.client.aiokafka.errors import ConsumerStoppedError, IllegalOperation, IllegalStateError
from ottla.client.aiokafka.options import VERSION, check_deprecated, client_options
from ottla.client.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndTimestamp,
    TopicPartition,
    as_partitions,
    checked_offsets,
)
from ottla.client.aiokafka.translation import translated, translating
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener as OurListener
from ottla.client.types import ConsumerRecord as OurRecord
from ottla.client.types import OffsetAndMetadata
from ottla.protocol import identifiers

__all__ = ["AIOKafkaConsumer"]

_START_PAUSE_S: Final = 0.01
_METADATA_PAUSE_S: Final = 0.1
R = TypeVar("R")


class _Subscription(NamedTuple):
    """What the program wants to read; `partitions` is set for a manual assignment."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    listener: ConsumerRebalanceListener | None = None
    partitions: frozenset[TopicPartition] | None = None

    @property
    def by_group(self) -> bool:
        """Whether topics are subscribed to, or a pattern."""
        return self.partitions is None


class AIOKafkaConsumer:
    """Reads records; arguments and methods are aiokafka's, and so are their defaults.

    `rebalance_timeout_ms` and `consumer_timeout_ms` have no effect: a group waits `max_poll_interval_ms` for a member.
    """

    def __init__(
        self,
        *topics: str,
        loop: Any = None,
        bootstrap_servers: Any = "localhost",
        client_id: str = "aiokafka-" + VERSION,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1 * 1024 * 1024,
        request_timeout_ms: int = 40 * 1000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: Any = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 5 * 60 * 1000,
        partition_assignment_strategy: Any = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: Any = None,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: Any = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540000,
        isolation_level: Any = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
    ) -> None:
        check_deprecated(loop, api_version)
        if max_poll_records is not None and (not isinstance(max_poll_records, int) or max_poll_records < 1):
            raise ValueError("`max_poll_records` should be positive Integer")
        options = client_options(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            metadata_max_age_ms=metadata_max_age_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            ssl_context=ssl_context,
            security_protocol=security_protocol,
            connections_max_idle_ms=connections_max_idle_ms,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
        )
        self._group_id = group_id
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._assignors = tuple(partition_assignment_strategy)
        self._wanted: _Subscription | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._closed = False
        self._is_running = False
        try:
            self._consumer = Consumer(
                **options,
                group_id=group_id,
                group_instance_id=group_instance_id,
                fetch_max_wait_ms=fetch_max_wait_ms,
                fetch_max_bytes=fetch_max_bytes,
                fetch_min_bytes=fetch_min_bytes,
                max_partition_fetch_bytes=max_partition_fetch_bytes,
                auto_offset_reset=auto_offset_reset if auto_offset_reset in ("earliest", "latest") else "none",
                enable_auto_commit=enable_auto_commit,
                auto_commit_interval_ms=auto_commit_interval_ms,
                check_crcs=check_crcs,
                partition_assignment_strategy=tuple(map(our_assignor, self._assignors)),
                max_poll_interval_ms=max_poll_interval_ms,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=min(heartbeat_interval_ms, max(session_timeout_ms - 1, 0)),
                max_poll_records=max_poll_records,
                exclude_internal_topics=exclude_internal_topics,
                isolation_level=isolation_level,
                client_rack=client_rack or "",
                allow_auto_create_topics=True,
            )
        except ours.KafkaConfigurationError as error:
            raise ValueError(error.detail) from error
        self._listener = _Listener(self)
        if topics:
            self._wanted = _Subscription(self._checked(topics))

    # Life.

    @translating
    async def start(self) -> None:
        """Connect, and wait until partitions are assigned; KafkaConnectionError if no broker answers."""
        assert not self._is_running, "Did you call `start` twice?"
        with bootstrapping(self._consumer.settings):
            await self._consumer.start()
        self._is_running = True
        if self._wanted is not None:
            for topic in sorted(self._wanted.topics):
                await self._wait_for_topic(topic)
            self._apply()
            await self._wait_for_assignment()

    async def stop(self) -> None:
        """With auto-commit, commit the records that the caller got; leave the group and close."""
        if self._closed:
            return
        self._closed = True
        if self._leaving is not None:
            await self._leaving
        await self._consumer.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    # What to read.

    def subscribe(self, topics: Any = (), pattern: Any = None, listener: Any = None) -> None:
        """Subscribe to topics, or to all whose names match a pattern; also before `start`."""
        if not (topics or pattern):
            raise TypeError("You should provide either `topics` or `pattern`")
        if topics and pattern:
            raise TypeError("You can't provide both `topics` and `pattern`")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
        names = self._checked(topics) if topics else frozenset()
        self._want(_Subscription(names, pattern or None, listener))

    def assign(self, partitions: Any) -> None:
        """Read exactly these partitions, without group assignment; also before `start`."""
        chosen = as_partitions(partitions)
        self._want(_Subscription(frozenset(one.topic for one in chosen), partitions=chosen))

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group in the background."""
        self._wanted = None
        if not self._is_running or self._closed:
            return
        if self._leaving is not None:
            return
        if self._consumer._member is None and self._consumer._pattern is None:
            # There is nothing to wait for.
            with contextlib.suppress(StopIteration):
                self._consumer.unsubscribe().send(None)
        else:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    def assignment(self) -> Collection[TopicPartition]:
        """Return the currently assigned partitions."""
        if self._wanted is None or self._closed:
            return set()
        if not self._is_running or self._leaving is not None:
            return self._wanted.partitions or set()
        return as_partitions(self._consumer.assignment()) or set()

    def subscription(self) -> Collection[str]:
        """Return the topics that are read."""
        if self._wanted is None:
            return set()
        if self._wanted.pattern is not None and self._is_running and not self._closed:
            return self._consumer.subscription()
        return self._wanted.topics

    @translating
    async def topics(self) -> set[str]:
        """Return the names of all topics but internal ones."""
        snapshot = await self._consumer._running().metadata(None)
        return {name for name, topic in snapshot.topics.items() if topic.partitions and not topic.is_internal}

    def partitions_for_topic(self, topic: Any) -> set[int] | None:
        """Return the partitions of a topic; None if its metadata is not known yet."""
        return self._consumer._cluster.snapshot.partitions_for(topic) if self._is_running else None

    # Records.

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Wait for the next record, of these partitions if any are given."""
        self._check_partitions(partitions, AssertionError)
        self._check_open()
        await self._left()
        try:
            return self._record(await self._consumer.getone(*_ours(partitions)))
        except ours.KafkaError as error:
            raise translated(error) from error

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: Any = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return the available records by partition; wait up to `timeout_ms` if there are none."""
        self._check_partitions(partitions, AssertionError)
        self._check_open()
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        await self._left()
        try:
            found = await self._consumer.getmany(*_ours(partitions), timeout_ms=timeout_ms, max_records=max_records)
        except ours.KafkaError as error:
            raise translated(error) from error
        return {TopicPartition(*one): list(map(self._record, records)) for one, records in found.items()}

    def __aiter__(self) -> Self:
        self._check_open()
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """Return the next record; the iteration ends when the consumer is stopped."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions until `resume`."""
        self._check_partitions(partitions)
        if partitions:
            self._now(self._consumer.pause, *_ours(partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(as_partitions(self._now(self._consumer.paused)))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again."""
        self._check_partitions(partitions)
        if partitions:
            self._now(self._consumer.resume, *_ours(partitions))

    # Positions.

    def seek(self, partition: TopicPartition, offset: Any) -> None:
        """Continue at this offset."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._now(self._consumer.seek, *_ours([partition]), offset)

    @translating
    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first record of these partitions, or of all."""
        await self._left()
        self._check_assigned(partitions)
        await self._consumer.seek_to_beginning(*_ours(partitions))
        return True

    @translating
    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue after the last record of these partitions, or of all."""
        await self._left()
        self._check_assigned(partitions)
        await self._consumer.seek_to_end(*_ours(partitions))
        return True

    @translating
    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets; return them. Partitions without one stay where they are."""
        await self._left()
        self._check_assigned(partitions)
        self._check_group()
        wanted = _ours(partitions or self.assignment())
        found = await self._consumer.committed_offsets(wanted)
        for partition, known in found.items():
            if known is not None:
                self._consumer.seek(partition, known)
        return {TopicPartition(*one): None if known is None else known.offset for one, known in found.items()}

    @translating
    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record."""
        await self._left()
        return await self._consumer.position(identifiers.TopicPartition(*partition))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark; None before the first fetch."""
        assert partition in self.assignment(), "Partition is not assigned"
        return self._consumer.highwater(identifiers.TopicPartition(*partition))

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset below which all transactions are completed; None before the first fetch."""
        assert partition in self.assignment(), "Partition is not assigned"
        return self._consumer.last_stable_offset(identifiers.TopicPartition(*partition))

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when a broker last answered a fetch of this partition, in milliseconds since 1970."""
        assert partition in self.assignment(), "Partition is not assigned"
        state = self._consumer._partitions.get(identifiers.TopicPartition(*partition))
        return None if state is None else state.fetched_at_ms

    @translating
    async def offsets_for_times(self, timestamps: Any) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time, in milliseconds since 1970; None where there is none."""
        wanted = {}
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"The target time for partition {partition} is {timestamp}; it cannot be negative.")
            wanted[identifiers.TopicPartition(*partition)] = int(timestamp)
        found = await self._consumer.offsets_for_times(wanted)
        return {
            TopicPartition(*one): None if known is None else OffsetAndTimestamp(known.offset, known.timestamp)
            for one, known in found.items()
        }

    @translating
    async def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        found = await self._consumer.beginning_offsets(_ours(partitions))
        return {TopicPartition(*one): offset for one, offset in found.items()}

    @translating
    async def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        found = await self._consumer.end_offsets(_ours(partitions))
        return {TopicPartition(*one): offset for one, offset in found.items()}

    # Commits.

    @translating
    async def commit(self, offsets: Any = None) -> None:
        """Commit these offsets, or those after all records that were handed out."""
        await self._left()
        self._check_group()
        if self._wanted is None:
            raise IllegalStateError("Not subscribed to any topics")
        if offsets is None:
            await self._consumer.commit()
            return
        assigned = self.assignment()
        rows = {}
        for partition, given in checked_offsets(offsets).items():
            if partition not in assigned:
                raise IllegalStateError(f"Partition {partition} is not assigned")
            rows[identifiers.TopicPartition(*partition)] = OffsetAndMetadata(*given)
        await self._consumer.commit(rows)

    @translating
    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group for a partition; None if there is none."""
        self._check_group()
        return await self._consumer.committed(identifiers.TopicPartition(*partition))

    # Private methods.

    @property
    def _client(self) -> AIOKafkaClient:
        return AIOKafkaClient.around(self._consumer.settings, self._consumer._cluster if self._is_running else None)

    def _want(self, wanted: _Subscription) -> None:
        if self._wanted is not None and self._wanted.by_group != wanted.by_group:
            raise IllegalStateError("Subscription to topics, partitions and pattern are mutually exclusive")
        before, self._wanted = self._wanted, wanted
        if self._is_running and not self._closed and self._leaving is None:
            if before is not None and (before.pattern or wanted.pattern):
                # Ours does not go from one pattern to another subscription.
                self._leaving = asyncio.get_running_loop().create_task(self._leave())
            else:
                self._apply()

    def _apply(self) -> None:
        wanted = self._wanted
        assert wanted is not None
        if wanted.partitions is not None:
            self._now(self._consumer.assign, _ours(wanted.partitions))
            return
        self._listener.theirs = wanted.listener
        listener = self._listener if self._group_id else None
        self._now(self._consumer.subscribe, wanted.topics, wanted.pattern, listener)

    async def _leave(self) -> None:
        """Leave the group; then do what was asked for meanwhile."""
        self._listener.is_silent = True
        try:
            await self._consumer.unsubscribe()
        finally:
            self._listener.is_silent = False
            self._leaving = None
        if self._wanted is not None and not self._closed:
            self._apply()

    async def _left(self) -> None:
        """Wait until `unsubscribe` is done, and what was asked for since."""
        if self._leaving is not None:
            await asyncio.shield(self._leaving)

    async def _wait_for_topic(self, topic: str) -> None:
        """Wait until a topic has partitions; it is created if the brokers create topics by themselves."""
        cluster = self._consumer._running()
        deadline = asyncio.get_running_loop().time() + self._consumer.settings.request_timeout_ms / 1000
        while True:
            snapshot = await cluster.metadata([topic], allow_auto_create=True)
            known = snapshot.topics.get(topic)
            if known is not None and known.partitions:
                return
            code = 3 if known is None or not known.error else known.error
            error = ours.error_for(code, f"topic {topic}")
            if not error.retriable or asyncio.get_running_loop().time() > deadline:
                raise error
            await asyncio.sleep(_METADATA_PAUSE_S)

    async def _wait_for_assignment(self) -> None:
        wanted = self._wanted
        if wanted is None or not wanted.by_group:
            return
        if wanted.pattern is not None:
            pattern = self._consumer._pattern
            if pattern is None or not pattern.matching(await self._consumer._running().metadata(None)):
                return
        while not (self._listener.is_assigned if self._group_id else self._consumer.assignment()):
            if self._consumer._host.failure is not None:
                raise self._consumer._host.failure
            await asyncio.sleep(_START_PAUSE_S)

    def _record(self, record: OurRecord[Any, Any]) -> ConsumerRecord[Any, Any]:
        key, value = record.key, record.value
        if self._key_deserializer is not None:
            key = self._key_deserializer(key)
        if self._value_deserializer is not None:
            value = self._value_deserializer(value)
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            key,
            value,
            None,
            record.serialized_key_size,
            record.serialized_value_size,
            record.headers,  # type: ignore[arg-type]
        )

    def _now(self, method: Callable[..., R], *args: Any) -> R:
        """Call a method of our consumer that is no coroutine."""
        try:
            return method(*args)
        except ours.KafkaError as error:
            raise translated(error) from error

    def _check_open(self) -> None:
        if self._closed:
            raise ConsumerStoppedError

    def _check_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")

    def _check_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._check_partitions(partitions)
        assigned = self.assignment()
        if not partitions:
            assert assigned, "No partitions are currently assigned"
        elif missing := set(partitions) - set(assigned):
            raise IllegalStateError(f"Partitions {missing} are not assigned")

    @staticmethod
    def _check_partitions(partitions: tuple[Any, ...], kind: type[Exception] = TypeError) -> None:
        if not all(isinstance(one, TopicPartition) for one in partitions):
            raise kind("partitions must be TopicPartition instances")

    @staticmethod
    def _checked(topics: Any) -> frozenset[str]:
        if not isinstance(topics, tuple | set | list):
            raise TypeError("Topics should be list of strings")
        return frozenset(topics)


class _Listener(OurListener):
    """Calls aiokafka's kind of listener: twice in each rebalance, with all partitions, and not at the end."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.theirs: ConsumerRebalanceListener | None = None
        # Whether partitions were assigned once.
        self.is_assigned = False
        self.is_silent = False
        self._was_revoked = False

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if not (self._consumer._closed or self.is_silent):
            self._was_revoked = True
            await self._call("on_partitions_revoked", set(as_partitions(revoked)))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        everything = set(as_partitions(self._consumer._consumer.assignment()))
        if not self._was_revoked:
            await self._call("on_partitions_revoked", set())
        self._was_revoked = False
        tell_assignment(self._consumer._assignors, everything)
        await self._call("on_partitions_assigned", everything)
        self.is_assigned = True

    async def _call(self, name: str, partitions: set[TopicPartition]) -> None:
        if self.theirs is not None:
            waiting = getattr(self.theirs, name)(partitions)
            if inspect.isawaitable(waiting):
                await waiting


def _ours(partitions: Iterable[tuple[str, int]]) -> list[identifiers.TopicPartition]:
    return [identifiers.TopicPartition(*partition) for partition in partitions]
