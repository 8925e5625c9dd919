"""Errors of the console, as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.client.errors import (
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from ottla.protocol.errors import ErrorCode

_STATUSES: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: 403,
    ErrorCode.POLICY_VIOLATION: 403,
    ErrorCode.SASL_AUTHENTICATION_FAILED: 401,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.REASSIGNMENT_IN_PROGRESS: 409,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.LEADER_NOT_AVAILABLE: 503,
    ErrorCode.BROKER_NOT_AVAILABLE: 503,
    ErrorCode.NOT_ENOUGH_REPLICAS: 503,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.NOT_CONTROLLER: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
    ErrorCode.UNKNOWN_SERVER_ERROR: 502,
}


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every error."""

    status: int
    title: str
    detail: str = ""
    type: str = "about:blank"
    code: str | None = None
    """Kafka's name of the error, if a broker refused the request."""
    retriable: bool = False
    advice: str | None = None
    """What to do about it."""


class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """A request that cannot be answered as asked."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        *,
        code: str | None = None,
        retriable: bool = False,
        advice: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail or title)
        self.status = status
        self.headers = dict(headers or {})
        self.details = ProblemDetails(
            status=status, title=title, detail=detail, code=code, retriable=retriable, advice=advice
        )


def problem_of(error: KafkaError) -> Problem:
    """Return the problem that a Kafka error means for the caller of a route."""
    if isinstance(error, UnsupportedVersionError):
        status = 501
    elif isinstance(error, KafkaTimeoutError):
        status = 504
    elif isinstance(error, KafkaConnectionError):
        status = 503
    elif isinstance(error, KafkaConfigurationError):
        status = 400
    else:
        status = _STATUSES.get(error.code, 400)
    return Problem(
        status,
        error.description,
        error.detail or str(error),
        code=error.message,
        retriable=error.retriable,
        advice=error.advice or None,
        headers={"Retry-After": "1"} if status == 429 else None,
    )
