"""Who is answered on the HTTP port.

Without a token and users, only clients on this machine are answered. If the port is bound to another address, every
client gets an error that says so, unless `ottla.http.open` is set. With a token or users, every client must send one of
them, even from this machine.

The port is read-only, so a web page cannot do harm by making a browser call it. But a page could read from it if it
makes its own host name resolve to 127.0.0.1. Therefore clients on this machine must use an IP address or localhost.
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
    """What a client must send: a bearer token, or a user's name and password. If the port is open, nothing."""

    tokens: tuple[bytes, ...] = field(default=(), repr=False)
    # Each is `name:password`.
    users: tuple[bytes, ...] = field(default=(), repr=False)
    is_open: bool = True
    # Whether the host name in requests must be an IP address or localhost.
    is_local: bool = False

    @classmethod
    def of(cls, config: BrokerConfig, host: str) -> HttpAccess:
        """Return the access rules for a port on `host` from the broker's options."""
        token, users = config.ottla_http_token, config.ottla_http_users
        tokens = (token.value.encode(),) if token is not None and token.value else ()
        pairs = tuple(pair.strip().encode() for pair in users.value.split(",") if pair.strip()) if users else ()
        if tokens or pairs:
            return cls(tokens, pairs, is_open=False)
        is_local = is_loopback(host)
        return cls(is_open=is_local or config.ottla_http_open, is_local=is_local)

    def admits(self, authorization: str | None) -> bool:
        """Whether a client with this header is answered. Compares all secrets, each in constant time."""
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
        """Whether the Host header is safe: no other site can make its own name resolve to this port."""
        if not self.is_local or host is None:
            return True
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        return name.lower() == _LOCALHOST or _address(name) is not None


def is_loopback(host: str) -> bool:
    """Whether a port that is bound to this host can be reached only from this machine."""
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
