"""A follower's requests to its leader: Fetch for records, ListOffsets for the start and end of logs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.steps import FetchPosition
from ottla.client.net.api_versions import common_version, supported_versions
from ottla.client.net.blocking_connection import BlockingConnection, ConnectionFailedError
from ottla.client.net.connector import Connector
from ottla.client.net.fetch_session_client import (
    FetchSessionClient,
    SessionFetch,
    SessionPartition,
    fetch_topics,
    forgotten_topics,
)
from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Versions
from ottla.protocol.messages.fetch import TOPIC_IDS_VERSION, FetchPartition, FetchRequest, FetchResponse, ReplicaState
from ottla.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

# From this version on, replicas send their broker epoch.
_REPLICA_STATE_VERSION: Final = 15
_ONE_PARTITION: Final = struct.Struct(">iiibii B16sB iiqiqiBB BBBBB iqB")
_READ_UNCOMMITTED: Final = 0
# In the compact encoding, a count is written plus one.
_ONE, _NONE = 2, 1
_NO_TAGS: Final = 0
_REPLICA_STATE_TAG: Final = 1
_REPLICA_STATE_BYTES: Final = 13


class LeaderOffsets(NamedTuple):
    """The first offset and the end offset of the leader's log."""

    first: int
    end: int


class LeaderClient:
    """The connection to one broker, for one fetcher's thread. Other threads may call `interrupt` and `close`."""

    def __init__(
        self,
        leader_id: int,
        node_id: int,
        broker_epoch: Callable[[], int],
        endpoint_of: Callable[[int], tuple[str, int] | None],
        config: BrokerConfig,
        client_id: str,
        connector: Connector,
    ) -> None:
        self._leader_id = leader_id
        self._node_id = node_id
        self._endpoint_of = endpoint_of
        self._config = config
        self._client_id = client_id
        self._connector = connector
        self._fetches = FetchRequests(node_id, broker_epoch, config)
        self._connection: BlockingConnection | None = None
        self._versions: Mapping[int, Versions] = {}
        self._fetch_version = -1
        self._closed = False

    def fetch(self, session: FetchSessionClient[FetchPosition], wait_ms: int) -> FetchResponse:
        """Send the session's next fetch; raise KafkaError or ProtocolError. Records are valid until the next call."""
        connection = self._connected()
        version = self._fetch_version
        if not session.is_by_id:
            version = min(version, TOPIC_IDS_VERSION - 1)
        body = self._fetches.encoded(version, session.next_fetch(), wait_ms)
        return cast(FetchResponse, connection.request_encoded(Api.FETCH, version, body))

    def offsets(self, partitions: Sequence[tuple[SessionPartition, int]]) -> dict[SessionPartition, LeaderOffsets]:
        """Ask for the first and end offsets of partitions, each in a leader epoch; leave out those with an error."""
        firsts = self._list_offsets(partitions, EARLIEST)
        ends = self._list_offsets(partitions, LATEST)
        found = {}
        for partition, _ in partitions:
            first = firsts.get((partition.topic, partition.partition))
            end = ends.get((partition.topic, partition.partition))
            if first is not None and end is not None:
                found[partition] = LeaderOffsets(first, end)
        return found

    def interrupt(self) -> None:
        """End the current request, from any thread. The next one opens a new connection."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def forget_versions(self) -> None:
        """Ask for the leader's versions and address again, because it may have been replaced."""
        self._fetch_version = -1

    def close(self) -> None:
        """Close for good, from any thread."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            connection.close()

    def _connected(self) -> BlockingConnection:
        """Return a connection to the leader's current address, with its versions known."""
        if self._fetch_version >= 0:
            assert self._connection is not None
            return self._connection
        endpoint = self._endpoint_of(self._leader_id)
        if endpoint is None:
            raise ConnectionFailedError(f"broker {self._leader_id} has no address yet")
        connection = self._connection
        if connection is None or (connection.host, connection.port) != endpoint:
            if connection is not None:
                connection.close()
            self._connection = connection = self._made(*endpoint)
        if self._closed:
            connection.close()
        self._versions = supported_versions(connection)
        self._fetch_version = common_version(Api.FETCH, self._versions)
        return connection

    def _made(self, host: str, port: int) -> BlockingConnection:
        config = self._config
        return self._connector.connection(
            host,
            port,
            client_id=self._client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            connect_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            request_timeout_ms=config.replica_socket_timeout_ms,
            receive_buffer_bytes=config.replica_socket_receive_buffer_bytes,
            # A response is written to the logs before the next request.
            reuses_buffer=True,
            # The first batch comes whole, even above the limit, but no batch is larger than the largest request.
            response_bytes_max=config.replica_fetch_response_max_bytes + config.socket_request_max_bytes,
        )

    def _list_offsets(
        self, partitions: Sequence[tuple[SessionPartition, int]], timestamp: int
    ) -> dict[tuple[str, int], int]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition, leader_epoch in partitions:
            topics.setdefault(partition.topic, []).append(
                ListOffsetsPartition(
                    partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        version = common_version(Api.LIST_OFFSETS, self._versions)
        response = self._connected().request(Api.LIST_OFFSETS, version, request)
        return {
            (topic.name, row.partition_index): row.offset
            for topic in response.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE and row.offset >= 0
        }


class FetchRequests:
    """Encodes the fetches of one follower.

    Nearly all fetches name the one partition that got records, and nothing else. These are packed with one call, which
    costs a tenth of the general encoder; a property test compares the two. The layout of versions 15 to 17:

        int32 max wait | int32 min bytes | int32 max bytes | int8 isolation | int32 session id | int32 session epoch
        1 topic:        uuid id | 1 partition: int32 index | int32 leader epoch | int64 offset
                        | int32 last fetched epoch | int64 log start | int32 max bytes | no tags | no tags
        no forgotten topics | no rack | 1 tag: number 1, 13 bytes: int32 replica id | int64 replica epoch | no tags
    """

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], config: BrokerConfig) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        # These options do not change while the broker runs.
        self._min_bytes = config.replica_fetch_min_bytes
        self._max_bytes = config.replica_fetch_response_max_bytes
        self._partition_bytes = config.replica_fetch_max_bytes

    def encoded(self, version: int, fetch: SessionFetch[FetchPosition], wait_ms: int) -> bytes:
        """Return the body of a fetch."""
        if version < _REPLICA_STATE_VERSION or len(fetch.positions) != 1 or fetch.forgotten:
            return encode(self.message(version, fetch, wait_ms), version)
        ((_, topic_id, index), position), *_ = fetch.positions.items()
        return _ONE_PARTITION.pack(
            wait_ms,
            self._min_bytes,
            self._max_bytes,
            _READ_UNCOMMITTED,
            fetch.session_id,
            fetch.session_epoch,
            _ONE,
            topic_id,
            _ONE,
            index,
            position.current_leader_epoch,
            position.offset,
            position.last_fetched_epoch,
            position.log_start_offset,
            self._partition_bytes,
            _NO_TAGS,
            _NO_TAGS,
            _NONE,
            _NONE,
            1,
            _REPLICA_STATE_TAG,
            _REPLICA_STATE_BYTES,
            self._node_id,
            self._broker_epoch(),
            _NO_TAGS,
        )

    def message(self, version: int, fetch: SessionFetch[FetchPosition], wait_ms: int) -> FetchRequest:
        """Return a fetch as a message."""
        replica: dict[str, Any] = {"replica_id": self._node_id}
        if version >= _REPLICA_STATE_VERSION:
            replica = {"replica_state": ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())}
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=_READ_UNCOMMITTED,
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            topics=fetch_topics((each, self._row(each, position)) for each, position in fetch.positions.items()),
            forgotten_topics_data=forgotten_topics(fetch.forgotten),
            **replica,
        )

    def _row(self, partition: SessionPartition, position: FetchPosition) -> FetchPartition:
        return FetchPartition(
            partition=partition.partition,
            current_leader_epoch=position.current_leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._partition_bytes,
        )
