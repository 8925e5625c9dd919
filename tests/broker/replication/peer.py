"""The other end of a connection between brokers: a loopback port behind which a function answers requests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.protocol.api import Api
from ottla.protocol.frame import FrameSplitter, frame
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.requests import decode_request, encode_response

TIMEOUT_S = 30

# Gets the API, the version and the request; may block. None closes the connection without an answer.
Answer = Callable[[Api, int, Any], Message | None]


class Peer:
    """A broker as far as requests and answers go; each connection has a thread."""

    def __init__(self, answer: Answer, versions: Mapping[Api, Versions]) -> None:
        self._answer = answer
        self._versions = versions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.connected = 0
        self.endpoint: tuple[str, int] = self._listener.getsockname()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stop listening, and break all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(TIMEOUT_S)
        self.break_connections()

    def break_connections(self) -> None:
        """Break what is connected now."""
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with self._lock:
                    self._connections.add(connection)
                    self.connected += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        splitter = FrameSplitter(100_000_000)
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while received := connection.recv(65536):
                for body in splitter.feed(received):
                    header, request = decode_request(body)
                    api = Api(header.request_api_key)
                    response = self._respond(api, header.request_api_version, request)
                    if response is None:
                        return
                    parts = encode_response(api, header.request_api_version, header.correlation_id, response)
                    connection.sendall(frame(parts))
        with self._lock:
            self._connections.discard(connection)

    def _respond(self, api: Api, version: int, request: Any) -> Message | None:
        if api is Api.API_VERSIONS:
            rows = [
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self._versions.items()
            ]
            return ApiVersionsResponse(error_code=0, api_keys=rows)
        assert version in self._versions[api], f"{api.label} version {version} was not offered"
        return self._answer(api, version, request)


@contextmanager
def peer(answer: Answer, versions: Mapping[Api, Versions]) -> Iterator[Peer]:
    """Run a peer."""
    running = Peer(answer, versions)
    try:
        yield running
    finally:
        running.close()
