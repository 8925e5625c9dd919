"""An asyncio connection to one broker: requests go out one behind the other, and answers come back in that order.

Everything here runs on one event loop. Nothing waits for its turn: any number of tasks may have requests under way,
up to IN_FLIGHT_MAX. After an error the connection is closed, and with it fails every request that waits for an answer;
whether the broker acted on those is not known. A request that is not answered in time is such an error, since answers
come in order and all behind it wait as well.
"""

from __future__ import annotations

import asyncio
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
from ottla.client.net.frame_receiver import FrameReceiver
from ottla.client.net.request_headers import RequestHeaders
from ottla.client.net.settings import ClientSettings
from ottla.protocol import errors as protocol_errors
from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.errors import DecodeError, ErrorCode, ProtocolError
from ottla.protocol.frame import Buffer, describe_first_bytes
from ottla.protocol.message import LAST_VERSION, Message, Versions
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.requests import decode_response
from ottla.version import __version__

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
IN_FLIGHT_MAX: Final = 1000
# The longest time that a broker's word is taken for.
THROTTLED_SECONDS_MAX: Final = 600.0

# A message, or how to make one for the version that is chosen.
Request: TypeAlias = Message | Callable[[int], Message]

_SOFTWARE_NAME: Final = "ottla"
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
# The first version of ApiVersions that says who we are, and the one that every broker answers.
_API_VERSIONS_NAMED: Final = 3
_API_VERSIONS_OLDEST: Final = 0


class _InFlight:
    """A request whose answer is due."""

    __slots__ = ("api", "correlation_id", "future", "timeout", "timer", "version")

    def __init__(self, api: Api, version: int, correlation_id: int, future: asyncio.Future[Any]) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.future = future
        # Seconds, not counting what the broker makes us wait.
        self.timeout = 0.0
        self.timer: asyncio.TimerHandle | None = None


