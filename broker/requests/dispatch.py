"""From a frame to a response: decode, find the handler, encode. Whatever is raised on the way is answered here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import structlog

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.requests.error_answers import error_answer
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import Answer, Handler, Refusal, Request, RequestFailedError
from ottla.broker.requests.services import Services
from ottla.broker.requests.throttling import count_sending, throttled
from ottla.broker.security.rarely import Rarely
from ottla.broker.security.sasl.authentication import Authentication, NotAuthenticatedError
from ottla.protocol.api import Api
from ottla.protocol.codec import decode_from
from ottla.protocol.errors import DecodeError, ErrorCode, KafkaError
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.requests import decode_request_header, encode_response

log = structlog.get_logger(__name__)


class Entry(NamedTuple):
    """A row of the handler table: the function, and the versions that it serves."""

    handle: Handler
    versions: Versions


HandlerTable = Mapping[Api, Entry]

# What closes the connection: its client would not understand an answer, or is not to get one.
_CLOSING: Final = (DecodeError, RequestFailedError, NotAuthenticatedError)
_LOGIN: Final = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
# Anything else is waited for.
_AT_ONCE: Final = (Message, Refusal)
_UNEXPECTED: Final = Outcome.of(ErrorCode.UNKNOWN_SERVER_ERROR)


class Exchange:
    """One request on its way to its end, with the times that the metrics want.

    It ends exactly once, whatever raises and wherever: with its answer, with an error answer of its API, or with its
    connection closed and the reason in the log. Who ends it, from whichever thread, takes `_turn` and never gives it
    back.
    """

    __slots__ = (
        "_dispatcher",
        "_turn",
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

    def __init__(self, dispatcher: Dispatcher, connection: Any, slot: Any, arrived: float) -> None:
        self._dispatcher = dispatcher
        self._turn = threading.Lock()
        self.connection = connection
        self.slot = slot
        self.arrived = arrived
        self.begun = self.handled = time.monotonic()
        self.api = Api.API_VERSIONS
        self.version = 0
        self.correlation_id = 0
        # None where it did not come to a handler.
        self.request: Request | None = None

    def respond(self, make: Callable[[], Answer]) -> None:
        """End with the answer that a function makes, or with what it raises."""
        try:
            answer = make()
        except Exception as error:
            self.fail(error)
        else:
            self.answer(answer)

    def answer(self, answer: Answer) -> None:
        """End with an answer, or let it be waited for. None: the request has no response."""
        if answer is not None and not isinstance(answer, _AT_ONCE):
            try:
                answer.then(self.respond)
            except Exception as error:
                self.fail(error)
        elif self._turn.acquire(blocking=False):
            ready = time.monotonic()
            try:
                parts = self._encoded(answer)
            except Exception as error:
                self._end_with(error)
            else:
                self._send(answer, parts, ready)

    def fail(self, error: Exception) -> None:
        """End with an error; it is in the log also where the request has ended before."""
        if self._turn.acquire(blocking=False):
            self._end_with(error)
        elif not isinstance(error, KafkaError):
            self._log_failure(error)

    # For who has the turn

    def _encoded(self, answer: Message | Refusal | None) -> list[Any] | None:
        """Return what is sent for an answer, and mute the client where it is beyond a quota."""
        response = answer.response if isinstance(answer, Refusal) else answer
        if self.request is not None and self.request.services.quotas.is_set:
            response, throttle_ms = throttled(self.request, response, self.handled - self.begun)
            if throttle_ms:
                self.connection.mute(throttle_ms / 1000)
        return None if response is None else encode_response(self.api, self.version, self.correlation_id, response)

    def _send(self, answer: Message | Refusal | None, parts: list[Any] | None, ready: float) -> None:
        """Hand an answer to the connection, which is closed where that fails: nobody can tell what has left."""
        try:
            if isinstance(answer, Refusal):
                self.connection.refuse(self.slot, parts, self._dispatcher.refusal_seconds, answer.reason)
            else:
                self.connection.respond(self.slot, parts)
            sending = time.monotonic() - ready
            self._dispatcher.metrics.observe(
                self.api, self.begun - self.arrived, self.handled - self.begun, ready - self.handled, sending
            )
            if self.request is not None and self.request.services.quotas.is_set:
                count_sending(self.request, sending)
        except Exception as error:
            self._log_failure(error)
            self.connection.fail(str(error))

    def _end_with(self, error: Exception) -> None:
        """Send an error answer, or close the connection."""
        if isinstance(error, _CLOSING):
            self._close(error, type(error).__name__)
            return
        outcome = _UNEXPECTED
        if isinstance(error, KafkaError):
            outcome = Outcome.refused(error)
        else:
            self._log_failure(error)
        ready = time.monotonic()
        try:
            answer = self._error_answer(outcome)
            parts = None if answer is None else self._encoded(answer)
        except Exception as failure:
            self._log_failure(failure)
            answer = parts = None
        if answer is None:
            self._close(error, outcome.code.name)
        else:
            self._send(answer, parts, ready)

    def _error_answer(self, outcome: Outcome) -> Message | Refusal | None:
        if self.request is None:
            return None
        message = outcome.message or ""
        response = error_answer(self.api, self.version, self.request.body, outcome.code, message)
        # Nobody stays who failed to say who it is, for whatever reason.
        return Refusal(response, message) if response is not None and self.api in _LOGIN else response

    def _close(self, error: Exception, kind: str) -> None:
        connection, reason = self.connection, str(error)
        if self._dispatcher.may_log(connection, kind):
            log.warning("request_refused", peer=connection.peer, listener=connection.listener, error=reason)
        connection.fail(reason)

    def _log_failure(self, error: Exception) -> None:
        log.error("request_failed", api=self.api.label, version=self.version, peer=self.connection.peer, exc_info=error)


class Dispatcher:
    """Handles the frames of all connections, on the workers."""

    def __init__(self, handlers: HandlerTable, services: Services, metrics: RequestMetrics) -> None:
        self.metrics = metrics
        self._handlers = handlers
        self._services = services
        # Whose mistakes before they are authenticated have a line in the log.
        self._strangers = Rarely()

    def __call__(self, connection: Any, frame: Any, slot: Any, arrived: float) -> None:
        """Handle one frame of a connection and have its slot filled, now or later."""
        exchange = Exchange(self, connection, slot, arrived)
        authentication = connection.session.authentication
        try:
            if authentication is not None and authentication.expects_raw_token:
                self._take_raw_token(exchange, frame.body, authentication)
                return
            answer = self._handle(exchange, frame.body)
        except Exception as error:
            exchange.handled = time.monotonic()
            exchange.fail(error)
            return
        finally:
            connection.release(frame)
        exchange.handled = time.monotonic()
        exchange.answer(answer)

    @property
    def refusal_seconds(self) -> float:
        """How long a client waits that failed to say who it is."""
        return self._services.config.connection_failed_authentication_delay_ms / 1000

    def may_log(self, connection: Any, kind: str) -> bool:
        """Whether a mistake of a client gets a line: strangers could fill the log."""
        where = f"{connection.peer} {connection.listener} {kind}"
        return not connection.session.is_stranger or self._strangers.allows(where)

    def _handle(self, exchange: Exchange, frame: memoryview | bytes) -> Answer:
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

    def _take_raw_token(self, exchange: Exchange, token: memoryview | bytes, authentication: Authentication) -> None:
        """Answer a token that came as it is, without a header, with one of the same kind; none where it is refused."""
        step = authentication.step(bytes(token))
        if step.error is ErrorCode.NONE:
            exchange.connection.respond(exchange.slot, [step.token])
        else:
            exchange.connection.refuse(exchange.slot, None, self.refusal_seconds, step.message or step.error.name)

    def _refuse_version(self, exchange: Exchange, entry: Entry | None) -> Message:
        """ApiVersions is answered in version 0, so that the client learns what we have; others close the connection."""
        api = exchange.api
        if api is Api.API_VERSIONS and entry is not None:
            exchange.version = 0
            known = ApiVersion(api_key=api, min_version=entry.versions.first, max_version=entry.versions.last)
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
        served = f"versions {entry.versions}" if entry is not None else "nothing of it"
        raise DecodeError(f"{api.label} version {exchange.version} is not served here, only {served}")
