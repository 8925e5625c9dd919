"""The connection from this broker to the controller.

The metadata says which broker is the controller. If that has changed since the last request, or its address has, the
link connects again. A controller sends its own requests in the same way, over a connection to itself.
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


class ControllerLink:
    """Sends requests to the controller, one at a time. One thread uses a link; any thread may close it."""

    def __init__(
        self,
        snapshot: Callable[[], MetadataSnapshot],
        config: Callable[[], BrokerConfig],
        client_id: str,
        request_timeout_ms: int | None = None,
        connector: Connector = IN_THE_CLEAR,
    ) -> None:
        """By default, requests have the timeout `controller.socket.timeout.ms`."""
        self._snapshot = snapshot
        self._config = config
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connector = connector
        self._connection: BlockingConnection | None = None
        self._versions: Mapping[int, Versions] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<ControllerLink {self._connection}>"

    def request(self, api: Api, build: Callable[[int], Message], version_max: int = LAST_VERSION) -> Any:
        """Send what `build` returns for the newest version that both sides know; return the response.

        Raises KafkaError if there is no controller or it does not answer, and ProtocolError if its answer is malformed.
        The controller may have acted on the request in both cases.
        """
        connection = self._to_controller()
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

    def _to_controller(self) -> BlockingConnection:
        snapshot, config = self._snapshot(), self._config()
        endpoint = snapshot.endpoint(snapshot.controller_id, config.inter_broker_listener.name)
        if endpoint is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is not known yet, or has no address")
        connection = self._connection
        if connection is None or (connection.host, connection.port) != (endpoint.host, endpoint.port):
            if connection is not None:
                connection.close()
            self._versions = None
            self._connection = connection = self._connector.connection(
                endpoint.host,
                endpoint.port,
                client_id=self._client_id,
                connect_timeout_ms=config.socket_connection_setup_timeout_ms,
                connect_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
                request_timeout_ms=self._request_timeout_ms or config.controller_socket_timeout_ms,
            )
        if self._is_closed:
            connection.close()
        return connection
