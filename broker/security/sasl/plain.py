"""PLAIN (RFC 4616): `[authorization id] NUL user NUL password`, checked against the users of the configuration."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from ottla.broker.security.sasl.sasl_exchange import (
    AuthenticationFailedError,
    Proof,
    SaslExchange,
    check_authorization_id,
    text_of,
)

_INVALID = "Authentication failed: Invalid username or password"


def plain(users: Mapping[str, str]) -> SaslExchange:
    """Check the only token."""
    parts = text_of((yield b"")).split("\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise AuthenticationFailedError("Authentication failed: the token is not: user and password between NULs")
    authorization_id, user, password = parts
    # An unknown user takes as long as a known one. Digests are compared, because comparing strings ends early if their
    # lengths differ.
    expected = users.get(user)
    is_right = hmac.compare_digest(_digest(password), _digest(expected or ""))
    if expected is None or not is_right:
        raise AuthenticationFailedError(_INVALID)
    check_authorization_id(authorization_id, user)
    return Proof(user)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