class AsyncioConnection(FrameReceiver):
    """A connection that is open from `open` until `close`, an error, or a long silence."""

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        super().__init__(RESPONSE_BYTES_MAX)
        self.host = host
        self.port = port
        # What the broker speaks, by API key; empty until it has said so.
        self.versions: Mapping[int, Versions] = {}
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._error: KafkaError | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._in_flight: deque[_InFlight] = deque()
        self._headers = RequestHeaders(settings.client_id)
        self._chosen: dict[tuple[Api, int, int], int] = {}
        self._used_at = self._loop.time()
        # Beyond a quota, the broker reads nothing of ours until then.
        self._throttled_until = 0.0
        # Past this time of the loop no new request may begin: the broker wants us to authenticate again.
        self._ends_at = math.inf
        self._housekeeping: asyncio.TimerHandle | None = None
        # Resolved when the kernel takes bytes again; None while it does.
        self._congestion: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"in_flight={len(self._in_flight)}"
        return f"<AsyncioConnection {self.host}:{self.port} {state}>"

    @classmethod
    async def open(cls, host: str, port: int, settings: ClientSettings) -> AsyncioConnection:
        """Connect, learn what the broker speaks, and authenticate; KafkaError if any of it does not work."""
        from ottla.client.net.security.tls import tls_context

        loop = asyncio.get_running_loop()
        connection = cls(host, port, settings)
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, host, port, ssl=tls_context(settings))
                await connection._negotiate()
                if settings.uses_sasl:
                    await connection._log_in()
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError):
                raise KafkaConnectionError(
                    f"{host}:{port} was not connected within {settings.connect_timeout_ms} ms"
                ) from error
            if isinstance(error, OSError):
                # Closed without a word: what speaks no TLS does that.
                reason = str(error) or "it closed the connection within the TLS handshake: does it speak TLS there?"
                raise KafkaConnectionError(f"cannot connect to {host}:{port}: {reason}") from error
            raise
        connection._keep_house()
        return connection

    @property
    def is_closed(self) -> bool:
        """Whether no more requests are taken."""
        return self._error is not None

    @property
    def is_expiring(self) -> bool:
        """Whether requests should go to a new connection, while those here are still answered."""
        return self._loop.time() >= self._ends_at

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return len(self._in_flight)

    def version(self, api: Api, version_min: int = 0, version_max: int = LAST_VERSION) -> int:
        """Return the newest version that both sides know; UnsupportedVersionError where there is none."""
        key = api, version_min, version_max
        chosen = self._chosen.get(key)
        if chosen is None:
            try:
                chosen = common_version(api, self.versions, version_max)
            except protocol_errors.KafkaError as error:
                raise UnsupportedVersionError(f"{self.host}:{self.port}: {error.detail}") from error
            if chosen < version_min:
                raise UnsupportedVersionError(
                    f"{self.host}:{self.port} knows {api.label} up to version {chosen}; this needs {version_min}"
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
        """Send a request and return its response, in the newest version that both sides know.

        Raises KafkaConnectionError, KafkaTimeoutError or UnsupportedVersionError; error codes in the response are the
        caller's. A caller that is cancelled leaves the connection as it was: the answer is dropped when it comes.
        """
        await self.writable()
        version = self.version(api, version_min, version_max)
        built = message if isinstance(message, Message) else message(version)
        return await self.submit(api, version, encode_parts(built, version), timeout_ms)

    def submit(self, api: Api, version: int, parts: list[Any], timeout_ms: int | None = None) -> asyncio.Future[Any]:
        """Send a request that is encoded already, without its header; return the future of its response."""
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            raise KafkaConnectionError(f"{self.host}:{self.port} has not answered {IN_FLIGHT_MAX} requests yet")
        correlation_id = self.post(api, version, parts)
        future: asyncio.Future[Any] = self._loop.create_future()
        entry = _InFlight(api, version, correlation_id, future)
        self._in_flight.append(entry)
        entry.timeout = (self._settings.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        begins = max(self._loop.time(), self._throttled_until)
        entry.timer = self._loop.call_at(begins + entry.timeout, self._timed_out, entry)
        return future

    def post(self, api: Api, version: int, parts: list[Any]) -> int:
        """Send a request that the broker does not answer (Produce with acks=0); return its correlation id."""
        # A transport that is closing drops what it is given, or raises a TypeError (asyncio of Python 3.13.0).
        if self._error is not None or self._transport is None or self._transport.is_closing():
            raise self._error or KafkaConnectionError(f"{self.host}:{self.port} is not connected")
        self._used_at = self._loop.time()
        self._transport.writelines([self._headers.next(api, version, sum(map(len, parts))), *parts])
        return self._headers.correlation_id

    async def close(self) -> None:
        """Close; requests that wait for their answers fail."""
        self.abort()
        if self._transport is not None:
            await self._closed

    def abort(self, error: KafkaError | None = None) -> None:
        """Close without waiting for it; `error` is what requests under way fail with."""
        if self._error is None:
            self._fail(error or KafkaConnectionError(f"the connection to {self.host}:{self.port} was closed"))

    async def writable(self) -> None:
        """Wait until the kernel takes bytes."""
        while self._congestion is not None:
            await asyncio.shield(self._congestion)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none by inheritance.
        self._transport = cast(asyncio.Transport, transport)
        if self._error is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._error is None:
            reason = f": {exc}" if exc else ""
            if not reason and not self.versions:
                reason = " and did not answer: is security_protocol that of its listener?"
            self._fail(KafkaConnectionError(f"{self.host}:{self.port} closed the connection{reason}"))
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._congestion = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._congestion is not None:
            self._congestion.set_result(None)
            self._congestion = None

    def frame_received(self, frame: Buffer) -> None:
        if not self._in_flight:
            self._fail(KafkaConnectionError(f"{self.host}:{self.port} answers what was not asked"))
            return
        entry = self._in_flight.popleft()
        if entry.timer is not None:
            entry.timer.cancel()
        try:
            if len(frame) < _CORRELATION_ID.size or _CORRELATION_ID.unpack_from(frame)[0] != entry.correlation_id:
                raise DecodeError(f"no answer to request {entry.correlation_id}")
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
        """Know that the broker takes nothing from us for a while, so that what waits for that does not time out."""
        until = self._loop.time() + seconds
        added = until - max(self._loop.time(), self._throttled_until)
        self._throttled_until = max(until, self._throttled_until)
        for entry in self._in_flight:
            if entry.timer is not None and added > 0:
                due = entry.timer.when() + added
                entry.timer.cancel()
                entry.timer = self._loop.call_at(due, self._timed_out, entry)

    def frame_refused(self, error: ProtocolError, first_bytes: Buffer) -> None:
        found = describe_first_bytes(first_bytes) if not self.versions else str(error)
        self._fail(KafkaConnectionError(f"{self.host}:{self.port} does not speak Kafka here, but {found}"))

    # What follows is ours.

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
            raise error_for(response.error_code, f"{self.host}:{self.port} does not say what it speaks")
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
        """Whether this is the answer, always of version 0, to a version of ApiVersions that the broker lacks."""
        at = _CORRELATION_ID.size
        has_code = len(frame) >= at + _ERROR_CODE.size
        return has_code and _ERROR_CODE.unpack_from(frame, at)[0] == ErrorCode.UNSUPPORTED_VERSION

    def _timed_out(self, entry: _InFlight) -> None:
        self._fail(
            KafkaTimeoutError(f"{self.host}:{self.port} did not answer {entry.api.label} within {entry.timeout:g} s")
        )

    def _fail(self, error: KafkaError) -> None:
        """Close, with `error` for all that wait; the first reason counts."""
        if self._error is not None:
            return
        self._error = error
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
        """Close when nothing was asked for long, or when the session of SASL ends; look again later otherwise."""
        now = self._loop.time()
        ends_at = min(self._used_at + self._settings.connections_max_idle_ms / 1000, self._ends_at)
        if now >= ends_at and not self._in_flight:
            self.abort()
        elif not self.is_closed:
            # Requests under way past the end are looked after once a second.
            self._housekeeping = self._loop.call_at(max(ends_at, now + 1), self._keep_house)
