"""From a frame to a response: decode, find the handler, encode. The only place that turns errors into answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import structlog

from ottla.broker.handlers.request import Delayed, Handler, Refusal, Request, RequestFailedError
from ottla.broker.handlers.throttling import count_sending, throttled
from ottla.broker.observability import RequestMetrics
from ottla.broker.security.authentication import Authentication, NotAuthenticatedError
from ottla.broker.security.rarely import Rarely
from ottla.broker.services import Services
from ottla.protocol.api import Api
from ottla.protocol.codec import decode_from
from ottla.protocol.errors import DecodeError, ErrorCode
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.requests import decode_request_header, encode_response

log = structlog.get_logger(__name__)


class Entry(NamedTuple):
    """A row of the handler table: the function, and the versions that it serves."""

    handle: Handler
    versions: Versions


HandlerTable = Mapping[Api, Entry]


class Exchange:
    """One request on its way to its response, with the times that the metrics want."""

    __slots__ = (
        "_metrics",
        "api",
        "arrived",
        "begun",
        "connection",
        "correlation_id",
        "handled",
        "request",
        "slot",
        "version",
    )

    def __init__(self, connection: Any, slot: Any, arrived: float, metrics: RequestMetrics) -> None:
        self.connection = connection
        self.slot = slot
        self.arrived = arrived
        self.begun = self.handled = time.monotonic()
        self.api = Api.API_VERSIONS
        self.version = 0
        self.correlation_id = 0
        # None where it did not come to a handler.
        self.request: Request | None = None
        self._metrics = metrics

    def answer(self, response: Message | None) -> None:
        """Send the response, or note that there is none."""
        ready = time.monotonic()
        limited = self.request if self.request is not None and self.request.services.quotas.is_set else None
        if limited is not None:
            response, throttle_ms = throttled(limited, response, self.handled - self.begun)
            if throttle_ms:
                self.connection.mute(throttle_ms / 1000)
        parts = None if response is None else encode_response(self.api, self.version, self.correlation_id, response)
        self.connection.respond(self.slot, parts)
        sending = time.monotonic() - ready
        self._metrics.observe(
            self.api, self.begun - self.arrived, self.handled - self.begun, ready - self.handled, sending
        )
        if limited is not None:
            count_sending(limited, sending)


class Dispatcher:
    """Handles the frames of all connections, on the workers."""

    def __init__(self, handlers: HandlerTable, services: Services, metrics: RequestMetrics) -> None:
        self._handlers = handlers
        self._services = services
        self._metrics = metrics
        # Whose mistakes before they are authenticated have a line in the log.
        self._strangers = Rarely()

    def __call__(self, connection: Any, frame: Any, slot: Any, arrived: float) -> None:
        """Handle one frame of a connection and have its slot filled, now or later."""
        exchange = Exchange(connection, slot, arrived, self._metrics)
        authentication = connection.session.authentication
        try:
            if authentication is not None and authentication.expects_raw_token:
                self._take_raw_token(exchange, frame.body, authentication)
                return
            answer = self._handle(exchange, frame.body)
        except (DecodeError, RequestFailedError, NotAuthenticatedError) as error:
            kind = f"{connection.peer} {connection.listener} {type(error).__name__}"
            if not connection.session.is_stranger or self._strangers.allows(kind):
                log.warning("request_refused", peer=connection.peer, listener=connection.listener, error=str(error))
            connection.fail(str(error))
            return
        finally:
            connection.release(frame)
        exchange.handled = time.monotonic()
        if answer is None or isinstance(answer, Message):
            exchange.answer(answer)
        elif isinstance(answer, Refusal):
            parts = encode_response(exchange.api, exchange.version, exchange.correlation_id, answer.response)
            connection.refuse(slot, parts, self._refusal_seconds, answer.reason)
        else:
            answer.then(exchange.answer)

    def _handle(self, exchange: Exchange, frame: memoryview | bytes) -> Message | Delayed | None:
        api, header, position = decode_request_header(frame)
        version = header.request_api_version
        exchange.api, exchange.version, exchange.correlation_id = api, version, header.correlation_id
        authentication = exchange.connection.session.authentication
        if authentication is not None:
            authentication.check(api)
        entry = self._handlers.get(api)
        if entry is None or version not in entry.versions:
            return self._refuse_version(exchange, entry)
        body, _ = decode_from(api.request, version, frame, position)
        session, client_id = exchange.connection.session, header.client_id or ""
        request = exchange.request = Request(api, version, body, client_id, session, self._services, len(frame))
        return entry.handle(request)

    @property
    def _refusal_seconds(self) -> float:
        return self._services.config.connection_failed_authentication_delay_ms / 1000

    def _take_raw_token(self, exchange: Exchange, token: memoryview | bytes, authentication: Authentication) -> None:
        """Answer a token that came as it is, without a header, with one of the same kind; none where it is refused."""
        step = authentication.step(bytes(token))
        if step.error is ErrorCode.NONE:
            exchange.connection.respond(exchange.slot, [step.token])
        else:
            exchange.connection.refuse(exchange.slot, None, self._refusal_seconds, step.message or step.error.name)

    def _refuse_version(self, exchange: Exchange, entry: Entry | None) -> Message:
        """ApiVersions is answered in version 0, so that the client learns what we have; others close the connection."""
        api = exchange.api
        if api is Api.API_VERSIONS and entry is not None:
            exchange.version = 0
            known = ApiVersion(api_key=api, min_version=entry.versions.first, max_version=entry.versions.last)
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
        served = f"versions {entry.versions}" if entry is not None else "nothing of it"
        raise DecodeError(f"{api.label} version {exchange.version} is not served here, only {served}")
