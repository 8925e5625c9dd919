"""The audit stream: who was refused, who logged in, and who changed what. It is the only place that writes of these.

Every event has the same fields; `ottla.audit` says where they go:

    time         when it happened, in UTC
    event        what happened: access_denied, authentication_failed, login, topic_created, ...
    principal    the client, as far as it is known
    address      where it comes from
    listener     where it came in
    client_id    what it calls itself
    operation    the API, the right that it lacks, or Authenticate
    resource     what it is about, such as Topic:orders
    change       what is different now, for changes; passwords, keys and HMACs never
    mechanism    how it logged in, or tried to
    reason       why that failed
    more         how many events of this client were left out before

Clients cause refusals and logins as often as they like, so those are limited for each principal (`AuditLimits`).
Changes need rights, and none is left out here. Names come from clients: they are cut, and made printable.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import structlog

from ottla.broker.security.audit.audit_limits import AuditLimits
from ottla.broker.security.session import ANONYMOUS, Session
from ottla.protocol.acls import AclOperation, ResourceType

log = structlog.get_logger(__name__)

_TEXT_MAX: Final = 256
_LOGIN: Final = "Authenticate"
# Values in `change`, such as the options of a topic, may be long; lists are cut to this number of entries.
_ENTRIES_MAX: Final = 100
_WARNINGS: Final = frozenset({"authentication_failed"})

Fields = Mapping[str, Any]
# Takes an event. It must neither block nor raise.
Sink = Callable[[Fields], None]


class AuditSubject(NamedTuple):
    """Who caused an event."""

    session: Session
    client_id: str = ""


def to_log(fields: Fields) -> None:
    """Write an event to the log."""
    write = log.warning if fields["event"] in _WARNINGS else log.info
    write(**{name: value for name, value in fields.items() if name != "time"})


def to_nowhere(_fields: Fields) -> None:
    """Drop an event."""


class Audit:
    """Makes events and hands them to a sink. Thread-safe."""

    def __init__(
        self,
        sink: Sink = to_log,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        # The broker connects the topic after the parts that write it exist.
        self.sink = sink
        # Gets every change as well, whatever the sink is: the timeline of the console.
        self.on_change: Sink = to_nowhere
        self._wall = wall
        self._limits = AuditLimits(monotonic)

    def denied(
        self,
        subject: AuditSubject,
        api: str,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> None:
        """Note that a client was refused some resources for want of a right.

        A request may name thousands. What is over the limit is only counted.
        """
        who = _limited_as(subject.session)
        room = self._limits.room(who)
        for name in itertools.islice(names, room):
            resource = f"{resource_type.word}:{printable(name)}"
            self._note_limited(
                "access_denied", subject, operation.word, {"resource": resource, **({"api": api} if api else {})}
            )
        if len(names) > room:
            self._limits.leave_out(who, len(names) - room)

    def login(self, subject: AuditSubject, mechanism: str, *, by_token: bool = False) -> None:
        """Note that a client has authenticated."""
        self._note_limited(
            "login", subject, _LOGIN, {"mechanism": mechanism, **({"by_token": True} if by_token else {})}
        )

    def login_failed(self, subject: AuditSubject, mechanism: str, reason: str) -> None:
        """Note that a client has failed to authenticate; `reason` has no secret.

        The name that it gave is not noted: people type their password there.
        """
        fields = {"mechanism": mechanism, "reason": printable(reason)}
        self._note_limited("authentication_failed", subject, _LOGIN, fields)

    def changed(self, event: str, subject: AuditSubject, operation: str, resource: str, change: Fields) -> None:
        """Note a change that has taken effect."""
        fields = self._fields(event, subject, operation, {"resource": printable(resource), "change": _bounded(change)})
        self.on_change(fields)
        self.sink(fields)

    def _note_limited(self, event: str, subject: AuditSubject, operation: str, more: Fields) -> None:
        session = subject.session
        kind = (event, session.client_host, operation, *more.values())
        left_out = self._limits.admit(_limited_as(session), kind)
        if left_out is not None:
            self.sink(self._fields(event, subject, operation, {**more, "more": left_out} if left_out else more))

    def _fields(self, event: str, subject: AuditSubject, operation: str, more: Fields) -> Fields:
        session = subject.session
        return {
            "time": datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds"),
            "event": event,
            "principal": printable(session.principal),
            "address": session.client_host,
            "listener": session.listener,
            "client_id": printable(subject.client_id),
            "operation": operation,
            **more,
        }


def _limited_as(session: Session) -> str:
    """Return the name under which a client's events are counted.

    Clients that are not authenticated share a principal, so they are told apart by their address.
    """
    who = session.principal[:_TEXT_MAX]
    return f"{ANONYMOUS} {session.client_host}" if who == ANONYMOUS else who


def printable(text: str) -> str:
    """Return a text that is safe in a log line: short, and without control characters."""
    cut = text[:_TEXT_MAX]
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")


def _bounded(value: Any) -> Any:
    """Return a value of JSON with printable texts and few entries."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        rows = list(value.items())[:_ENTRIES_MAX]
        return {printable(str(name)): _bounded(each) for name, each in rows}
    if isinstance(value, list | tuple):
        return [_bounded(each) for each in value[:_ENTRIES_MAX]]
    return value
