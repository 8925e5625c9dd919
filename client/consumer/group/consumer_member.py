"""A member of a group of the new protocol (KIP-848). It uses a single API, ConsumerGroupHeartbeat.

The coordinator sends our target assignment. One task sends heartbeats. Another reconciles: it first gives up
partitions, which the next heartbeat reports, and then adds new ones. The coordinator assigns us a partition only after
its previous owner has given it up.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import uuid
from typing import Any, Final

from ottla.client.consumer.group.group_host import LANE, LEAVE_TIMEOUT_MS, GroupHost
from ottla.client.consumer.group.offset_requests import GroupMembership
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.consumer.tasks import cancelled
from ottla.client.errors import KafkaError, UnknownTopicIdError, error_for
from ottla.client.net.backoff import Backoff
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.coordinators import LOST_COORDINATOR
from ottla.client.net.metadata import by_topic
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)

log = logging.getLogger(__name__)

# Epochs with a special meaning: join, leave, and leave for a while as a static member.
_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_STATIC: Final = -2
# Until the coordinator sends its heartbeat interval.
_HEARTBEAT_INTERVAL_MS: Final = 5_000

_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class ConsumerGroupMember:
    """A member from `start` to `close`."""

    def __init__(self, cluster: ClusterClient, settings: ConsumerSettings, host: GroupHost) -> None:
        assert settings.group_id is not None
        self.group_id = settings.group_id
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.generation = _JOIN
        self._cluster = cluster
        self._settings = settings
        self._host = host
        self._interval_ms = _HEARTBEAT_INTERVAL_MS
        self._tasks: list[asyncio.Task[None]] = []
        # Set when there is something to report, and when there is something to reconcile.
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        # The target assignment by topic id; None until the coordinator has sent it.
        self._target: dict[bytes, list[int]] | None = None
        # What the coordinator knows about us; None if the next heartbeat must send it again.
        self._told_topics: frozenset[str] | None = None
        self._told_owned: set[TopicPartition] | None = None

    def membership(self) -> GroupMembership:
        """The member identity for commits."""
        return GroupMembership(self.generation, self.member_id, self._settings.group_instance_id)

    def start(self) -> None:
        """Start to join."""
        self._tasks = [asyncio.create_task(self._send_heartbeats()), asyncio.create_task(self._reconcile())]

    async def close(self) -> None:
        """Give up all partitions and leave; a static member announces that it will be back."""
        beating, reconciling = self._tasks[:1], self._tasks[1:]
        await cancelled(reconciling)
        try:
            # Heartbeats continue meanwhile and receive new epochs; a commit with an old epoch would be refused.
            await self._host.revoked(self._host.owned)
        finally:
            await cancelled(beating)
            self._tasks = []
            await self._leave(_LEAVE if self._settings.group_instance_id is None else _LEAVE_STATIC)

    def subscription_changed(self) -> None:
        """The subscription of the host has changed."""
        self._wake.set()

    # Heartbeats.

    async def _send_heartbeats(self) -> None:
        backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
        while True:
            self._wake.clear()
            try:
                if self._host.idle_s() > self._settings.max_poll_interval_ms / 1000:
                    await self._leave_until_polled()
                if self._host.topics or self._told_topics:
                    await self._beat()
                backoff.reset()
            except KafkaError as error:
                log.info("group %s: %s", self.group_id, error)
                self._told_topics = self._told_owned = None
                if error.code in _FENCED:
                    await self._begin_anew()
                    continue
                if not (error.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE):
                    await self._host.lost(self._host.owned)
                    self._host.failed(error)
                    return
                if error.code in LOST_COORDINATOR or error.code is ErrorCode.REQUEST_TIMED_OUT:
                    self._cluster.forget_coordinator(self.group_id)
                await asyncio.sleep(backoff.next())
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_ms / 1000):
                    await self._wake.wait()

    async def _beat(self) -> None:
        topics, owned, joins = self._host.topics, self._host.owned, self.generation == _JOIN
        ids = await self._topic_ids({partition.topic for partition in owned})
        rows = [
            RequestTopicPartitions(topic_id=ids[topic], partitions=numbers)
            for topic, numbers in by_topic(sorted(owned)).items()
            if topic in ids
        ]
        response = await self._request(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.generation,
                instance_id=self._settings.group_instance_id,
                rack_id=(self._settings.client_rack or None) if joins else None,
                rebalance_timeout_ms=self._settings.max_poll_interval_ms if joins else -1,
                subscribed_topic_names=sorted(topics) if joins or topics != self._told_topics else None,
                server_assignor=self._settings.group_remote_assignor if joins else None,
                topic_partitions=rows if joins or owned != self._told_owned else None,
            ),
            self._settings.request_timeout_ms,
        )
        self._told_topics, self._told_owned = topics, owned
        self.member_id = response.member_id or self.member_id
        self.generation = response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms or self._interval_ms
        if response.assignment is not None:
            self._take(response.assignment)

    def _take(self, assignment: Assignment) -> None:
        self._target = {row.topic_id: row.partitions for row in assignment.topic_partitions}
        self._changed.set()

    async def _begin_anew(self) -> None:
        """The coordinator has fenced us and given our partitions to others."""
        self.generation = _JOIN
        self._target = None
        await self._host.lost(self._host.owned)

    async def _leave_until_polled(self) -> None:
        """The caller is too slow: leave the group, and rejoin when it asks for records again."""
        log.warning("group %s: leaving, no call for records within max_poll_interval_ms", self.group_id)
        self._host.polled.clear()
        await self._leave(_LEAVE)
        self._told_topics = self._told_owned = None
        await self._begin_anew()
        await self._host.polled.wait()

    async def _leave(self, epoch: int) -> None:
        if self.generation == _JOIN:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
        )
        # If this fails, the session times out by itself.
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                await self._request(request, LEAVE_TIMEOUT_MS)

    async def _request(self, request: ConsumerGroupHeartbeatRequest, timeout_ms: int) -> Any:
        node_id = await self._cluster.coordinator(self.group_id)
        response = await self._cluster.send(node_id, Api.CONSUMER_GROUP_HEARTBEAT, request, timeout_ms, lane=LANE)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or f"group {self.group_id}")
        return response

    # Reconciliation.

    async def _reconcile(self) -> None:
        backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._become_target()
                backoff.reset()
            except KafkaError:
                # The metadata does not have the topic yet.
                self._changed.set()
                await asyncio.sleep(backoff.next())
            except Exception as error:
                # An error of the listener: the caller should see it instead of waiting for ever.
                self._tasks[0].cancel()
                self._host.failed(error)
                return

    async def _become_target(self) -> None:
        if self._target is None:
            return
        target = await self._named(self._target)
        owned = self._host.owned
        if owned - target:
            await self._host.revoked(owned - target)
        # A member that was fenced meanwhile has nothing to add.
        if self._target is not None:
            await self._host.assigned(target - owned)
        self._wake.set()

    async def _named(self, target: dict[bytes, list[int]]) -> set[TopicPartition]:
        names = {topic.topic_id: name for name, topic in self._cluster.snapshot.topics.items()}
        if not names.keys() >= target.keys():
            metadata = await self._cluster.metadata(self._host.topics, force=True)
            names = {topic.topic_id: name for name, topic in metadata.topics.items()}
        if not names.keys() >= target.keys():
            raise UnknownTopicIdError("the metadata lacks a topic of the group")
        return {TopicPartition(names[topic_id], number) for topic_id, some in target.items() for number in some}

    async def _topic_ids(self, topics: set[str]) -> dict[str, bytes]:
        known = (await self._cluster.metadata(topics)).topics if topics else {}
        return {topic: known[topic].topic_id for topic in topics if topic in known}
