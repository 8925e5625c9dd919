"""OAUTHBEARER (RFC 7628) with signed tokens: JWTs, checked against a set of public keys in a local file.

    client   n,[a=authorization id],^Aauth=Bearer token^A^A          ^A is the byte 1
    broker   nothing; or an error as JSON, which the client answers with ^A before it is refused

The keys come only from a local file. A broker that fetched them from a configured address could be made to send
requests anywhere. The file is read again when it changes.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import structlog

from ottla.broker.security.sasl.sasl_exchange import (
    AuthenticationFailedError,
    Proof,
    SaslExchange,
    check_authorization_id,
    text_of,
)

log = structlog.get_logger(__name__)

_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authorization_id>[^,\x01]+))?,\x01(?:[A-Za-z]+=[^\x01]*\x01)*?"
    r"auth=(?i:Bearer) (?P<token>[-_.~+/=A-Za-z0-9]+)\x01(?:[A-Za-z]+=[^\x01]*\x01)*\x01"
)
_INVALID: Final = b'{"status":"invalid_token"}'
# Only algorithms with a public key: with a shared key, everyone who can check tokens could also make them.
_ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
_KEYS_BYTES_MAX: Final = 1024 * 1024

Verify = Callable[[str], Proof]


class TokenKeysError(Exception):
    """The keys cannot be read, or the library that reads them is missing."""


class InvalidTokenError(Exception):
    """A token is invalid. The text is for our log and does not contain the token."""


def oauth_bearer(verify: Verify, on_refused: Callable[[str], None] = lambda reason: None) -> SaslExchange:
    """Check a token, and wait for the client to acknowledge an error; `on_refused` is called with the reason."""
    first = _FIRST.fullmatch(text_of((yield b"")))
    if first is None:
        raise AuthenticationFailedError("Authentication failed: the OAUTHBEARER message cannot be read")
    try:
        proof = verify(first["token"])
    except InvalidTokenError as error:
        on_refused(str(error))
        yield _INVALID
        raise AuthenticationFailedError("Authentication failed: invalid token") from error
    check_authorization_id(first["authorization_id"] or "", proof.user)
    return proof


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must contain."""

    issuer: str | None = None
    audience: tuple[str, ...] | None = None
    clock_skew_seconds: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class TokenVerifier:
    """Checks tokens against the keys in a file. Thread-safe."""

    def __init__(self, keys: str, rules: TokenRules) -> None:
        """Read the keys from a path or a `file:` URL; TokenKeysError if that fails."""
        try:
            import jwt
        except ImportError as error:
            raise TokenKeysError("OAUTHBEARER needs another package: pip install 'ottla[security]'") from error
        self._jwt = jwt
        self._path = local_path(keys)
        self._rules = rules
        self._lock = threading.Lock()
        self._stamp: object = None
        self._keys: Mapping[str | None, Any] = {}
        self._refresh(is_first=True)

    def __call__(self, token: str) -> Proof:
        """Return the user of a token; InvalidTokenError if it is invalid."""
        self._refresh()
        jwt, rules = self._jwt, self._rules
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(_ALGORITHMS[key.key_type]),
                issuer=rules.issuer,
                audience=rules.audience,
                leeway=rules.clock_skew_seconds,
                options={"require": ["exp", rules.subject_claim], "verify_aud": rules.audience is not None},
            )
        except jwt.PyJWTError as error:
            raise InvalidTokenError(type(error).__name__) from error
        user, scope = claims.get(rules.subject_claim), claims.get(rules.scope_claim, "")
        if not isinstance(user, str) or not user.strip():
            raise InvalidTokenError(f"the claim {rules.subject_claim} is not a name")
        if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(one, str) for one in scope)):
            raise InvalidTokenError(f"the claim {rules.scope_claim} is not a scope")
        return Proof(user, expires_ms=int(claims["exp"]) * 1000)

    def _key(self, key_id: object) -> Any:
        keys = self._keys
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        key = keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise InvalidTokenError("no key has the id in the token")
        return key

    def _refresh(self, *, is_first: bool = False) -> None:
        """Read the keys again if the file has changed; keep the old ones if that fails."""
        with self._lock:
            try:
                found = os.stat(self._path)
                stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
                if stamp == self._stamp:
                    return
                self._stamp = stamp
                self._keys = self._read()
            except (OSError, TokenKeysError) as error:
                if is_first:
                    raise TokenKeysError(f"{self._path} is not a set of public keys: {error}") from error
                log.error("token_keys_not_reloaded", path=str(self._path), error=str(error))

    def _read(self) -> dict[str | None, Any]:
        if self._path.stat().st_size > _KEYS_BYTES_MAX:
            raise TokenKeysError("it is too large")
        try:
            keys = self._jwt.PyJWKSet.from_json(self._path.read_text()).keys
        except (ValueError, TypeError, AttributeError, self._jwt.PyJWTError) as error:
            raise TokenKeysError(f"{type(error).__name__}") from error
        public = {key.key_id: key for key in keys if key.key_type in _ALGORITHMS}
        if not public:
            raise TokenKeysError("it has no key of type RSA, EC or OKP")
        return public


def local_path(location: str) -> Path:
    """Return the path in a setting; TokenKeysError if it is not a local file."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path) if parts.scheme else location)
    raise TokenKeysError(
        "sasl.oauthbearer.jwks.endpoint.url must be a local file, such as file:///etc/ottla/jwks.json: "
        "have another program fetch the keys"
    )
