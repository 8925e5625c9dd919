"""The result of one item of a request, for responses with a code, or a code and a text, for each item."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import structlog

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)


class Outcome(NamedTuple):
    """An error code and its message; the message is None after success."""

    code: ErrorCode
    message: str | None

    @classmethod
    def of(cls, code: ErrorCode, detail: str = "") -> Outcome:
        """Return an outcome with the description of a code, followed by the details of this case."""
        return cls(code, f"{code.description} {detail}".rstrip())

    @classmethod
    def refused(cls, error: KafkaError) -> Outcome:
        """Return the outcome for an error."""
        return cls.of(error.code, error.detail)


DONE = Outcome(ErrorCode.NONE, None)


class PartitionAttempts:
    """What one request of the controller does to partitions, one by one. An error of one does not affect the others.

    An unexpected exception is a bug, so it is logged: once for each request, since a request may name thousands of
    partitions.
    """

    __slots__ = ("_event", "_is_logged")

    def __init__(self, event: str) -> None:
        """`event` is the name of the log event."""
        self._event = event
        self._is_logged = False

    def attempt(self, partition: TopicPartition, action: Callable[[], object]) -> ErrorCode:
        """Call `action` for a partition; return the resulting code."""
        try:
            action()
        except KafkaError as error:
            return error.code
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        except Exception:
            if not self._is_logged:
                self._is_logged = True
                log.exception(self._event, partition=str(partition))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE
