"""A blocking connection to a broker: one request, then its response.

For threads that talk to one broker and do nothing else meanwhile, such as the controller's threads and the replica
fetchers. One thread uses a connection; any thread may `close` or `interrupt` it, which ends a request in flight. An
error closes the connection, because we do not know what the broker has read or will still send. The next request
connects again.

A request with a small response costs two system calls. The socket blocks in the kernel with the kernel's own timeout;
Python's timeout would poll before each call. The size of a response is read together with the response. Each saved call
also saves one wait for the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ottla.client import errors as client_errors
from ottla.client.net.request_headers import RequestHeaders
from ottla.client.net.security.login import AUTHENTICATE_VERSION, HANDSHAKE_VERSION_MIN, SaslLogin, login_steps
from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from ottla.protocol.frame import SIZE_BYTES, Buffer, frame_size
from ottla.protocol.message import Message
from ottla.protocol.requests import decode_response

RESPONSE_BYTES_MAX: Final = 100 * 1024 * 1024
# The system chooses the size of a socket's buffer and lets it grow.
SYSTEM_BUFFER: Final = -1

# A response that fits is received here with its size and copied out. The rest of a larger one is received in place.
_FIRST_BYTES: Final = 16 * 1024
# The buffer of a larger response starts with this size and doubles as bytes arrive, whatever size was announced.
_BUFFER_BYTES: Final = 1024 * 1024
# Buffers have a multiple of this size.
_CAPACITY_STEP: Final = 128 * 1024
# A larger one is not kept for the next response.
_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
# SO_RCVTIMEO and SO_SNDTIMEO take a struct timeval.
_TIMEVAL: Final = struct.Struct("@ll")
# Brokers close idle connections. After this many idle seconds we check for that.
_IDLE_SECONDS: Final = 1.0
# The login of blocking connections uses these versions without asking the broker for its own.
_LOGIN_VERSIONS: Final = {Api.SASL_HANDSHAKE: HANDSHAKE_VERSION_MIN, Api.SASL_AUTHENTICATE: AUTHENTICATE_VERSION}


class ConnectionFailedError(KafkaError):
    """There is no connection, or it broke; the broker may or may not have handled the request."""

    def __init__(self, detail: str) -> None:
        """`detail` names the broker and says what happened."""
        super().__init__(ErrorCode.NETWORK_EXCEPTION, detail)


class ResponseTimeoutError(KafkaError):
    """The broker did not respond in time; it may still handle the request."""

    def __init__(self, detail: str) -> None:
        """`detail` names the broker and the timeout."""
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, detail)


class BlockingConnection:
    """A connection to one address; it connects when it is first used."""

    def __init__(
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
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: SaslLogin | None = None,
    ) -> None:
        """`tls` returns the context for a new connection; None means no TLS. `login` has our credentials.

        The connect timeout doubles with each failure up to `connect_timeout_max_ms`, and shrinks again on success.
        With `reuses_buffer`, a response is valid until the next request: the next large one is received there.
        """
        self.host = host
        self.port = port
        self._headers = RequestHeaders(client_id)
        self._connect_timeout_first = connect_timeout_ms / 1000
        self._connect_timeout_max = max(connect_timeout_ms, connect_timeout_max_ms) / 1000
        self._connect_timeout = self._connect_timeout_first
        self._receive_buffer_bytes = receive_buffer_bytes
        self._request_timeout = request_timeout_ms / 1000
        self._response_bytes_max = response_bytes_max
        self._tls = tls
        self._login = login
        # When to log in again, if the broker limits the lifetime of a login.
        self._login_due = float("inf")
        # TLS sockets do not support MSG_WAITALL.
        self._wait_for_all = 0 if tls is not None else socket.MSG_WAITALL
        self._used_at = 0.0
        self._first = memoryview(bytearray(_FIRST_BYTES))
        self._reuses_buffer = reuses_buffer
        # The buffer of the last large response, and when that was requested.
        self._kept: bytearray | None = None
        self._kept_at = 0.0
        # The two below change under the lock, because other threads call `close`.
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<BlockingConnection {self.host}:{self.port} connected={self.is_connected}>"

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open, as far as we know."""
        return self._socket is not None

    def connect(self) -> None:
        """Connect, unless connected; ConnectionFailedError if that fails."""
        if self._socket is not None:
            return
        try:
            made = self._made()
        except OSError as error:
            self._connect_timeout = min(self._connect_timeout * 2, self._connect_timeout_max)
            raise ConnectionFailedError(f"cannot connect to {self.host}:{self.port}: {error}") from error
        self._connect_timeout = self._connect_timeout_first
        self._used_at = time.monotonic()
        with self._lock:
            if not self._closed:
                self._socket = made
        if self._socket is not made:
            made.close()
            raise ConnectionFailedError(f"the connection to {self.host}:{self.port} was closed")
        if self._login is not None:
            self._log_in(self._login)

    def _made(self) -> socket.socket:
        made = socket.create_connection((self.host, self.port), timeout=self._connect_timeout)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes != SYSTEM_BUFFER:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            if self._tls is not None:
                made = self._tls().wrap_socket(made, server_hostname=self.host)
                # OpenSSL would retry for ever after the kernel's timeout.
                made.settimeout(self._request_timeout)
                return made
            made.settimeout(None)
            seconds, rest = divmod(self._request_timeout, 1)
            timeout = _TIMEVAL.pack(int(seconds), int(rest * 1_000_000))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        except OSError:
            made.close()
            raise
        return made

    def _log_in(self, login: SaslLogin) -> None:
        steps = login_steps(login)
        try:
            api, message = next(steps)
            while True:
                version = _LOGIN_VERSIONS[api]
                api, message = steps.send(self._call(api, version, encode(message, version)))
        except StopIteration as done:
            self._login_due = time.monotonic() + done.value
        except KafkaError as error:
            self._drop()
            if isinstance(error, client_errors.KafkaError):
                # Without the advice, which is about client options.
                raise KafkaError(error.code, error.detail) from error
            raise

    def request(self, api: Api, version: int, message: Message) -> Any:
        """Send a request and return the response.

        Raises ConnectionFailedError, ResponseTimeoutError, or a ProtocolError if the bytes are not a valid response.
        """
        return self.request_encoded(api, version, encode(message, version))

    def request_encoded(self, api: Api, version: int, body: bytes) -> Any:
        """Send a request that is already encoded, without its header, and return the response; raises as `request`."""
        if time.monotonic() - self._used_at > _IDLE_SECONDS and self._is_ended():
            self._drop()
        self.connect()
        if self._login is not None and time.monotonic() > self._login_due:
            self._log_in(self._login)
        return self._call(api, version, body)

    def _call(self, api: Api, version: int, body: bytes) -> Any:
        header = self._headers.next(api, version, len(body))
        self._used_at = time.monotonic()
        deadline = self._used_at + self._request_timeout
        try:
            answer = self._exchange(header + body, deadline)
            response_header, response = decode_response(api, version, answer)
            if response_header.correlation_id != self._headers.correlation_id:
                raise DecodeError(
                    f"{self.host}:{self.port} answered request {response_header.correlation_id}, "
                    f"not {self._headers.correlation_id}"
                )
            return response
        except (TimeoutError, BlockingIOError) as error:
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
        """Close for good, from any thread; a request in flight fails."""
        with self._lock:
            self._closed = True
        self._drop()

    def interrupt(self) -> None:
        """End the request in flight, from any thread; the next one connects again.

        Called between two requests, it may make the next one fail.
        """
        with self._lock:
            if self._socket is not None:
                # The thread that uses the socket closes it: it may be about to use the descriptor.
                with contextlib.suppress(OSError):
                    _shut_down(self._socket)

    def _drop(self) -> None:
        with self._lock:
            dropped, self._socket = self._socket, None
        if dropped is not None:
            # The shutdown wakes up a thread that blocks in a read; closing alone would not.
            with contextlib.suppress(OSError):
                _shut_down(dropped)
            dropped.close()

    def _is_ended(self) -> bool:
        """Whether the broker has closed the connection since the last response. No request is in flight then.

        The only thing that can be received here is the end of the stream, or TLS's announcement of it.
        """
        connected = self._socket
        if connected is None:
            return False
        polled = select.poll()
        polled.register(connected, select.POLLIN)
        return bool(polled.poll(0))

    def _exchange(self, request: bytes, deadline: float) -> Buffer:
        connected = self._socket
        if connected is None:
            raise ConnectionFailedError(f"the connection to {self.host}:{self.port} was closed")
        connected.sendall(request)
        first = self._first
        filled = self._received(connected.recv_into(first))
        while filled < SIZE_BYTES:
            self._check(deadline)
            filled += self._received(connected.recv_into(first[filled:]))
        end = SIZE_BYTES + frame_size(first, self._response_bytes_max)
        if filled > end:
            raise DecodeError(f"{self.host}:{self.port} sent {filled - end} bytes more than its response")
        if filled == end:
            if self._kept is not None and self._used_at - self._kept_at > _IDLE_SECONDS:
                self._kept = None
            return bytes(first[SIZE_BYTES:end])
        return self._rest(connected, bytes(first[SIZE_BYTES:filled]), end - SIZE_BYTES, deadline)

    def _rest(self, connected: socket.socket, begun: bytes, size: int, deadline: float) -> memoryview:
        """Receive the rest of a response."""
        buffer, self._kept = self._kept, None
        if buffer is None or len(buffer) < min(size, _BUFFER_BYTES):
            buffer = bytearray(_capacity(min(size, _BUFFER_BYTES)))
        filled = len(begun)
        buffer[:filled] = begun
        while filled < size:
            self._check(deadline)
            if filled == len(buffer):
                larger = bytearray(_capacity(min(size, 2 * filled)))
                larger[:filled] = buffer
                buffer = larger
            with memoryview(buffer) as view:
                filled += self._received(connected.recv_into(view[filled:size], 0, self._wait_for_all))
        if self._reuses_buffer and len(buffer) <= _KEPT_BYTES_MAX:
            self._kept, self._kept_at = buffer, self._used_at
        return memoryview(buffer)[:size]

    def _received(self, count: int) -> int:
        if count == 0:
            raise ConnectionFailedError(f"{self.host}:{self.port} closed the connection")
        return count

    @staticmethod
    def _check(deadline: float) -> None:
        """Time out a broker that keeps sending a few bytes; the kernel's timeout covers only one call."""
        if time.monotonic() >= deadline:
            raise TimeoutError


def _capacity(size: int) -> int:
    """Return the size of a buffer that also holds a slightly larger response."""
    return size + -size % _CAPACITY_STEP


def _shut_down(connected: socket.socket) -> None:
    """Shut down both directions. The method of a TLS socket would turn it into a plaintext socket too early."""
    socket.socket.shutdown(connected, socket.SHUT_RDWR)
