"""The connection from this broker to another one: to the controller, or to a broker with a certain id.

The metadata says where the other one is. If that has changed since the last request, the link connects again. A broker
sends requests to itself in the same way, over a connection to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.cluster.metadata import MetadataSnapshot
from ottla.broker.config import BrokerConfig
from ottla.client.net.api_versions import common_version, supported_versions
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.client.net.connector import IN_THE_CLEAR, Connector
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.message import LAST_VERSION, Message, Versions

# Returns host and port of the other broker; raises KafkaError while they are unknown.
Address = Callable[[], tuple[str, int]]


def address_of_controller(snapshot: Callable[[], MetadataSnapshot], config: Callable[[], BrokerConfig]) -> Address:
    """Return where the controller is, whoever that is at the time."""

    def address() -> tuple[str, int]:
        known = snapshot()
        endpoint = known.endpoint(known.controller_id, config().inter_broker_listener.name)
        if endpoint is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is not known yet, or has no address")
        return endpoint.host, endpoint.port

    return address


def address_of_broker(
    broker: int, snapshot: Callable[[], MetadataSnapshot], config: Callable[[], BrokerConfig]
) -> Address:
    """Return where a broker is."""

    def address() -> tuple[str, int]:
        endpoint = snapshot().endpoint(broker, config().inter_broker_listener.name)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} has no address")
        return endpoint.host, endpoint.port

    return address


class BrokerLink:
    """Sends requests to another broker, one at a time. One thread uses a link; any thread may close it."""

    def __init__(
        self,
        address: Address,
        config: Callable[[], BrokerConfig],
        client_id: str,
        request_timeout_ms: int | None = None,
        connector: Connector = IN_THE_CLEAR,
    ) -> None:
        """By default, requests have the timeout `controller.socket.timeout.ms`."""
        self._address = address
        self._config = config
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connector = connector
        self._connection: BlockingConnection | None = None
        self._versions: Mapping[int, Versions] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<BrokerLink {self._connection}>"

    def request(self, api: Api, build: Callable[[int], Message], version_max: int = LAST_VERSION) -> Any:
        """Send what `build` returns for the newest version that both sides know; return the response.

        Raises KafkaError if the other broker is unknown, does not answer or does not have the API, and ProtocolError if
        its answer is malformed. It may have acted on the request in all but the first case.
        """
        connection = self._connected()
        try:
            if self._versions is None:
                self._versions = supported_versions(connection)
            version = common_version(api, self._versions, version_max)
            return connection.request(api, version, build(version))
        except (KafkaError, ProtocolError):
            # When it answers again, it may be another process with other versions.
            self._versions = None
            raise

    def close(self) -> None:
        """Close for good; a pending request fails."""
        self._is_closed = True
        connection = self._connection
        if connection is not None:
            connection.close()

    def _connected(self) -> BlockingConnection:
        host, port = self._address()
        connection = self._connection
        if connection is None or (connection.host, connection.port) != (host, port):
            if connection is not None:
                connection.close()
            self._versions = None
            config = self._config()
            self._connection = connection = self._connector.connection(
                host,
                port,
                client_id=self._client_id,
                connect_timeout_ms=config.socket_connection_setup_timeout_ms,
                connect_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
                request_timeout_ms=self._request_timeout_ms or config.controller_socket_timeout_ms,
            )
        if self._is_closed:
            connection.close()
        return connection
