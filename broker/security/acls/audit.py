"""The log of decisions: who was refused what, without letting clients fill the disk.

The same refusal is logged once in a while, and the number of lines is limited. What is left out is counted, and the
next line has the count. Names come from clients: they are cut, and the log's renderers escape unprintable characters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from ottla.broker.security.session import Session
from ottla.protocol.acls import AclOperation, ResourceType

log = structlog.get_logger(__name__)

_SAME_SECONDS: Final = 10.0
_LINES_PER_PERIOD: Final = 100
_TEXT_MAX: Final = 256

Refusal = tuple[str, str, AclOperation, ResourceType, str]


class AuditLog:
    """Writes decisions to the log. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The refusals that were logged in this period, and how many were not.
        self._told: set[Refusal] = set()
        self._period_ends = float("-inf")
        self._untold = 0

    def denied(self, session: Session, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Log a refusal, unless it was logged a moment ago."""
        refusal = (session.principal, session.client_host, operation, resource_type, name)
        with self._lock:
            now = self._clock()
            if now >= self._period_ends:
                self._told.clear()
                self._period_ends = now + _SAME_SECONDS
            if refusal in self._told or len(self._told) >= _LINES_PER_PERIOD:
                self._untold += 1
                return
            self._told.add(refusal)
            untold, self._untold = self._untold, 0
        log.info("access_denied", **_fields(session, operation, resource_type, name), more=untold)

    def allowed(
        self, session: Session, operation: AclOperation, resource_type: ResourceType, name: str, *, reason: str
    ) -> None:
        """Log what was allowed, at DEBUG level."""
        log.debug("access_allowed", **_fields(session, operation, resource_type, name), reason=reason)


def _fields(session: Session, operation: AclOperation, resource_type: ResourceType, name: str) -> dict[str, str]:
    return {
        "principal": printable(session.principal),
        "host": session.client_host,
        "listener": session.listener,
        "operation": operation.word,
        "resource": f"{resource_type.word}:{printable(name)}",
    }


def printable(text: str) -> str:
    """Return a text that is safe in a log line: short, and without control characters."""
    cut = text[:_TEXT_MAX]
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")
