"""Members with our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

from tests.interop.members.member import HEARTBEAT_INTERVAL_MS, METADATA_MAX_AGE_MS, POLL_MS, Commit, Got, Member

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
from ottla.client.consumer.settings import OffsetReset
from ottla.client.types import OffsetAndMetadata, TopicPartition


class OwnMember(Member):
    """Our Consumer in an event loop of its own, which runs while it polls."""

    name = "ottla"

    def _open(self) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._start())

    async def _start(self) -> Consumer:
        how = self.how
        client = Consumer(
            bootstrap_servers=self.bootstrap,
            group_id=how.group,
            group_instance_id=how.instance_id,
            partition_assignment_strategy=(how.assignor,),
            session_timeout_ms=how.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            auto_offset_reset=cast(OffsetReset, how.reset),
            enable_auto_commit=how.auto_commit_interval_ms is not None,
            auto_commit_interval_ms=how.auto_commit_interval_ms or 5000,
            fetch_max_wait_ms=2 * POLL_MS,
        )
        await client.start()
        client.subscribe(how.topics, how.pattern or None, _Listener(self))
        return client

    def _poll(self) -> Iterable[Got]:
        found = self._runner.run(self._client.getmany(timeout_ms=POLL_MS))
        for partition, records in found.items():
            yield from (Got(partition, record.offset, record.value or b"") for record in records)

    def _assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._client.assignment())

    def _leave(self) -> None:
        with self._runner:
            self._runner.run(self._client.stop())

    def _generation(self) -> int:
        member = self._client._member
        return -1 if member is None else member.generation

    def _commit(self, offsets: dict[TopicPartition, Commit]) -> None:
        wanted = {partition: OffsetAndMetadata(commit.offset, commit.metadata) for partition, commit in offsets.items()}
        self._runner.run(self._client.commit(wanted))

    def _committed(self, partition: TopicPartition) -> Commit | None:
        found = self._runner.run(self._client.committed_offsets([partition]))[partition]
        return None if found is None else Commit.of(found.offset, found.metadata)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, member: OwnMember) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            self._member.revoked.append(frozenset(revoked))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass
