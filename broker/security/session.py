"""Who is at the other end of a connection, as far as that was proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.security.sasl.authentication import Authentication

ANONYMOUS: Final = "User:ANONYMOUS"
_MAPPED: Final = "::ffff:"


def plain_address(address: str) -> str:
    """Return an address as ACLs and limits write it: an IPv4 client of an IPv6 socket has its IPv4 address."""
    return address.removeprefix(_MAPPED) if "." in address else address


@dataclass(slots=True, eq=False)
class Session:
    """One for each connection; the principal changes when the client authenticates."""

    # Name of the listener that it came in on: answers name other brokers by the same listener.
    listener: str
    client_host: str
    principal: str = ANONYMOUS
    # Where the listener has SASL: how far that has come.
    authentication: Authentication | None = None

    @property
    def is_stranger(self) -> bool:
        """Whether the client has not yet said who it is, and must."""
        return self.authentication is not None and not self.authentication.is_done
