"""One request from its frame to its response.

`Dispatcher` decodes the request and calls its handler. `Exchange` ends it exactly once, even if something raises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import structlog
from msgspec import Struct, field

from ottla.broker.common.caller_check import checking
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig
from ottla.broker.requests.error_answers import error_answer
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import (
    Answer,
    AnyRequest,
    EffectPending,
    Handler,
    Refusal,
    Request,
    RequestFailedError,
)
from ottla.broker.requests.request_limits import ENTRIES_MAX_LEAST, request_entries_max
from ottla.broker.requests.services import RequestServices
from ottla.broker.requests.throttling import count_sending, throttled
from ottla.broker.security.rarely import Rarely
from ottla.broker.security.sasl.authentication import Authentication, NotAuthenticatedError
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.codec import decode_from
from ottla.protocol.decoder import ENTRIES_UNLIMITED
from ottla.protocol.errors import DecodeError, ErrorCode, KafkaError
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.requests import decode_request_header, encode_response

log = structlog.get_logger(__name__)

# Errors that close the connection: the client would not understand a response, or must not get one.
_CLOSING: Final = (DecodeError, RequestFailedError, NotAuthenticatedError)
_LOGIN: Final = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
# Changes that people make, and whose clients wait for the response. If the client is gone before the change has begun,
# it has told its user that the outcome is unknown, and the user may have decided otherwise since. Other requests take
# effect in any case: programs write records, commit offsets and leave groups on their way out, without waiting.
_DROPPED_IF_ABANDONED: Final = frozenset(
    {
        Api.ALTER_CLIENT_QUOTAS,
        Api.ALTER_CONFIGS,
        Api.ALTER_PARTITION_REASSIGNMENTS,
        Api.ALTER_REPLICA_LOG_DIRS,
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        Api.CREATE_ACLS,
        Api.CREATE_DELEGATION_TOKEN,
        Api.CREATE_PARTITIONS,
        Api.CREATE_TOPICS,
        Api.DELETE_ACLS,
        Api.DELETE_GROUPS,
        Api.DELETE_RECORDS,
        Api.DELETE_TOPICS,
        Api.ELECT_LEADERS,
        Api.EXPIRE_DELEGATION_TOKEN,
        Api.INCREMENTAL_ALTER_CONFIGS,
        Api.OFFSET_DELETE,
        Api.RENEW_DELEGATION_TOKEN,
        Api.UNDELETE_TOPICS,
    }
)
# Answers that can be sent now; any other answer comes later.
_AT_ONCE: Final = (Message, Refusal)
_UNEXPECTED: Final = Outcome.of(ErrorCode.UNKNOWN_SERVER_ERROR)


# The client id is kept with the connection, so it must not be of any length.
_CLIENT_ID_SHOWN_MAX = 256


class Entry(NamedTuple):
    """A row of the handler table: the function, the versions that it serves, and the kind of services that it needs."""

    handle: Handler[Any]
    versions: Versions
    services: type[RequestServices]


class _Route(Struct, frozen=True, eq=False):
    """A row of the handler table with the services of this broker."""

    api: Api
    handle: Handler[Any]
    first_version: int
    last_version: int
    services: RequestServices
    # Marks the API in the session.
    bit: int
    # The class of the requests.
    message: type[Message]


HandlerTable = Mapping[Api, Entry]


class Dispatcher:
    """Handles the frames of all connections, on the workers."""

    def __init__(
        self,
        handlers: HandlerTable,
        services: Mapping[type[RequestServices], RequestServices],
        config: Callable[[], BrokerConfig],
        metrics: RequestMetrics,
    ) -> None:
        """`services` has an object for each class that the table names; `config` returns the options as they are."""
        self.metrics = metrics
        self._config = config
        self._routes = {
            api: _Route(api, entry.handle, *entry.versions, services[entry.services], 1 << api, api.request)
            for api, entry in handlers.items()
        }
        # Limits the log lines about clients that are not authenticated.
        self._strangers = Rarely()

    def dispatch(self, connection: Any, frame: Any, slot: Any, arrived: float) -> None:
        """Handle one frame of a connection. Its slot is filled now or later."""
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
        if isinstance(answer, EffectPending):
            connection.hold_back()
        exchange.answer(answer, exchange.handled)

    @property
    def refusal_seconds(self) -> float:
        """How long a client waits for the response after a failed authentication."""
        return self._config().connection_failed_authentication_delay_ms / 1000

    def may_log(self, connection: Any, kind: str) -> bool:
        """Whether to log a client's mistake. Unauthenticated clients have a limit, because they could fill the log."""
        where = f"{connection.peer} {connection.listener} {kind}"
        return not connection.session.is_stranger or self._strangers.allows(where)

    def _handle(self, exchange: Exchange, body: memoryview | bytes) -> Answer:
        connection = exchange.connection
        session, shape = connection.session, connection.produce_shape
        known = shape.decode(body)
        if known is not None:
            exchange.correlation_id, message = known
            api, version, client_id = Api.PRODUCE, shape.version, shape.client_id
        else:
            api, header, position = decode_request_header(memoryview(body))
            exchange.correlation_id = header.correlation_id
            version, client_id = header.request_api_version, header.client_id
        exchange.api = api
        exchange.version = version
        if session.authentication is not None:
            session.authentication.check(api)
        route = self._routes.get(api)
        if route is None or not route.first_version <= version <= route.last_version:
            return self._refuse_version(exchange, route)
        if known is None:
            message = self._decoded(route, version, body, position, session)
            if api is Api.PRODUCE:
                shape.learn(body, header, message)
        if not session.apis & route.bit:
            if not session.apis:
                session.client_id = (client_id or "")[:_CLIENT_ID_SHOWN_MAX]
            session.apis |= route.bit
        request = exchange.request = Request(
            api, version, message, client_id or "", session, route.services, len(body), connection
        )
        if api not in _DROPPED_IF_ABANDONED:
            return route.handle(request)
        request.check_wanted()
        with checking(request.check_wanted):
            return route.handle(request)

    def _decoded(self, route: _Route, version: int, body: memoryview | bytes, position: int, session: Session) -> Any:
        entries_max = ENTRIES_UNLIMITED
        if len(body) > ENTRIES_MAX_LEAST:
            authorizer = route.services.security.authorizer
            entries_max = request_entries_max(self._config(), authorizer, session, route.api)
        return decode_from(route.message, version, body, position, entries_max)[0]

    def _take_raw_token(self, exchange: Exchange, token: memoryview | bytes, authentication: Authentication) -> None:
        """Answer a SASL token without a request header with another one; close the connection if it is refused."""
        step = authentication.step(bytes(token))
        if step.error is ErrorCode.NONE:
            exchange.connection.respond(exchange.slot, [step.token])
        else:
            exchange.connection.refuse(exchange.slot, None, self.refusal_seconds, step.message or step.error.name)

    def _refuse_version(self, exchange: Exchange, route: _Route | None) -> Message:
        """Answer ApiVersions in version 0, so that the client learns our versions; raise DecodeError for other APIs."""
        api = exchange.api
        if api is Api.API_VERSIONS and route is not None:
            exchange.version = 0
            known = ApiVersion(api_key=api, min_version=route.first_version, max_version=route.last_version)
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
        served = "nothing of it"
        if route is not None:
            served = f"versions {Versions(route.first_version, route.last_version)}"
        raise DecodeError(f"{api.label} version {exchange.version} is not served here, only {served}")


