"""Makes the blocking connections of one owner, all of them secured in the same way."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from ottla.client.net.blocking_connection import RESPONSE_BYTES_MAX, SYSTEM_BUFFER, BlockingConnection
from ottla.client.net.security.login import SaslLogin


class Connector:
    """Connects a broker to other brokers on one of their listeners. Thread-safe."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None = None, login: SaslLogin | None = None) -> None:
        """`tls` returns the current TLS context, None means no TLS; `login` has our credentials, if we log in."""
        self.tls = tls
        self.login = login

    def connection(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None,
        connect_timeout_ms: int,
        request_timeout_ms: int,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        connect_timeout_max_ms: int = 0,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
        reuses_buffer: bool = False,
    ) -> BlockingConnection:
        """Return a connection, which connects when it is first used."""
        return BlockingConnection(
            host,
            port,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            response_bytes_max=response_bytes_max,
            connect_timeout_max_ms=connect_timeout_max_ms,
            receive_buffer_bytes=receive_buffer_bytes,
            reuses_buffer=reuses_buffer,
            tls=self.tls,
            login=self.login,
        )


IN_THE_CLEAR: Final = Connector()
