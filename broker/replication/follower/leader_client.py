"""What a follower asks its leader: records, and where its logs begin and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.fetch_requests import FetchRequests
from ottla.broker.replication.follower.follower import FetchPosition
from ottla.client.net.api_versions import common_version, supported_versions
from ottla.client.net.blocking_connection import BlockingConnection, ConnectionFailedError
from ottla.client.net.connector import Connector
from ottla.client.net.fetch_session_client import FetchSessionClient, SessionPartition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Versions
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

# From this version on, topics are named by their ids alone.
_BY_ID_VERSION: Final = 13
_LATEST: Final = -1
_EARLIEST: Final = -2


class LeaderOffsets(NamedTuple):
    """Where the leader's log begins and ends."""

    first: int
    end: int


class LeaderClient:
    """The connection to one broker, for one fetcher's thread; others may `interrupt` and `close` it."""

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
        """Fetch what the session asks for; raise KafkaError or ProtocolError."""
        connection = self._connected()
        version = self._fetch_version
        if not session.is_by_id:
            version = min(version, _BY_ID_VERSION - 1)
        body = self._fetches.encoded(version, session.next_fetch(), wait_ms)
        return cast(FetchResponse, connection.request_encoded(Api.FETCH, version, body))

    def offsets(self, partitions: Sequence[tuple[SessionPartition, int]]) -> dict[SessionPartition, LeaderOffsets]:
        """Ask for the first and last offsets of partitions, each in a leader epoch; leave out those with an error."""
        firsts = self._list_offsets(partitions, _EARLIEST)
        ends = self._list_offsets(partitions, _LATEST)
        found = {}
        for partition, _ in partitions:
            first = firsts.get((partition.topic, partition.partition))
            end = ends.get((partition.topic, partition.partition))
            if first is not None and end is not None:
                found[partition] = LeaderOffsets(first, end)
        return found

    def interrupt(self) -> None:
        """End the request under way, from any thread; the next one connects anew."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def forget_versions(self) -> None:
        """Ask again for the leader's versions and address: it may be another one by now."""
        self._fetch_version = -1

    def close(self) -> None:
        """Close for good, from any thread."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            connection.close()

    def _connected(self) -> BlockingConnection:
        """Return the connection to where the leader is, with its versions known."""
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
            # The first batch comes whole, however large, but no batch is larger than the request that brought it.
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
