"""How one item of a request ended, where the response has a code, or a code and a text, for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import structlog

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)


class Outcome(NamedTuple):
    """An error code with what is said about it; no text where all went well."""

    code: ErrorCode
    message: str | None

    @classmethod
    def of(cls, code: ErrorCode, detail: str = "") -> Outcome:
        """Say what a code means, and what was wrong in this very case."""
        return cls(code, f"{code.description} {detail}".rstrip())

    @classmethod
    def refused(cls, error: KafkaError) -> Outcome:
        """Make an outcome of what was raised."""
        return cls.of(error.code, error.detail)


DONE = Outcome(ErrorCode.NONE, None)


class PartitionAttempts:
    """What one request of the controller does to partitions, one by one: none of them fails because of another.

    What fails in a way that nobody thought of is a bug, and has a line in the log: one for each request, which may name
    thousands of partitions.
    """

    __slots__ = ("_event", "_is_logged")

    def __init__(self, event: str) -> None:
        """`event` is what the line says."""
        self._event = event
        self._is_logged = False

    def attempt(self, partition: TopicPartition, action: Callable[[], object]) -> ErrorCode:
        """Do something to a partition; return how that ended."""
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
