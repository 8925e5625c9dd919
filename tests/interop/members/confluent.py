"""Members with confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import confluent_kafka
from tests.interop.clients.confluent import client_error
from tests.interop.clients.record import DEADLINE_S
from tests.interop.members.member import HEARTBEAT_INTERVAL_MS, METADATA_MAX_AGE_MS, POLL_MS, Commit, Got, Member

from ottla.protocol.identifiers import TopicPartition

_RECORDS_MAX = 500
_NO_OFFSET = confluent_kafka.OFFSET_INVALID


class ConfluentMember(Member):
    """A Consumer of librdkafka."""

    name = "confluent-kafka"

    def _open(self) -> None:
        how = self.how
        options: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": how.group,
            "partition.assignment.strategy": how.assignor,
            "session.timeout.ms": how.session_timeout_ms,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
            "auto.offset.reset": how.reset,
            "enable.auto.commit": how.auto_commit_interval_ms is not None,
            "fetch.wait.max.ms": 2 * POLL_MS,
        }
        if how.auto_commit_interval_ms is not None:
            options["auto.commit.interval.ms"] = how.auto_commit_interval_ms
        if how.instance_id is not None:
            options["group.instance.id"] = how.instance_id
        self._client: Any = confluent_kafka.Consumer(options)
        # Names that begin so are patterns for librdkafka.
        topics = [f"^{how.pattern}"] if how.pattern else list(how.topics)
        self._client.subscribe(topics, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_revoke(self, client: Any, partitions: list[Any]) -> None:
        self.revoked.append(frozenset(map(_ours, partitions)))

    def _poll(self) -> Iterable[Got]:
        for message in self._client.consume(_RECORDS_MAX, POLL_MS / 1000):
            if (problem := message.error()) is not None:
                raise client_error(problem)
            yield Got(TopicPartition(message.topic(), message.partition()), message.offset(), message.value())

    def _assignment(self) -> frozenset[TopicPartition]:
        return frozenset(map(_ours, self._client.assignment()))

    def _leave(self) -> None:
        self._client.close()

    def _generation(self) -> int:
        return -1

    def _commit(self, offsets: dict[TopicPartition, Commit]) -> None:
        wanted = [
            confluent_kafka.TopicPartition(*partition, commit.offset, metadata=commit.metadata)
            for partition, commit in offsets.items()
        ]
        for committed in self._client.commit(offsets=wanted, asynchronous=False):
            if committed.error is not None:
                raise client_error(committed.error)

    def _committed(self, partition: TopicPartition) -> Commit | None:
        (found,) = self._client.committed([confluent_kafka.TopicPartition(*partition)], DEADLINE_S)
        return None if found.offset == _NO_OFFSET else Commit.of(found.offset, found.metadata)


def _ours(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
