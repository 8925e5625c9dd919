"""Errors that users of the client see. All are KafkaErrors; `retriable` says whether trying again may help.

Each error code has a class under Kafka's name (`error_classes.py`); here are those that arise in the client itself.
"""

from __future__ import annotations

from ottla.client.errors.error_classes import *  # noqa: F403 - one class for each code
from ottla.client.errors.error_classes import OffsetOutOfRangeError
from ottla.client.errors.kafka_error import CLASS_BY_CODE, KafkaError, LocalError
from ottla.client.types import OffsetAndMetadata
from ottla.protocol.errors import ErrorCode

__all__ = [  # noqa: PLE0604 - the names of the classes are strings too
    "CommitFailedError",
    "ConsumerStoppedError",
    "IllegalStateError",
    "KafkaConfigurationError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaTimeoutError",
    "LocalError",
    "LogTruncationError",
    "NoBrokersAvailable",
    "ProducerClosed",
    "error_for",
    *(error_class.__name__ for error_class in CLASS_BY_CODE.values()),
]


class KafkaConnectionError(LocalError):
    """There is no connection, or it broke; whether the broker acted on the request is not known."""

    wire_code = ErrorCode.NETWORK_EXCEPTION


class NoBrokersAvailable(KafkaConnectionError):  # noqa: N818 - the name that other clients have
    """No broker of the cluster could be reached."""

    advice = "Check bootstrap_servers, that the brokers run, and that this host can reach them; `ottla doctor` helps."


class KafkaTimeoutError(LocalError):
    """It was not done in time; a broker may still act on it."""

    wire_code = ErrorCode.REQUEST_TIMED_OUT


class KafkaConfigurationError(LocalError):
    """A setting is unknown, or its value is not allowed."""

    wire_code = ErrorCode.INVALID_CONFIG


class IllegalStateError(LocalError):
    """The call does not fit what was called before."""


class ProducerClosed(IllegalStateError):  # noqa: N818 - the name that other clients have
    """The producer is closed, or was never started."""

    advice = "Use `async with Producer(...)`, or call start() before and stop() after."


class ConsumerStoppedError(IllegalStateError):
    """The consumer is closed, or was never started."""

    advice = "Use `async with Consumer(...)`, or call start() before and stop() after."


class CommitFailedError(LocalError):
    """The group gave the partitions to somebody else before their offsets were committed."""

    wire_code = ErrorCode.ILLEGAL_GENERATION
    advice = (
        "Records may be handled twice. Handle fewer at a time (max_poll_records), or allow more time for them "
        "(max_poll_interval_ms)."
    )


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are not in the log any more: a leader was elected that did not have them."""

    advice = "Seek to `diverging`, or have auto_offset_reset do it."

    def __init__(self, detail: str = "", diverging: OffsetAndMetadata | None = None) -> None:
        """`diverging` is where the log and what was read part, if the leader knows."""
        super().__init__(detail)
        self.diverging = diverging
        self.args = (detail, diverging)


def error_for(code: int, detail: str = "") -> KafkaError:
    """Return the error of a code from the wire; also for codes that no client should meet, and those of the future."""
    known = ErrorCode.of(code)
    if known != code:
        return KafkaError(f"{detail} (error code {code} is not known here)".lstrip())
    error_class = CLASS_BY_CODE.get(known)
    if error_class is None:
        name = "".join(word.capitalize() for word in known.name.split("_")).removesuffix("Error") + "Error"
        error_class = CLASS_BY_CODE[known] = type(name, (KafkaError,), {"wire_code": known})
    return error_class(detail)


def raise_for(code: int, detail: str = "") -> None:
    """Raise the error of a code from the wire, unless it is that of no error."""
    if code:
        raise error_for(code, detail)
