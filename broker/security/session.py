"""Who is at the other end of a connection, as far as that was proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.security.authentication import Authentication

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True, eq=False)
class Session:
    """One for each connection; the principal changes when the client authenticates."""

    # Name of the listener that it came in on: answers name other brokers by the same listener.
    listener: str
    client_host: str
    principal: str = ANONYMOUS
    # Where the listener has SASL: how far that has come.
    authentication: Authentication | None = None
