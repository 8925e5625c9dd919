"""A blocking connection to a broker: one request, then its response.

For threads that talk to one broker and have nothing else to do meanwhile, such as the controller's. One thread uses a
connection; any thread may `close` it, which ends a request under way. After an error the connection is closed: what
the other side has read, or will still send, is not known. The next request connects anew.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any, Final

from ottla.protocol.api import Api
from ottla.protocol.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from ottla.protocol.frame import SIZE_BYTES, frame, frame_size
from ottla.protocol.message import Message
from ottla.protocol.requests import decode_response, encode_request

RESPONSE_BYTES_MAX: Final = 100 * 1024 * 1024

# The buffer of a response begins with this size and doubles as bytes come in, whatever size was announced.
_BUFFER_BYTES: Final = 64 * 1024
_CORRELATION_ID_LIMIT: Final = 2**31


class ConnectionFailedError(KafkaError):
    """There is no connection, or it broke; whether the broker acted on the request is not known."""

    def __init__(self, detail: str) -> None:
        """Say with whom, and what happened."""
        super().__init__(ErrorCode.NETWORK_EXCEPTION, detail)


class ResponseTimeoutError(KafkaError):
    """The broker did not answer in time; it may still act on the request."""

    def __init__(self, detail: str) -> None:
        """Say who, and how long."""
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, detail)


class Connection:
    """A connection to one address, made when it is first needed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None,
        connect_timeout_ms: int,
        request_timeout_ms: int,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._connect_timeout = connect_timeout_ms / 1000
        self._request_timeout = request_timeout_ms / 1000
        self._response_bytes_max = response_bytes_max
        self._correlation_id = -1
        # The two below change under the lock, since `close` comes from other threads.
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Connection {self.host}:{self.port} connected={self.is_connected}>"

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as we know."""
        return self._socket is not None

    def connect(self) -> None:
        """Connect, if that is not done; ConnectionFailedError if it does not work."""
        if self._socket is not None:
            return
        try:
            made = socket.create_connection((self.host, self.port), timeout=self._connect_timeout)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ConnectionFailedError(f"cannot connect to {self.host}:{self.port}: {error}") from error
        with self._lock:
            if not self._closed:
                self._socket = made
                return
        made.close()
        raise ConnectionFailedError(f"the connection to {self.host}:{self.port} was closed")

    def request(self, api: Api, version: int, message: Message) -> Any:
        """Send a request and return the response.

        Raises ConnectionFailedError, ResponseTimeoutError, or a ProtocolError where the bytes make no sense.
        """
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_ID_LIMIT
        parts = encode_request(api, version, self._correlation_id, self._client_id, message)
        self.connect()
        deadline = time.monotonic() + self._request_timeout
        try:
            answer = self._exchange(frame(parts), deadline)
            header, response = decode_response(api, version, answer)
            if header.correlation_id != self._correlation_id:
                raise DecodeError(
                    f"{self.host}:{self.port} answered request {header.correlation_id}, not {self._correlation_id}"
                )
            return response
        except TimeoutError as error:
            self._drop()
            raise ResponseTimeoutError(
                f"{self.host}:{self.port} did not answer {api.label} within {self._request_timeout:g} s"
            ) from error
        except OSError as error:
            self._drop()
            raise ConnectionFailedError(f"the connection to {self.host}:{self.port} broke: {error}") from error
        except (KafkaError, ProtocolError):
            self._drop()
            raise

    def close(self) -> None:
        """Close for good, from any thread; a request under way fails."""
        with self._lock:
            self._closed = True
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            dropped, self._socket = self._socket, None
        if dropped is not None:
            # The shutdown wakes a thread that waits in a read; closing alone would not.
            with contextlib.suppress(OSError):
                dropped.shutdown(socket.SHUT_RDWR)
            dropped.close()

    def _exchange(self, request: bytes, deadline: float) -> bytearray:
        connected = self._socket
        if connected is None:
            raise ConnectionFailedError(f"the connection to {self.host}:{self.port} was closed")
        connected.settimeout(self._request_timeout)
        connected.sendall(request)
        size = frame_size(self._read(connected, SIZE_BYTES, deadline), self._response_bytes_max)
        return self._read(connected, size, deadline)

    def _read(self, connected: socket.socket, size: int, deadline: float) -> bytearray:
        buffer = bytearray(min(size, _BUFFER_BYTES))
        filled = 0
        while filled < size:
            if filled == len(buffer):
                buffer += bytes(min(size - filled, len(buffer)))
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connected.settimeout(left)
            with memoryview(buffer) as view:
                count = connected.recv_into(view[filled:])
            if count == 0:
                raise ConnectionFailedError(f"{self.host}:{self.port} closed the connection")
            filled += count
        return buffer
