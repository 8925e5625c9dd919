"""How handlers tell the audit stream what they have changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.requests.request import AnyRequest
from ottla.broker.security.audit.audit import AuditSubject

_NOTHING: Mapping[str, Any] = {}


def note_change(request: AnyRequest, event: str, resource: str, change: Mapping[str, Any] = _NOTHING) -> None:
    """Note a change that has taken effect. `change` is JSON, without secrets; a pair of values is old and new."""
    subject = AuditSubject(request.session, request.client_id)
    request.services.security.audit.changed(event, subject, request.api.label, resource, change)
