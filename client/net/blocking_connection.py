"""A blocking connection to a broker: one request, then its response.

For threads that talk to one broker and have nothing else to do meanwhile, such as the controller's and the fetchers of
replicas. One thread uses a connection; any thread may `close` or `interrupt` it, which ends a request under way. After
an error the connection is closed: what the other side has read, or will still send, is not known. The next request
connects again.

A request costs two system calls where the answer is small: the socket blocks in the kernel, with the kernel's own
timeout, since Python's asks before each call whether it would block; and the size of an answer is read together with
the answer. Each call saved is also one less wait for the interpreter's lock.
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
# The system chooses the size of a socket's buffer, and lets it grow.
SYSTEM_BUFFER: Final = -1

# A response that fits is received here, size and all, and copied out; the rest of a larger one is received in place.
_FIRST_BYTES: Final = 16 * 1024
# The buffer of a larger response begins with this size and doubles as bytes come in, whatever size was announced.
_BUFFER_BYTES: Final = 1024 * 1024
# What SO_RCVTIMEO and SO_SNDTIMEO take: struct timeval.
_TIMEVAL: Final = struct.Struct("@ll")
# Brokers close what was idle for long: after so many seconds we look whether that has happened.
_IDLE_SECONDS: Final = 1.0
# The login of blocking connections uses these versions, without asking which ones the broker has.
_LOGIN_VERSIONS: Final = {Api.SASL_HANDSHAKE: HANDSHAKE_VERSION_MIN, Api.SASL_AUTHENTICATE: AUTHENTICATE_VERSION}


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


class BlockingConnection:
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
        connect_timeout_max_ms: int = 0,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: SaslLogin | None = None,
    ) -> None:
        """`tls` gives the context of a new connection, None is one in the clear; `login` says who we are.

        The time to connect doubles with each failure up to `connect_timeout_max_ms`, and shrinks again on success.
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
        # When to log in again, where the broker limits how long a login is valid.
        self._login_due = float("inf")
        # TLS has no way to wait for all.
        self._wait_for_all = 0 if tls is not None else socket.MSG_WAITALL
        self._used_at = 0.0
        self._first = memoryview(bytearray(_FIRST_BYTES))
        # The two below change under the lock, since `close` comes from other threads.
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<BlockingConnection {self.host}:{self.port} connected={self.is_connected}>"

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as we know."""
        return self._socket is not None

    def connect(self) -> None:
        """Connect, if that is not done; ConnectionFailedError if it does not work."""
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
                # OpenSSL takes the kernel's timeout for a reason to try again, for ever.
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
                # Without the advice, which is about a client's options.
                raise KafkaError(error.code, error.detail) from error
            raise

    def request(self, api: Api, version: int, message: Message) -> Any:
        """Send a request and return the response.

        Raises ConnectionFailedError, ResponseTimeoutError, or a ProtocolError where the bytes make no sense.
        """
        return self.request_encoded(api, version, encode(message, version))

    def request_encoded(self, api: Api, version: int, body: bytes) -> Any:
        """Send a request that is encoded already, without its header, and return the response; raises as `request`."""
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
        """Close for good, from any thread; a request under way fails."""
        with self._lock:
            self._closed = True
        self._drop()

    def interrupt(self) -> None:
        """End the request under way, from any thread; the next one connects again.

        Between two requests, the next one may fail in place of the last.
        """
        with self._lock:
            if self._socket is not None:
                # Closing is left to the thread that uses the socket, which may be about to name its descriptor.
                with contextlib.suppress(OSError):
                    _shut_down(self._socket)

    def _drop(self) -> None:
        with self._lock:
            dropped, self._socket = self._socket, None
        if dropped is not None:
            # The shutdown wakes a thread that waits in a read; closing alone would not.
            with contextlib.suppress(OSError):
                _shut_down(dropped)
            dropped.close()

    def _is_ended(self) -> bool:
        """Whether the broker has closed the connection since the last answer: nothing can be lost with it.

        All that can be there to receive is the end, or the word of TLS that it comes.
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
            raise DecodeError(f"{self.host}:{self.port} sent {filled - end} bytes more than its answer")
        if filled == end:
            return bytes(first[SIZE_BYTES:end])
        return self._rest(connected, bytes(first[SIZE_BYTES:filled]), end - SIZE_BYTES, deadline)

    def _rest(self, connected: socket.socket, begun: bytes, size: int, deadline: float) -> bytearray:
        """Receive what is missing of a response; the caller may keep views of it."""
        buffer = bytearray(min(size, _BUFFER_BYTES))
        filled = len(begun)
        buffer[:filled] = begun
        while filled < size:
            self._check(deadline)
            if filled == len(buffer):
                buffer += bytes(min(size - filled, len(buffer)))
            with memoryview(buffer) as view:
                filled += self._received(connected.recv_into(view[filled:], 0, self._wait_for_all))
        return buffer

    def _received(self, count: int) -> int:
        if count == 0:
            raise ConnectionFailedError(f"{self.host}:{self.port} closed the connection")
        return count

    @staticmethod
    def _check(deadline: float) -> None:
        """Give up on one that sends a little now and then; the kernel's timeout is for each call."""
        if time.monotonic() >= deadline:
            raise TimeoutError


def _shut_down(connected: socket.socket) -> None:
    """End both directions. A socket with TLS would turn itself into one in the clear for that, a moment too early."""
    socket.socket.shutdown(connected, socket.SHUT_RDWR)
