"""Errors that users of the client see. All are KafkaErrors; `retriable` says whether a retry may help.

In a transaction, `abortable` says that it has to be aborted, and `fatal` that the producer has to be replaced.

`error_classes.py` has a class for each error code, under Kafka's name. The errors of the client itself are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.errors.error_classes import *  # noqa: F403 - one class for each code
from ottla.client.errors.error_classes import OffsetOutOfRangeError
from ottla.client.errors.kafka_error import CLASS_BY_CODE, KafkaError, LocalError
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.types import OffsetAndMetadata

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
    "SerializationError",
    "TransactionAbortedError",
    "error_for",
    *(error_class.__name__ for error_class in CLASS_BY_CODE.values()),
]


class KafkaConnectionError(LocalError):
    """There is no connection, or it broke; the broker may or may not have handled the request."""

    wire_code = ErrorCode.NETWORK_EXCEPTION


class NoBrokersAvailable(KafkaConnectionError):  # noqa: N818 - the name that other clients have
    """No broker of the cluster could be reached."""

    advice = "Check bootstrap_servers, and that the brokers are up and reachable from this host; `ottla doctor` helps."


class KafkaTimeoutError(LocalError):
    """The call did not finish in time; a broker may still handle it."""

    wire_code = ErrorCode.REQUEST_TIMED_OUT


class KafkaConfigurationError(LocalError):
    """A setting is unknown, or its value is not allowed."""

    wire_code = ErrorCode.INVALID_CONFIG


class IllegalStateError(LocalError):
    """The call is not allowed in the current state."""


class ProducerClosed(IllegalStateError):  # noqa: N818 - the name that other clients have
    """The producer is closed, or was never started."""

    advice = "Use `async with Producer(...)`, or call start() first and stop() at the end."


class ConsumerStoppedError(IllegalStateError):
    """The consumer is closed, or was never started."""

    advice = "Use `async with Consumer(...)`, or call start() first and stop() at the end."


class CommitFailedError(LocalError):
    """The group gave the partitions to another member before their offsets were committed."""

    wire_code = ErrorCode.ILLEGAL_GENERATION
    advice = (
        "Records may be processed twice. Process fewer at a time (max_poll_records), or allow more time for them "
        "(max_poll_interval_ms)."
    )


class TransactionAbortedError(LocalError):
    """The record is not written, because its transaction was aborted first."""


class SerializationError(LocalError):
    """A key or value does not fit its schema, or the schema cannot be had."""


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are no longer in the log, because the new leader does not have them."""

    advice = "Seek to `diverging`, or set auto_offset_reset."

    def __init__(self, detail: str = "", diverging: OffsetAndMetadata | None = None) -> None:
        """`diverging` is the offset where the log and the records read differ; None if the leader does not know it."""
        super().__init__(detail)
        self.diverging = diverging
        self.args = (detail, diverging)


def error_for(code: int, detail: str = "") -> KafkaError:
    """Return the error for a code from the wire, including codes that are unknown or not meant for clients."""
    known = ErrorCode.of(code)
    if known != code:
        return KafkaError(f"{detail} (unknown error code {code})".lstrip())
    error_class = CLASS_BY_CODE.get(known)
    if error_class is None:
        name = "".join(word.capitalize() for word in known.name.split("_")).removesuffix("Error") + "Error"
        error_class = CLASS_BY_CODE[known] = type(name, (KafkaError,), {"wire_code": known})
    return error_class(detail)


def raise_for(code: int, detail: str = "") -> None:
    """Raise the error for a code from the wire, unless the code means no error."""
    if code:
        raise error_for(code, detail)
