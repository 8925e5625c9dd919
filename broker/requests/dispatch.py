"""The way from a frame to a handler: decode the request, find its handler, give the answer to its exchange."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import structlog

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig
from ottla.broker.requests.exchange import Exchange
from ottla.broker.requests.request import Answer, EffectPending, Handler, Request
from ottla.broker.requests.services import RequestServices
from ottla.broker.security.rarely import Rarely
from ottla.broker.security.sasl.authentication import Authentication
from ottla.protocol.api import Api
from ottla.protocol.codec import decode_from
from ottla.protocol.errors import DecodeError, ErrorCode
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.requests import decode_request_header

log = structlog.get_logger(__name__)


class Entry(NamedTuple):
    """A row of the handler table: the function, the versions that it serves, and the kind of services that it needs."""

    handle: Handler[Any]
    versions: Versions
    services: type[RequestServices]


class _Route(NamedTuple):
    """A row of the handler table with the services of this broker."""

    handle: Handler[Any]
    versions: Versions
    services: RequestServices


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
            api: _Route(entry.handle, entry.versions, services[entry.services]) for api, entry in handlers.items()
        }
        # Limits the log lines about clients that are not authenticated.
        self._strangers = Rarely()

    def __call__(self, connection: Any, frame: Any, slot: Any, arrived: float) -> None:
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
        exchange.answer(answer)

    @property
    def refusal_seconds(self) -> float:
        """How long a client waits for the response after a failed authentication."""
        return self._config().connection_failed_authentication_delay_ms / 1000

    def may_log(self, connection: Any, kind: str) -> bool:
        """Whether to log a client's mistake. Unauthenticated clients have a limit, because they could fill the log."""
        where = f"{connection.peer} {connection.listener} {kind}"
        return not connection.session.is_stranger or self._strangers.allows(where)

    def _handle(self, exchange: Exchange, frame: memoryview | bytes) -> Answer:
        api, header, position = decode_request_header(frame)
        version = header.request_api_version
        exchange.api, exchange.version, exchange.correlation_id = api, version, header.correlation_id
        authentication = exchange.connection.session.authentication
        if authentication is not None:
            authentication.check(api)
        route = self._routes.get(api)
        if route is None or version not in route.versions:
            return self._refuse_version(exchange, route)
        body, _ = decode_from(api.request, version, frame, position)
        session, client_id = exchange.connection.session, header.client_id or ""
        request = exchange.request = Request(
            api, version, body, client_id, session, route.services, len(frame), exchange.connection
        )
        return route.handle(request)

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
            known = ApiVersion(api_key=api, min_version=route.versions.first, max_version=route.versions.last)
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
        served = f"versions {route.versions}" if route is not None else "nothing of it"
        raise DecodeError(f"{api.label} version {exchange.version} is not served here, only {served}")
