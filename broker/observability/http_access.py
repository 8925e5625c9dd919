"""Who is answered on the HTTP port.

Without a token and users, those on this machine are answered, and nobody else: a port that is bound elsewhere says so
to all who ask, unless `ottla.http.open` is set. With a token or users, everybody shows one of them, also from here.

Nothing on this port changes anything, so a page in somebody's browser can do no harm by having it ask. It could read,
where it makes its own name stand for 127.0.0.1: so those on this machine call the port by an address, or localhost.
"""

from __future__ import annotations

import binascii
import hmac
import ipaddress
from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig

_LOCALHOST: Final = "localhost"


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """What lets somebody in: a token as bearer, a user by name and password; or nothing is asked for."""

    tokens: tuple[bytes, ...] = field(default=(), repr=False)
    # Each is name, colon, password.
    users: tuple[bytes, ...] = field(default=(), repr=False)
    is_open: bool = True
    # Whether the port must be called by an address, or localhost.
    is_local: bool = False

    @classmethod
    def of(cls, config: BrokerConfig, host: str) -> HttpAccess:
        """Work out what the options of a broker mean for a port on `host`."""
        token, users = config.ottla_http_token, config.ottla_http_users
        tokens = (token.value.encode(),) if token is not None and token.value else ()
        pairs = tuple(pair.strip().encode() for pair in users.value.split(",") if pair.strip()) if users else ()
        if tokens or pairs:
            return cls(tokens, pairs, is_open=False)
        is_local = is_loopback(host)
        return cls(is_open=is_local or config.ottla_http_open, is_local=is_local)

    def admits(self, authorization: str | None) -> bool:
        """Whether somebody who shows this is answered. All secrets are compared, each in the same time."""
        if self.is_open:
            return True
        scheme, _, shown = (authorization or "").strip().partition(" ")
        if scheme.lower() == "bearer":
            return _is_among(shown.strip().encode(), self.tokens)
        if scheme.lower() == "basic":
            try:
                return _is_among(b64decode(shown.strip(), validate=True), self.users)
            except (binascii.Error, ValueError):
                return False
        return False

    def is_called_right(self, host: str | None) -> bool:
        """Whether the name that the port was called by is one that nobody else can make up."""
        if not self.is_local or host is None:
            return True
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        return name.lower() == _LOCALHOST or _address(name) is not None


def is_loopback(host: str) -> bool:
    """Whether a port that is bound to a host is reached from this machine alone."""
    address = _address(host)
    return host.lower() == _LOCALHOST or (address is not None and address.is_loopback)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_among(shown: bytes, secrets: tuple[bytes, ...]) -> bool:
    found = False
    for secret in secrets:
        found |= hmac.compare_digest(shown, secret)
    return found
