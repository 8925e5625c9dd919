"""An asyncio connection to one broker. Requests are pipelined, and responses arrive in request order.

Everything here runs on one event loop. Any number of tasks may have requests in flight, up to IN_FLIGHT_MAX. An error
closes the connection and fails every request in flight; the broker may or may not have handled those. A request that
times out is such an error: responses come in order, so all requests behind it wait too.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from ottla.client.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
    error_for,
)
from ottla.client.net.api_versions import common_version
from ottla.client.net.client_metrics import ConnectionMetrics
from ottla.client.net.frame_receiver import FrameReceiver
from ottla.client.net.request_headers import RequestHeaders
from ottla.client.net.settings import ClientSettings, HostPort
from ottla.protocol import errors as protocol_errors
from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.errors import DecodeError, ErrorCode, ProtocolError
from ottla.protocol.frame import Buffer, describe_first_bytes
from ottla.protocol.message import LAST_VERSION, Message, Versions
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.requests import decode_response
from ottla.version import __version__

log = logging.getLogger(__name__)

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
IN_FLIGHT_MAX: Final = 1000
# The longest throttle time that we accept from a broker.
THROTTLED_SECONDS_MAX: Final = 600.0

# A message, or a function that makes one for the chosen version.
Request: TypeAlias = Message | Callable[[int], Message]

_SOFTWARE_NAME: Final = "ottla"
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
# The first version of ApiVersions that carries our name, and the version that every broker answers.
_API_VERSIONS_NAMED: Final = 3
_API_VERSIONS_OLDEST: Final = 0


class _InFlight:
    """A request in flight."""

    __slots__ = ("api", "correlation_id", "due", "future", "sent_at", "timeout", "timer", "version")

    def __init__(self, api: Api, version: int, correlation_id: int, future: asyncio.Future[Any]) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.future = future
        # Seconds, without throttle time.
        self.timeout = 0.0
        # Loop time.
        self.sent_at = 0.0
        # It times out at `due`, in loop time; handles of uvloop may not tell it.
        self.timer: asyncio.TimerHandle | None = None
        self.due = 0.0


class AsyncioConnection(FrameReceiver):
    """A connection that is open from `open` until `close`, an error, or the idle timeout."""

    def __init__(
        self, host: str, port: int, settings: ClientSettings, metrics: ConnectionMetrics | None = None
    ) -> None:
        super().__init__(RESPONSE_BYTES_MAX)
        self._metrics = metrics or ConnectionMetrics()
        self.host = host
        self.port = port
        # The broker's versions by API key; empty until they arrive.
        self.versions: Mapping[int, Versions] = {}
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._error: KafkaError | None = None
        # Set once it is open for requests of callers.
        self._is_ready = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._in_flight: deque[_InFlight] = deque()
        self._headers = RequestHeaders(settings.client_id)
        self._chosen: dict[tuple[Api, int, int], int] = {}
        self._used_at = self._loop.time()
        # The broker throttles us, and reads nothing from us, until this time.
        self._throttled_until = 0.0
        # No new request may start after this loop time: the SASL session ends.
        self._ends_at = math.inf
        self._housekeeping: asyncio.TimerHandle | None = None
        # Resolved when the socket can be written again; None while it can.
        self._congestion: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"in_flight={len(self._in_flight)}"
        return f"<AsyncioConnection {self.host}:{self.port} {state}>"

    @property
    def address(self) -> HostPort:
        """Where the broker listens."""
        return HostPort(self.host, self.port)

    @classmethod
    async def open(
        cls, host: str, port: int, settings: ClientSettings, metrics: ConnectionMetrics | None = None
    ) -> AsyncioConnection:
        """Connect, get the broker's API versions, and authenticate; KafkaError if a step fails."""
        from ottla.client.net.security.tls import tls_context

        loop = asyncio.get_running_loop()
        connection = cls(host, port, settings, metrics)
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, host, port, ssl=tls_context(settings))
                await connection._negotiate()
                if settings.uses_sasl:
                    await connection._log_in()
        except BaseException as error:
            # Without waiting for the end: uvloop does not report it if it is cancelled at the wrong moment.
            connection.abort()
            if isinstance(error, TimeoutError):
                raise KafkaConnectionError(
                    f"no connection to {host}:{port} within {settings.connect_timeout_ms} ms"
                ) from error
            if isinstance(error, OSError):
                # A server that does not speak TLS closes the connection like this.
                reason = str(error) or "it closed the connection during the TLS handshake: does this listener use TLS?"
                raise KafkaConnectionError(f"cannot connect to {host}:{port}: {reason}") from error
            raise
        connection._is_ready = True
        connection._keep_house()
        return connection

    @property
    def is_closed(self) -> bool:
        """Whether the connection accepts no more requests."""
        return self._error is not None

    @property
    def is_expiring(self) -> bool:
        """Whether new requests need a new connection, while this one still answers those in flight."""
        return self._loop.time() >= self._ends_at

    @property
    def in_flight(self) -> int:
        """The number of requests in flight."""
        return len(self._in_flight)

    def version(self, api: Api, version_min: int = 0, version_max: int = LAST_VERSION) -> int:
        """Return the newest version that both sides support; UnsupportedVersionError if there is none."""
        key = api, version_min, version_max
        chosen = self._chosen.get(key)
        if chosen is None:
            try:
                chosen = common_version(api, self.versions, version_max)
            except protocol_errors.KafkaError as error:
                raise UnsupportedVersionError(f"{self.host}:{self.port}: {error.detail}") from error
            if chosen < version_min:
                raise UnsupportedVersionError(
                    f"{self.host}:{self.port} supports {api.label} up to version {chosen}; this needs {version_min}"
                )
            self._chosen[key] = chosen
        return chosen

    async def request(
        self,
        api: Api,
        message: Request,
        *,
        version_min: int = 0,
        version_max: int = LAST_VERSION,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a request in the newest version that both sides support, and return its response.

        Raises KafkaConnectionError, KafkaTimeoutError or UnsupportedVersionError. The caller checks error codes in the
        response. Cancelling the caller does not affect the connection: the response is dropped when it arrives.
        """
        await self.writable()
        version = self.version(api, version_min, version_max)
        built = message if isinstance(message, Message) else message(version)
        return await self.submit(api, version, encode_parts(built, version), timeout_ms)

    def submit(self, api: Api, version: int, parts: list[Any], timeout_ms: int | None = None) -> asyncio.Future[Any]:
        """Send a request that is already encoded, without its header; return the future of its response."""
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            raise KafkaConnectionError(f"{self.host}:{self.port} has {IN_FLIGHT_MAX} unanswered requests")
        correlation_id = self.post(api, version, parts)
        future: asyncio.Future[Any] = self._loop.create_future()
        entry = _InFlight(api, version, correlation_id, future)
        self._in_flight.append(entry)
        entry.sent_at = self._used_at
        entry.timeout = (self._settings.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        entry.due = max(self._loop.time(), self._throttled_until) + entry.timeout
        entry.timer = self._loop.call_at(entry.due, self._timed_out, entry)
        return future

    def post(self, api: Api, version: int, parts: list[Any]) -> int:
        """Send a request that the broker does not answer (Produce with acks=0); return its correlation id."""
        # A closing transport drops the data, or raises a TypeError (asyncio of Python 3.13.0).
        if self._error is not None or self._transport is None or self._transport.is_closing():
            raise self._error or KafkaConnectionError(f"{self.host}:{self.port} is not connected")
        self._used_at = self._loop.time()
        size = sum(map(len, parts))
        self._metrics.sent_bytes.record(size)
        self._transport.writelines([self._headers.next(api, version, size), *parts])
        return self._headers.correlation_id

    async def close(self) -> None:
        """Close; requests in flight fail."""
        self.abort()
        if self._transport is not None:
            await self._closed

    def abort(self, error: KafkaError | None = None) -> None:
        """Close without waiting; requests in flight fail with `error`."""
        # It is not lost: we close it.
        self._is_ready = False
        self._fail(error or KafkaConnectionError(f"the connection to {self.host}:{self.port} was closed"))

    async def writable(self) -> None:
        """Wait until the socket can be written."""
        while self._congestion is not None:
            await asyncio.shield(self._congestion)

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._metrics.connections_opened.record()
        if self._error is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._error is None:
            reason = f": {exc}" if exc else ""
            if not reason and not self.versions:
                reason = " without a response: does security_protocol match the listener?"
            self._fail(KafkaConnectionError(f"{self.host}:{self.port} closed the connection{reason}"))
        if not self._closed.done():
            self._metrics.connections_closed.record()
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._congestion = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._congestion is not None:
            self._congestion.set_result(None)
            self._congestion = None

    def frame_received(self, frame: Buffer) -> None:
        if not self._in_flight:
            self._fail(KafkaConnectionError(f"{self.host}:{self.port} sent a response without a request"))
            return
        entry = self._in_flight.popleft()
        self._metrics.received_bytes.record(len(frame))
        self._metrics.latency_ms.record((self._loop.time() - entry.sent_at) * 1000)
        if entry.timer is not None:
            entry.timer.cancel()
        try:
            if len(frame) < _CORRELATION_ID.size or _CORRELATION_ID.unpack_from(frame)[0] != entry.correlation_id:
                raise DecodeError(f"no response to request {entry.correlation_id}")
            if entry.future.done():
                return
            version = entry.version
            if entry.api is Api.API_VERSIONS and self._is_refused(frame):
                version = _API_VERSIONS_OLDEST
            response = decode_response(entry.api, version, frame)[1]
        except ProtocolError as error:
            failure = KafkaConnectionError(f"{self.host}:{self.port} sent {error}")
            if not entry.future.done():
                entry.future.set_exception(failure)
            self._fail(failure)
            return
        if getattr(response, "throttle_time_ms", 0) > 0:
            self._throttled(min(response.throttle_time_ms / 1000, THROTTLED_SECONDS_MAX))
        entry.future.set_result(response)

    def _throttled(self, seconds: float) -> None:
        """Note that the broker throttles us, so that waiting requests do not time out meanwhile."""
        self._metrics.throttle_ms.record(seconds * 1000)
        until = self._loop.time() + seconds
        added = until - max(self._loop.time(), self._throttled_until)
        self._throttled_until = max(until, self._throttled_until)
        for entry in self._in_flight:
            if entry.timer is not None and added > 0:
                entry.due += added
                entry.timer.cancel()
                entry.timer = self._loop.call_at(entry.due, self._timed_out, entry)

    def frame_refused(self, error: ProtocolError, first_bytes: Buffer) -> None:
        found = describe_first_bytes(first_bytes) if not self.versions else str(error)
        self._fail(KafkaConnectionError(f"{self.host}:{self.port} does not speak Kafka here, but {found}"))

    # Private methods.

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=__version__)
        response = None
        for version in (_API_VERSIONS_NAMED, _API_VERSIONS_OLDEST):
            parts: list[Any] = encode_parts(request, version)
            response = await self.submit(Api.API_VERSIONS, version, parts, self._settings.connect_timeout_ms)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        assert response is not None
        if response.error_code:
            raise error_for(response.error_code, f"{self.host}:{self.port} did not send its API versions")
        self.versions = {row.api_key: Versions(row.min_version, row.max_version) for row in response.api_keys}

    async def _log_in(self) -> None:
        from ottla.client.net.security.login import HANDSHAKE_VERSION_MIN, login_of, login_steps

        steps = login_steps(await login_of(self._settings))
        try:
            api, message = next(steps)
            while True:
                version_min = HANDSHAKE_VERSION_MIN if api is Api.SASL_HANDSHAKE else 0
                api, message = steps.send(await self.request(api, message, version_min=version_min))
        except StopIteration as done:
            self._ends_at = self._loop.time() + done.value

    @staticmethod
    def _is_refused(frame: Buffer) -> bool:
        """Whether this is the version 0 response to an ApiVersions version that the broker does not support."""
        at = _CORRELATION_ID.size
        has_code = len(frame) >= at + _ERROR_CODE.size
        return has_code and _ERROR_CODE.unpack_from(frame, at)[0] == ErrorCode.UNSUPPORTED_VERSION

    def _timed_out(self, entry: _InFlight) -> None:
        self._fail(
            KafkaTimeoutError(f"{self.host}:{self.port} did not answer {entry.api.label} within {entry.timeout:g} s")
        )

    def _fail(self, error: KafkaError) -> None:
        """Close, and fail all requests in flight with `error`; only the first call counts."""
        if self._error is not None:
            return
        self._error = error
        if self._is_ready:
            # Brokers close connections that nobody uses.
            level = logging.WARNING if self._in_flight else logging.INFO
            requests = len(self._in_flight)
            log.log(
                level, "lost the connection to %s:%d, %d requests in flight: %s", self.host, self.port, requests, error
            )
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._in_flight = self._in_flight, deque()
        for entry in waiting:
            if entry.timer is not None:
                entry.timer.cancel()
            if not entry.future.done():
                entry.future.set_exception(error)
        self.resume_writing()

    def _keep_house(self) -> None:
        """Close an idle connection, or one whose SASL session has ended; otherwise check again later."""
        now = self._loop.time()
        ends_at = min(self._used_at + self._settings.connections_max_idle_ms / 1000, self._ends_at)
        if now >= ends_at and not self._in_flight:
            self.abort()
        elif not self.is_closed:
            # With requests in flight after the session's end, check once a second.
            self._housekeeping = self._loop.call_at(max(ends_at, now + 1), self._keep_house)
