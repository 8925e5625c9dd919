"""The end offsets of partitions, for the lag of groups. This broker asks other leaders for the partitions they lead.

Only metrics and status pages need end offsets, every few seconds at most. So answers are cached, and a thread asks
for new ones only after a lookup. The first lookup of a partition waits a moment for the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.replication.partitions import Partitions
from ottla.client.net.api_versions import common_version, supported_versions
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.client.net.connector import IN_THE_CLEAR, Connector
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import CONSUMER_REPLICA_ID, TopicPartition
from ottla.protocol.messages.list_offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

log = structlog.get_logger(__name__)

_FRESH_SECONDS: Final = 5.0
_FIRST_WAIT_SECONDS: Final = 1.0
_REQUEST_TIMEOUT_MS: Final = 2_000

EndsByPartition = Mapping[TopicPartition, int]
# Asks a broker for the end offsets of partitions that it leads. Partitions that it does not know are left out.
AskLeader = Callable[[int, Sequence[TopicPartition]], EndsByPartition]


class EndOffsets:
    """The end offsets of all partitions in the cluster. Thread-safe."""

    def __init__(self, partitions: Partitions, metadata: MetadataCache, ask: AskLeader) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._ask = ask
        self._changed = threading.Condition()
        # The partitions that were looked up since the last refresh, and those of the last refresh.
        self._wanted: set[TopicPartition] = set()
        self._answered: set[TopicPartition] = set()
        self._known: dict[TopicPartition, int] = {}
        self._asked_at = float("-inf")
        self._is_asked = self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="end-offsets", daemon=True)

    def start(self) -> None:
        """Start the thread that asks other leaders."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def of(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the known end offsets. May wait up to a second for partitions that were never looked up."""
        ends: dict[TopicPartition, int] = {}
        elsewhere: set[TopicPartition] = set()
        for partition in wanted:
            hosted = self._partitions.find(partition)
            if hosted is not None and hosted.is_leader:
                ends[partition] = hosted.log.high_watermark
            else:
                elsewhere.add(partition)
        return ends | self._elsewhere(elsewhere) if elsewhere else ends

    def _elsewhere(self, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
        with self._changed:
            is_news = not wanted <= self._answered
            self._wanted |= wanted
            if is_news or time.monotonic() - self._asked_at > _FRESH_SECONDS:
                self._is_asked = True
                self._changed.notify_all()
            if is_news and self._thread.is_alive():
                self._changed.wait_for(lambda: not self._is_asked or self._is_stopped, _FIRST_WAIT_SECONDS)
            return {partition: self._known[partition] for partition in wanted if partition in self._known}

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_asked or self._is_stopped)
                if self._is_stopped:
                    return
                wanted, self._wanted = self._wanted, set()
            self._refresh(wanted)

    def _refresh(self, wanted: set[TopicPartition]) -> None:
        snapshot = self._metadata.snapshot
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            known = snapshot.partition(*partition)
            if known is not None and known.leader in snapshot.brokers:
                by_leader.setdefault(known.leader, []).append(partition)
        found: dict[TopicPartition, int] = {}
        for leader, partitions in by_leader.items():
            try:
                found |= self._ask(leader, partitions)
            except (KafkaError, ProtocolError, OSError) as error:
                log.info("end_offsets_unknown", leader=leader, error=str(error))
        with self._changed:
            self._known, self._answered = found, wanted
            self._asked_at = time.monotonic()
            self._is_asked = False
            self._changed.notify_all()


class LeaderEnds:
    """Asks leaders with ListOffsets, over one connection to each. Not thread-safe."""

    def __init__(
        self,
        address_of: Callable[[int], tuple[str, int] | None],
        client_id: str,
        connector: Connector = IN_THE_CLEAR,
    ) -> None:
        self._address_of = address_of
        self._connector = connector
        self._client_id = client_id
        self._connections: dict[int, tuple[BlockingConnection, int]] = {}

    def __call__(self, leader: int, partitions: Sequence[TopicPartition]) -> EndsByPartition:
        """Return end offsets; KafkaError or ProtocolError if the leader does not answer."""
        address = self._address_of(leader)
        if address is None:
            return {}
        connection, version = self._connected(leader, address)
        try:
            response = connection.request(Api.LIST_OFFSETS, version, _request(partitions))
        except (KafkaError, ProtocolError):
            del self._connections[leader]
            connection.close()
            raise
        return {
            TopicPartition(topic.name, row.partition_index): row.offset
            for topic in response.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE and row.offset >= 0
        }

    def close(self) -> None:
        """Close the connections."""
        for connection, _ in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connected(self, leader: int, address: tuple[str, int]) -> tuple[BlockingConnection, int]:
        known = self._connections.get(leader)
        if known is not None and (known[0].host, known[0].port) == address:
            return known
        if known is not None:
            known[0].close()
        connection = self._connector.connection(
            *address,
            client_id=self._client_id,
            connect_timeout_ms=_REQUEST_TIMEOUT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        try:
            version = common_version(Api.LIST_OFFSETS, supported_versions(connection))
        except (KafkaError, ProtocolError):
            connection.close()
            raise
        self._connections[leader] = (connection, version)
        return connection, version


def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition in partitions:
        row = ListOffsetsPartition(partition_index=partition.partition, current_leader_epoch=-1, timestamp=LATEST)
        topics.setdefault(partition.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
