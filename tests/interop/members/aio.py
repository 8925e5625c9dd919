"""Members with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata
from aiokafka import TopicPartition as TheirPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from tests.interop.members.member import HEARTBEAT_INTERVAL_MS, METADATA_MAX_AGE_MS, POLL_MS, Commit, Got, Member

from ottla.protocol.identifiers import TopicPartition

_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class AioMember(Member):
    """An AIOKafkaConsumer in an event loop of its own, which runs while it polls."""

    name = "aiokafka"

    def _open(self) -> None:
        self._runner = asyncio.Runner()
        self._client: Any = self._runner.run(self._start())

    async def _start(self) -> AIOKafkaConsumer:
        how = self.how
        client = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=how.group,
            group_instance_id=how.instance_id,
            partition_assignment_strategy=(_ASSIGNORS[how.assignor],),
            session_timeout_ms=how.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            auto_offset_reset=how.reset,
            enable_auto_commit=how.auto_commit_interval_ms is not None,
            auto_commit_interval_ms=how.auto_commit_interval_ms or 5000,
            fetch_max_wait_ms=2 * POLL_MS,
        )
        listener = _Listener(self)
        if how.pattern:
            client.subscribe(pattern=how.pattern, listener=listener)
        else:
            client.subscribe(list(how.topics), listener=listener)
        await client.start()
        return client

    def _poll(self) -> Iterable[Got]:
        found = self._runner.run(self._client.getmany(timeout_ms=POLL_MS))
        for partition, records in found.items():
            yield from (Got(TopicPartition(*partition), record.offset, record.value) for record in records)

    def _assignment(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(*partition) for partition in self._client.assignment())

    def _leave(self) -> None:
        with self._runner:
            self._runner.run(self._client.stop())

    def _generation(self) -> int:
        return int(self._client._coordinator.generation)

    def _commit(self, offsets: dict[TopicPartition, Commit]) -> None:
        wanted = {TheirPartition(*partition): OffsetAndMetadata(*commit) for partition, commit in offsets.items()}
        self._runner.run(self._client.commit(wanted))

    def _committed(self, partition: TopicPartition) -> Commit | None:
        # Its public call leaves the words out.
        wanted = TheirPartition(*partition)
        found = self._runner.run(self._client._coordinator.fetch_committed_offsets([wanted]))
        return Commit.of(*found[wanted][:2]) if wanted in found else None


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AioMember) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        if revoked:
            self._member.revoked.append(frozenset(TopicPartition(*partition) for partition in revoked))

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        pass
