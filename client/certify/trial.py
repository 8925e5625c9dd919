"""What a check works with: requests to the cluster, and topics, groups and transactional ids of its own.

Each check has its own connections. All names begin with the prefix of the run, and `clean` removes what they stand for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.client.certify.check import CheckFailed, NotApplicable, error_name, error_names, expect_error
from ottla.client.certify.harm import Harm
from ottla.client.certify.probe import Probe
from ottla.client.errors import KafkaError
from ottla.client.net.asyncio_connection import Request
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.coordinators import GROUP, TRANSACTION
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError, ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import LAST_VERSION, Message
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import (
    TOPIC_IDS_VERSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.plain_values import error_codes
from ottla.protocol.primitives import UUID_ZERO
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch, batches

REQUEST_TIMEOUT_MS: Final = 10_000
FETCH_BYTES: Final = 1 << 20
TRANSACTION_TIMEOUT_MS: Final = 60_000
# What a healthy cluster may answer for a moment.
_TRANSIENT: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
_NO_RIGHTS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
# After these a producer refreshes its metadata and sends the batch again.
_NEXT_LEADER: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_PAUSE_S: Final = 0.05
# How often, with a pause, a check that ends looks whether its last requests are answered.
_SETTLE_TURNS: Final = 100
# The first version that can ask for a missing topic without creating it.
_NO_AUTO_CREATE_VERSION: Final = 4
_LEAVE_LIST_VERSION: Final = 3
_DELETE_BY_ID_VERSION: Final = 6
_UNASSIGNED_REPLICA: Final = -1


@dataclass(frozen=True)
class Topic:
    """A topic of a check."""

    name: str
    topic_id: bytes
    partitions: int


class Trial:
    """One run of one check."""

    def __init__(self, settings: ClientSettings, client: ClusterClient, prefix: str, harm: Harm | None = None) -> None:
        self.settings = settings
        self.client = client
        self.prefix = prefix
        self.harm = harm
        # What the cluster answered last, if that was not final; for the words of a check that runs out of time.
        self.waiting_for = ""
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._members: list[tuple[str, MemberIdentity]] = []
        self._consumer_members: list[tuple[str, str]] = []
        self._transactional_ids: list[str] = []
        self._probes: list[Probe] = []
        # Requests without an answer yet.
        self._under_way: set[asyncio.Task[Any]] = set()

    # Names.

    def name(self, end: str = "") -> str:
        """Return a name that only this check uses."""
        return f"{self.prefix}-{end}" if end else self.prefix

    def group(self, end: str = "group") -> str:
        """Return the name of a group, which is deleted in the end."""
        name = self.name(end)
        if name not in self._groups:
            self._groups.append(name)
        return name

    def transactional_id(self, end: str = "transaction") -> str:
        """Return a transactional id; a transaction that is still open in the end is aborted."""
        name = self.name(end)
        if name not in self._transactional_ids:
            self._transactional_ids.append(name)
        return name

    def will_leave(self, group: str, member_id: str, instance: str | None = None) -> None:
        """Have a member of a classic group leave in the end; a static one leaves by its instance id alone."""
        identity = MemberIdentity(member_id="" if instance else member_id, group_instance_id=instance)
        if (group, identity) not in self._members:
            self._members.append((group, identity))

    def will_leave_consumer_group(self, group: str, member_id: str) -> None:
        """Have a member of a group of the new protocol leave in the end."""
        self._consumer_members.append((group, member_id))

    def will_delete(self, topic: str) -> None:
        """Have a topic deleted in the end, if it exists by then."""
        if topic not in self._topics:
            self._topics.append(topic)

    # Requests.

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers."""
        return sorted(self.client.brokers)

    @property
    def any_broker(self) -> int:
        """A broker, always the same."""
        return self.brokers[0]

    @property
    def controller(self) -> int:
        """The broker that takes requests for the controller."""
        known = self.client.controller_id
        return self.any_broker if known is None or known not in self.client.brokers else known

    async def ask(
        self,
        api: Api,
        message: Request,
        *,
        node: int | None = None,
        version: int | None = None,
        version_max: int = LAST_VERSION,
        final: bool = False,
        lane: str = "",
    ) -> Any:
        """Send a request and return the answer; again while the cluster says that it is not ready, unless `final`.

        NotApplicable if the user has no right to do this.
        """
        while True:
            self.waiting_for = f"an answer to {api.label}"
            sending = self.client.send(
                self.any_broker if node is None else node,
                api,
                message,
                version_min=version or 0,
                version_max=version_max if version is None else version,
                lane=lane,
            )
            response = await self._answer(sending)
            codes = error_codes(response)
            if codes & _NO_RIGHTS:
                raise NotApplicable(f"no rights: {api.label} is answered {error_names(codes & _NO_RIGHTS)}")
            if final or not codes & _TRANSIENT:
                return response
            await self._pause(api, codes)
            if ErrorCode.NOT_CONTROLLER in codes:
                await self.client.metadata((), force=True)
                node = self.controller

    async def _answer(self, sending: Coroutine[Any, Any, Any]) -> Any:
        """Wait for an answer. If this is cancelled, `clean` waits on: the broker may still carry out the request."""
        task = asyncio.create_task(sending)
        self._under_way.add(task)
        task.add_done_callback(self._is_answered)
        return await asyncio.shield(task)

    def _is_answered(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        if isinstance(answer, JoinGroupResponse) and answer.member_id:
            # Nobody may have heard of it. A group waits for a member that was given an id and does not join with it.
            for group in self._groups:
                self.will_leave(group, answer.member_id)

    async def ask_coordinator(
        self, key: str, api: Api, message: Request, *, key_type: int = GROUP, version: int | None = None, lane: str = ""
    ) -> Any:
        """Send a request to the coordinator of a group or transactional id."""
        while True:
            node = await self.client.coordinator(key, key_type)
            response = await self.ask(api, message, node=node, version=version, final=True, lane=lane)
            codes = error_codes(response)
            if not codes & _TRANSIENT:
                return response
            self.client.forget_coordinator(key, key_type)
            await self._pause(api, codes)

    async def probe(self, node: int | None = None) -> Probe:
        """Return a connection on which any bytes can be sent; it is closed in the end."""
        broker = self.client.brokers[self.any_broker if node is None else node]
        probe = await Probe.dial(broker.host, broker.port, self.settings)
        self._probes.append(probe)
        return probe

    def version(self, api: Api) -> int:
        """Return the version that requests have unless another one is asked for."""
        connection = self.client.ready(self.any_broker)
        assert connection is not None
        return connection.version(api)

    # Topics.

    async def topic(
        self, end: str = "topic", *, partitions: int = 1, replicas: int = 1, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic and wait until each partition has a leader that serves it."""
        name = self.name(end)
        self.will_delete(name)
        rows = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        wanted = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=rows
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS)
        response = await self.ask(Api.CREATE_TOPICS, request, node=self.controller)
        (row,) = response.topics
        if row.error_code == ErrorCode.POLICY_VIOLATION:
            raise NotApplicable(f"a policy of the cluster refuses topics: {row.error_message}")
        expect_error(f"CreateTopics of {name}", row.error_code, ErrorCode.NONE)
        return await self.existing(name, partitions)

    async def existing(self, name: str, partitions: int) -> Topic:
        """Return a topic that was created, when all brokers know it and each partition has a leader that serves it."""
        while True:
            described = await asyncio.gather(*(self._described(name, node) for node in self.brokers))
            first = described[0]
            if first is not None and len(first[1]) == partitions and all(each == first for each in described):
                await self.client.metadata((name,), force=True)
                topic = Topic(name, first[0], partitions)
                if all([await self._is_served(topic, number) for number in range(partitions)]):
                    return topic
            self.waiting_for = f"all brokers to know {name} with {partitions} partitions and their leaders"
            await asyncio.sleep(_PAUSE_S)

    async def _described(self, name: str, node: int) -> tuple[bytes, dict[int, int]] | None:
        """Return the id and the leaders of a topic as one broker knows them; None if it does not, or one is missing."""

        def build(version: int) -> Message:
            creates = version < _NO_AUTO_CREATE_VERSION
            return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=creates)

        (row,) = (await self.ask(Api.METADATA, build, node=node, final=True)).topics
        leaders = {each.partition_index: each.leader_id for each in row.partitions}
        is_complete = row.error_code == ErrorCode.NONE and all(leader >= 0 for leader in leaders.values())
        return (row.topic_id, leaders) if is_complete else None

    async def leader(self, topic: Topic, partition: int = 0) -> int:
        """Return the leader of a partition, as the newest metadata says."""
        while True:
            found = self.client.leader(TopicPartition(topic.name, partition))
            if found is not None and found in self.client.brokers:
                return found
            self.waiting_for = f"a leader of {topic.name}-{partition}"
            await asyncio.sleep(_PAUSE_S)
            await self.client.metadata((topic.name,), force=True)

    def leader_epoch(self, topic: Topic, partition: int = 0) -> int:
        """Return the leader epoch that the metadata has."""
        known = self.client.snapshot.partition(TopicPartition(topic.name, partition))
        return -1 if known is None else known.leader_epoch

    async def _is_served(self, topic: Topic, partition: int) -> bool:
        if self.client.leader(TopicPartition(topic.name, partition)) is None:
            return False
        row = await self.list_offset(topic, LATEST, partition=partition)
        return bool(row.error_code == ErrorCode.NONE)

    # Records.

    async def produce(
        self, topic: Topic, records: bytes | bytearray, *, partition: int = 0, acks: int = -1, **options: Any
    ) -> Any:
        """Write bytes as records to a partition; return its row of the answer, whatever its error is."""
        response = await self.ask(
            Api.PRODUCE,
            produce_request(topic.name, records, partition=partition, acks=acks, **options),
            node=await self.leader(topic, partition),
            final=True,
        )
        rows = [row for each in response.responses for row in each.partition_responses]
        if len(rows) != 1 or rows[0].index != partition:
            raise CheckFailed(f"one answer for partition {partition}", f"{len(rows)} answers: {rows!r}")
        return rows[0]

    async def write(self, topic: Topic, *values: bytes, partition: int = 0, **options: Any) -> int:
        """Write values as one batch, which has to succeed; return its base offset."""
        row = await self.produce(topic, batch_of(*values, **options), partition=partition)
        expect_error("Produce", row.error_code, ErrorCode.NONE)
        return int(row.base_offset)

    async def write_all(self, topic: Topic, values: Sequence[bytes], tell: Callable[[], None] = lambda: None) -> None:
        """Write values one by one as an idempotent producer, each until it is acknowledged, while leaders change.

        `tell` is called after each one.
        """
        producer = await self.init_producer()
        for number, value in enumerate(values):
            batch = batch_of(
                value,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=number,
            )
            while not await self._is_acknowledged(topic, batch):
                await asyncio.sleep(_PAUSE_S)
                with contextlib.suppress(KafkaError):
                    await self.client.metadata((topic.name,), force=True)
            tell()

    async def _is_acknowledged(self, topic: Topic, batch: bytearray) -> bool:
        try:
            row = await self.produce(topic, batch)
        except KafkaError as error:
            self.waiting_for = f"a write to succeed: {error}"
            return False
        expect_error("a write while leaders change", row.error_code, ErrorCode.NONE, *_NEXT_LEADER)
        self.waiting_for = f"a write to succeed; it is answered {error_name(row.error_code)}"
        return bool(row.error_code == ErrorCode.NONE)

    def fetch_request(
        self,
        rows: Sequence[tuple[Topic, FetchPartition]],
        version: int,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        **options: Any,
    ) -> FetchRequest:
        """Return a Fetch request; `options` are fields of it."""
        topics: dict[str, FetchTopic] = {}
        for topic, row in rows:
            if version >= TOPIC_IDS_VERSION and topic.topic_id == UUID_ZERO:
                raise CheckFailed(f"a topic id in Metadata, as Fetch {version} needs it", "no topic id")
            entry = topics.setdefault(topic.name, FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[]))
            entry.partitions.append(row)
        options = {"max_bytes": FETCH_BYTES, **options}
        return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=list(topics.values()), **options)

    async def fetch_all(
        self,
        rows: Sequence[tuple[Topic, FetchPartition]],
        *,
        node: int | None = None,
        version: int | None = None,
        lane: str = "",
        **options: Any,
    ) -> Any:
        """Fetch several partitions of one leader; return the whole answer."""
        leader = await self.leader(rows[0][0], rows[0][1].partition) if node is None else node
        return await self.ask(
            Api.FETCH,
            lambda chosen: self.fetch_request(rows, chosen, **options),
            node=leader,
            version=version,
            final=True,
            lane=lane,
        )

    async def fetch(
        self,
        topic: Topic,
        offset: int,
        *,
        partition: int = 0,
        partition_max_bytes: int = FETCH_BYTES,
        current_leader_epoch: int = -1,
        **options: Any,
    ) -> Any:
        """Fetch one partition; return its row of the answer, whatever its error is."""
        row = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
        )
        response = await self.fetch_all([(topic, row)], **options)
        expect_error("the whole Fetch", response.error_code, ErrorCode.NONE)
        found = [row for each in response.responses for row in each.partitions]
        if len(found) != 1:
            raise CheckFailed("one partition in the answer to Fetch", f"{len(found)} partitions")
        return found[0]

    async def read(self, topic: Topic, count: int, *, partition: int = 0, start: int = 0, **options: Any) -> list[Any]:
        """Return at least this many records from an offset on, as a consumer sees them; waits for them."""
        found: list[Any] = []
        offset = start
        while len(found) < count:
            row = await self.fetch(topic, offset, partition=partition, **options)
            expect_error("Fetch", row.error_code, ErrorCode.NONE)
            for batch in whole_batches(row):
                if not batch.is_control:
                    found += [each for each in batch.records() if each.offset >= start]
                offset = batch.next_offset
            self.waiting_for = f"{count} records in {topic.name}-{partition}: {len(found)} were read"
        return found

    async def values(self, topic: Topic, count: int, **options: Any) -> list[bytes | None]:
        """Return the values of records, as `read` does."""
        return [each.value for each in await self.read(topic, count, **options)]

    async def list_offset(
        self, topic: Topic, timestamp: int, *, partition: int = 0, isolation_level: int = 0, **options: Any
    ) -> Any:
        """Return what ListOffsets answers for a partition."""
        row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **options)
        request = ListOffsetsRequest(
            replica_id=_UNASSIGNED_REPLICA,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic.name, partitions=[row])],
        )
        response = await self.ask(Api.LIST_OFFSETS, request, node=await self.leader(topic, partition), final=True)
        return response.topics[0].partitions[0]

    async def end_offset(self, topic: Topic, partition: int = 0) -> int:
        """Return the offset behind the last record."""
        row = await self.list_offset(topic, LATEST, partition=partition)
        expect_error("ListOffsets", row.error_code, ErrorCode.NONE)
        return int(row.offset)

    async def init_producer(self, transactional_id: str | None = None, **options: Any) -> Any:
        """Return the answer to InitProducerId, which has to succeed."""
        response = await self.try_init_producer(transactional_id, **options)
        expect_error("InitProducerId", response.error_code, ErrorCode.NONE)
        return response

    async def try_init_producer(
        self, transactional_id: str | None = None, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> Any:
        """Return the answer to InitProducerId."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if transactional_id is None:
            return await self.ask(Api.INIT_PRODUCER_ID, request)
        return await self.ask_coordinator(transactional_id, Api.INIT_PRODUCER_ID, request, key_type=TRANSACTION)

    # The end.

    async def clean(self) -> list[str]:
        """Remove all that the check has made; return the names of what is left."""
        left = []
        for probe in self._probes:
            probe.abort()
        await self._settle()
        steps: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            *((name, partial(self._abort, name)) for name in self._transactional_ids),
            *((group, partial(self._leave, group, member)) for group, member in self._members),
            *((group, partial(self._leave_consumer_group, group, name)) for group, name in self._consumer_members),
            *((group, partial(self._delete_group, group)) for group in self._groups),
            *((name, partial(self._delete_topic, name)) for name in self._topics),
        ]
        for name, step in steps:
            try:
                await step()
            except (KafkaError, CheckFailed, NotApplicable):
                left.append(name)
        return left

    async def _settle(self) -> None:
        """Wait, for a while, until no request is under way: it could make again what is removed before it.

        A JoinGroup is answered when the other members are back, or have left.
        """
        asked = self._under_way.copy()
        for _ in range(_SETTLE_TURNS):
            if not asked:
                return
            _, asked = await asyncio.wait(asked, timeout=_PAUSE_S)
            with contextlib.suppress(KafkaError, CheckFailed, NotApplicable):
                for group, member in self._members:
                    await self._leave(group, member)
        for task in asked:
            task.cancel()

    async def _abort(self, transactional_id: str) -> None:
        await self.try_init_producer(transactional_id)

    async def _leave(self, group: str, member: MemberIdentity) -> None:
        def build(version: int) -> Message:
            if version < _LEAVE_LIST_VERSION:
                return LeaveGroupRequest(group_id=group, member_id=member.member_id)
            return LeaveGroupRequest(group_id=group, members=[member])

        await self.ask_coordinator(group, Api.LEAVE_GROUP, build)

    async def _leave_consumer_group(self, group: str, member_id: str) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
        await self.ask_coordinator(group, Api.CONSUMER_GROUP_HEARTBEAT, request)

    async def _delete_group(self, group: str) -> None:
        response = await self.ask_coordinator(group, Api.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group]))
        expect_error("DeleteGroups", response.results[0].error_code, ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)

    async def _delete_topic(self, name: str) -> None:
        def build(version: int) -> Message:
            if version < _DELETE_BY_ID_VERSION:
                return DeleteTopicsRequest(topic_names=[name], timeout_ms=REQUEST_TIMEOUT_MS)
            row = DeleteTopicState(name=name, topic_id=UUID_ZERO)
            return DeleteTopicsRequest(topics=[row], timeout_ms=REQUEST_TIMEOUT_MS)

        response = await self.ask(Api.DELETE_TOPICS, build, node=self.controller)
        expect_error(
            "DeleteTopics", response.responses[0].error_code, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    async def _pause(self, api: Api, codes: set[int]) -> None:
        self.waiting_for = f"{api.label} to be answered without {error_names(codes & _TRANSIENT)}"
        await asyncio.sleep(_PAUSE_S)


def batch_of(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    **options: Any,
) -> bytearray:
    """Return the values as one batch; `options` are those of RecordBatchBuilder.build."""
    builder = RecordBatchBuilder()
    now = int(time.time() * 1000) if timestamp is None else timestamp
    for number, value in enumerate(values):
        builder.append(now + number, None if keys is None else keys[number], value, headers)
    return builder.build(**options)


def produce_request(
    topic: str,
    records: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Return a Produce request for one partition."""
    rows = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=REQUEST_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=rows)],
    )


def whole_batches(row: Any) -> list[RecordBatch]:
    """Return the batches of a fetched partition; CheckFailed if one of them is damaged."""
    try:
        found = list(batches(row.records or b""))
        for batch in found:
            batch.check()
    except CorruptBatchError as error:
        raise CheckFailed("whole batches with correct CRCs from Fetch", str(error)) from error
    return found


def now_ms() -> int:
    """Return the time of this host."""
    return int(time.time() * 1000)
