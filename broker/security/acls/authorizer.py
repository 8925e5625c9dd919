"""Whether a client may do something. Handlers ask for every request; the newest ACLs answer.

Authorizer       no authorizer is configured: everybody may do everything, and handlers need not ask
AclAuthorizer    super users may do everything; otherwise the ACLs decide, and for a resource without ACLs,
                 `allow.everyone.if.no.acl.found`
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar, Final

import structlog

from ottla.broker.common.topic_names import NAME_LENGTH_MAX
from ottla.broker.security.acls.acl import SUPPORTED
from ottla.broker.security.acls.acl_snapshot import AclSnapshot
from ottla.broker.security.audit.audit import Audit, AuditSubject, printable
from ottla.broker.security.session import Session
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType

log = structlog.get_logger(__name__)

# The memory of the answers kept for one snapshot: enough for hundreds of clients with hundreds of topics each. A client
# that asks for more, for example by trying names, only makes other answers be computed again.
CACHED_BYTES_MAX: Final = 32 * 1024 * 1024
# What an answer takes besides the name. Principals and addresses belong to the sessions.
_ENTRY_BYTES: Final = 300

_NONE: Final[frozenset[str]] = frozenset()

_Question = tuple[str, str, AclOperation, ResourceType, str]


class _Answers:
    """Answers that follow from one snapshot. Threads may add some at the same time: the count is an estimate."""

    __slots__ = ("bytes", "known", "snapshot")

    def __init__(self, snapshot: AclSnapshot) -> None:
        self.snapshot = snapshot
        self.known: dict[_Question, bool] = {}
        self.bytes = 0

    def keep(self, question: _Question, answer: bool) -> None:
        """Keep an answer, unless the name is longer than that of any topic; forget all if there are too many."""
        name = question[-1]
        if len(name) > NAME_LENGTH_MAX:
            return
        # A character takes up to four bytes.
        self.bytes += _ENTRY_BYTES + (len(name) if name.isascii() else 4 * len(name))
        if self.bytes > CACHED_BYTES_MAX:
            self.known.clear()
            self.bytes = 0
        self.known[question] = answer


class Authorizer:
    """Who may do what; this one allows everything. Any thread may ask."""

    # Constant, so that handlers can skip the questions.
    is_open: ClassVar[bool] = True

    def allows(
        self,
        session: Session,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """Return whether the client of a session may do something with a resource."""
        return True

    def allows_any(self, session: Session, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether the client may do it with at least one resource of a type."""
        return True

    def denied(
        self, session: Session, operation: AclOperation, resource_type: ResourceType, names: Iterable[str]
    ) -> frozenset[str]:
        """Return those of some resources with which the client may not do it."""
        return _NONE

    @property
    def rules(self) -> object:
        """What the answers follow from: another object once they may have changed."""
        return None

    def note_refusals(
        self,
        subject: AuditSubject,
        api: str,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> None:
        """Note that a client was refused some resources; not every question that is answered no is a refusal."""

    def operations(self, session: Session, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return what the client may do with a resource, as bits: 1 << code for each operation."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.allows(session, operation, resource_type, name)
        )


class AclAuthorizer(Authorizer):
    """Decides by the ACLs of a snapshot."""

    is_open: ClassVar[bool] = False

    def __init__(
        self,
        super_users: Iterable[str],
        *,
        allow_if_no_acl: bool,
        snapshot: AclSnapshot | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._audit = audit or Audit()
        # Answers are kept together with the ACLs that they follow from, and are replaced with them.
        self._answers = _Answers(snapshot or AclSnapshot())

    @property
    def snapshot(self) -> AclSnapshot:
        """The ACLs in force."""
        return self._answers.snapshot

    @property
    def rules(self) -> object:
        """The ACLs in force."""
        return self._answers.snapshot

    def use(self, snapshot: AclSnapshot) -> None:
        """Use other ACLs from now on."""
        self._answers = _Answers(snapshot)

    def allows(
        self,
        session: Session,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """Return whether the client of a session may do something with a resource."""
        answers = self._answers
        question = (session.principal, session.client_host, operation, resource_type, name)
        answer = answers.known.get(question)
        if answer is None:
            answer = self._decide(session, operation, resource_type, name, answers.snapshot)
            answers.keep(question, answer)
        return answer

    def allows_any(self, session: Session, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether the client may do it with at least one resource of a type."""
        if session.principal in self._super_users:
            return True
        return self.snapshot.decide_any(
            session.principal, session.client_host, operation, resource_type, default=self._allow_if_no_acl
        )

    def denied(
        self, session: Session, operation: AclOperation, resource_type: ResourceType, names: Iterable[str]
    ) -> frozenset[str]:
        """Return those of some resources with which the client may not do it; usually one lookup each."""
        known, principal, host = self._answers.known, session.principal, session.client_host
        unknown = [name for name in names if not known.get((principal, host, operation, resource_type, name))]
        if not unknown:
            return _NONE
        return frozenset(name for name in unknown if not self.allows(session, operation, resource_type, name))

    def note_refusals(
        self,
        subject: AuditSubject,
        api: str,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> None:
        """Note that a client was refused some resources."""
        self._audit.denied(subject, api, operation, resource_type, names)

    def _decide(
        self,
        session: Session,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        snapshot: AclSnapshot,
    ) -> bool:
        """Compute an answer. Allowed ones are logged here, once for each snapshot and not for each request."""
        if session.principal in self._super_users:
            answer, reason = True, "super user"
        else:
            found = snapshot.decide(session.principal, session.client_host, operation, resource_type, name)
            answer = self._allow_if_no_acl if found is None else found
            reason = "ACL" if found else "no ACL"
        if answer:
            log.debug(
                "access_allowed",
                principal=printable(session.principal),
                host=session.client_host,
                listener=session.listener,
                operation=operation.word,
                resource=f"{resource_type.word}:{printable(name)}",
                reason=reason,
            )
        return answer
