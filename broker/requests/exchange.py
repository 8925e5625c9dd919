"""One request from its frame to its response. It ends exactly once, even if something raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.requests.error_answers import error_answer
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import Answer, AnyRequest, Refusal, RequestFailedError
from ottla.broker.requests.throttling import count_sending, throttled
from ottla.broker.security.sasl.authentication import NotAuthenticatedError
from ottla.protocol.api import Api
from ottla.protocol.errors import DecodeError, ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.requests import encode_response

log = structlog.get_logger(__name__)

# Errors that close the connection: the client would not understand a response, or must not get one.
_CLOSING: Final = (DecodeError, RequestFailedError, NotAuthenticatedError)
_LOGIN: Final = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
# Answers that can be sent now; any other answer comes later.
_AT_ONCE: Final = (Message, Refusal)
_UNEXPECTED: Final = Outcome.of(ErrorCode.UNKNOWN_SERVER_ERROR)


class ExchangeOwner(Protocol):
    """What an exchange needs from the dispatcher."""

    metrics: RequestMetrics

    @property
    def refusal_seconds(self) -> float:
        """How long a client waits for the response after a failed authentication."""

    def may_log(self, connection: Any, kind: str) -> bool:
        """Whether to log a client's mistake."""


class Exchange:
    """One request from its frame to its response, with the times that the metrics need.

    It ends exactly once, even if something raises: with its response, with an error response of its API, or with the
    connection closed and the reason in the log. Any thread may end it. The thread that does so takes `_turn` and never
    releases it.
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

    def __init__(self, dispatcher: ExchangeOwner, connection: Any, slot: Any, arrived: float) -> None:
        self._dispatcher = dispatcher
        self._turn = threading.Lock()
        self.connection = connection
        self.slot = slot
        self.arrived = arrived
        self.begun = self.handled = time.monotonic()
        self.api = Api.API_VERSIONS
        self.version = 0
        self.correlation_id = 0
        # None if the request did not reach a handler.
        self.request: AnyRequest | None = None

    def respond(self, make: Callable[[], Answer]) -> None:
        """End with the answer that `make` returns, or with the error that it raises."""
        try:
            answer = make()
        except Exception as error:
            self.fail(error)
        else:
            self.answer(answer)

    def answer(self, answer: Answer) -> None:
        """End with an answer, or wait for it if it comes later. None means that the request has no response."""
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
