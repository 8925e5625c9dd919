"""Tokens for OAUTHBEARER from an issuer's token endpoint, with the grant type "client credentials" (RFC 6749, 4.4)."""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from ottla.client.errors import KafkaConnectionError, SaslAuthenticationFailedError
from ottla.client.net.security.endpoint import EndpointError, fetch

# A token is replaced after this part of its lifetime, so that no connection starts with one that is about to expire.
_LIFETIME_SHARE: Final = 0.8
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_REFUSED: Final = frozenset({400, 401, 403})


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Where to get tokens, and as whom."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    # Certificates to trust, as a PEM file; those of the system if None.
    cafile: str | None = None


class TokenEndpoint:
    """Fetches tokens, and keeps the last one until it is about to expire. Thread-safe."""

    def __init__(self, credentials: ClientCredentials, wall: Callable[[], float] = time.time) -> None:
        self.credentials = credentials
        self._wall = wall
        self._lock = threading.Lock()
        self._token = ""
        self._use_until = float("-inf")

    def token(self) -> str:
        """Return a token that is valid for a while. Blocks while it is fetched.

        Raises SaslAuthenticationFailedError if the issuer refuses, and KafkaConnectionError if it cannot be reached.
        """
        with self._lock:
            if self._wall() >= self._use_until:
                self._token, self._use_until = self._fetched()
            return self._token

    def _fetched(self) -> tuple[str, float]:
        """Return a new token, and until when to use it."""
        credentials = self.credentials
        basic = base64.b64encode(f"{credentials.client_id}:{credentials.client_secret}".encode()).decode()
        form = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
        asked = self._wall()
        try:
            answer = fetch(
                credentials.url,
                bytes_max=_ANSWER_BYTES_MAX,
                body=urlencode(form).encode(),
                headers={"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded"},
                cafile=credentials.cafile,
            )
        except EndpointError as error:
            if error.status in _REFUSED:
                raise SaslAuthenticationFailedError(f"no token for this client: {error}") from error
            raise KafkaConnectionError(f"no token: {error}") from error
        try:
            values: Any = json.loads(answer)
            token = values["access_token"]
        except (ValueError, KeyError, TypeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise SaslAuthenticationFailedError(f"no token: {credentials.url} answered without an access_token")
        expires = _expiry(token)
        if expires is None:
            seconds = values.get("expires_in")
            expires = asked + seconds if isinstance(seconds, int | float) else asked
        return token, asked + (expires - asked) * _LIFETIME_SHARE


def _expiry(token: str) -> float | None:
    """Return when a signed token expires, in seconds since 1970; None if it does not say so."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = claims.get("exp")
    except (ValueError, AttributeError, RecursionError, binascii.Error):
        return None
    return float(expires) if isinstance(expires, int | float) else None
