"""The client of a connection, as far as it is authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from ottla.broker.security.sasl.authentication import Authentication

ANONYMOUS: Final = "User:ANONYMOUS"
_MAPPED: Final = "::ffff:"


def plain_address(address: str) -> str:
    """Return an address as in ACLs and limits: an IPv4 client of an IPv6 socket has its IPv4 address."""
    return address.removeprefix(_MAPPED) if "." in address else address


class Session(Struct, eq=False):
    """The session of one connection; the principal changes when the client authenticates."""

    # Name of the client's listener: responses name other brokers by the same listener.
    listener: str
    client_host: str
    principal: str = ANONYMOUS
    # Whether the client authenticated with a delegation token.
    by_token: bool = False
    # The state of the authentication, if the listener has SASL.
    authentication: Authentication | None = None
    # The client id of the first request, and the software that the client tells with ApiVersions.
    client_id: str = ""
    software: str = ""
    # The APIs that the client has used: the bit with the number of each is set.
    apis: int = 0

    @property
    def is_stranger(self) -> bool:
        """Whether the client still has to authenticate."""
        return self.authentication is not None and not self.authentication.is_done