class Exchange(Struct, eq=False):
    """One request from its frame to its response, with the times that the metrics need.

    It ends exactly once, even if something raises: with its response, with an error response of its API, or with the
    connection closed and the reason in the log. Any thread may end it. The thread that does so takes `_turn` and never
    releases it.
    """

    _dispatcher: Dispatcher
    connection: Any
    slot: Any
    arrived: float
    begun: float = field(default_factory=time.monotonic)
    handled: float = 0.0
    _turn: threading.Lock = field(default_factory=threading.Lock)
    api: Api = Api.API_VERSIONS
    version: int = 0
    correlation_id: int = 0
    # None if the request did not reach a handler.
    request: AnyRequest | None = None

    def respond(self, make: Callable[[], Answer]) -> None:
        """End with the answer that `make` returns, or with the error that it raises."""
        try:
            answer = make()
        except Exception as error:
            self.fail(error)
        else:
            self.answer(answer, time.monotonic())

    def answer(self, answer: Answer, ready: float) -> None:
        """End with an answer that is there since `ready`, or wait for it if it comes later. None is no response."""
        if answer is not None and not isinstance(answer, _AT_ONCE):
            try:
                answer.then(self.respond)
            except Exception as error:
                self.fail(error)
        elif self._turn.acquire(False):
            try:
                parts = self._encoded(answer)
            except Exception as error:
                self._end_with(error)
            else:
                self._send(answer, parts, ready)

    def fail(self, error: Exception) -> None:
        """End with an error. If the request has already ended, only log the error, unless it is a KafkaError."""
        if self._turn.acquire(blocking=False):
            self._end_with(error)
        elif not isinstance(error, KafkaError):
            self._log_failure(error)

    # Only for the thread that took `_turn`

    def _encoded(self, answer: Message | Refusal | None) -> list[Any] | None:
        """Return the encoded response, and mute the connection if the client is above a quota."""
        response = answer.response if isinstance(answer, Refusal) else answer
        if self.request is not None and self.request.services.quotas.is_set:
            response, throttle_ms = throttled(self.request, response, self.handled - self.begun)
            if throttle_ms:
                self.connection.mute(throttle_ms / 1000)
        return None if response is None else encode_response(self.api, self.version, self.correlation_id, response)

    def _send(self, answer: Message | Refusal | None, parts: list[Any] | None, ready: float) -> None:
        """Hand a response to the connection. If that fails, close it: nobody knows how much was sent."""
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
        """Send an error response, or close the connection."""
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
        # A failed authentication always ends the connection.
        return Refusal(response, message) if response is not None and self.api in _LOGIN else response

    def _close(self, error: Exception, kind: str) -> None:
        connection, reason = self.connection, str(error)
        if self._dispatcher.may_log(connection, kind):
            log.warning("request_refused", peer=connection.peer, listener=connection.listener, error=reason)
        connection.fail(reason)

    def _log_failure(self, error: Exception) -> None:
        log.error("request_failed", api=self.api.label, version=self.version, peer=self.connection.peer, exc_info=error)
