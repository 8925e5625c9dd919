"""OAUTHBEARER (RFC 7628) with signed tokens: JWTs, checked against the public keys of their issuer.

client   n,[a=authorization id],^Aauth=Bearer token^A^A          ^A is the byte 1
broker   nothing; or an error as JSON, which the client answers with ^A before it is refused
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from ottla.broker.security.sasl.sasl_exchange import (
    AuthenticationFailedError,
    Proof,
    SaslExchange,
    check_authorization_id,
    text_of,
)
from ottla.broker.security.sasl.token_keys import ALGORITHMS, TokenKeys, TokenKeysError

_SEPARATOR: Final = "\x01"
_TOKEN_CHARACTERS: Final = frozenset("-_.~+/=" + string.ascii_letters + string.digits)
_INVALID: Final = b'{"status":"invalid_token"}'

Verify = Callable[[str], Proof]


class InvalidTokenError(Exception):
    """A token is invalid. The text is for our log and does not contain the token."""


def oauth_bearer(verify: Verify, on_refused: Callable[[str], None] = lambda reason: None) -> SaslExchange:
    """Check a token, and wait for the client to acknowledge an error; `on_refused` is called with the reason."""
    authorization_id, token = _first_message(text_of((yield b"")))
    try:
        proof = verify(token)
    except InvalidTokenError as error:
        on_refused(str(error))
        yield _INVALID
        raise AuthenticationFailedError("Authentication failed: invalid token") from error
    check_authorization_id(authorization_id, proof.user)
    return proof


def _first_message(text: str) -> tuple[str, str]:
    """Return the authorization id, which may be empty, and the token.

    Strangers send this. So it is split by hand: time is in proportion to its length, as with no regular expression that
    repeats a repetition.
    """
    header, separator, rest = text.partition(_SEPARATOR)
    start, _, named = header.partition(",")
    authorization_id, comma, more = named.partition(",")
    is_header = start == "n" and comma and not more and (not authorization_id or authorization_id[:2] == "a=")
    token = ""
    if separator and is_header and authorization_id != "a=" and rest.endswith(_SEPARATOR * 2):
        for pair in rest[:-2].split(_SEPARATOR):
            key, equals, value = pair.partition("=")
            if not equals or not key.isascii() or not key.isalpha():
                token = ""
                break
            scheme, _, shown = value.partition(" ")
            if key == "auth" and scheme.lower() == "bearer" and not token and _TOKEN_CHARACTERS.issuperset(shown):
                token = shown
    if not token:
        raise AuthenticationFailedError("Authentication failed: the OAUTHBEARER message cannot be read")
    return authorization_id[2:], token


class TokenRules(Struct, frozen=True):
    """What a token must contain."""

    issuer: str | None = None
    audience: tuple[str, ...] | None = None
    clock_skew_seconds: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class TokenVerifier:
    """Checks tokens against public keys. Thread-safe."""

    def __init__(self, keys: TokenKeys, rules: TokenRules) -> None:
        """TokenKeysError if the library that checks signatures is missing."""
        try:
            import jwt
        except ImportError as error:
            raise TokenKeysError("OAUTHBEARER needs another package: pip install 'ottla[security]'") from error
        self._jwt = jwt
        self._keys = keys
        self._rules = rules

    def __call__(self, token: str) -> Proof:
        """Return the user of a token; InvalidTokenError if it is invalid."""
        jwt, rules = self._jwt, self._rules
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(ALGORITHMS[key.key_type]),
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
        keys = self._keys.current()
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        key = keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            self._keys.refresh_early()
            raise InvalidTokenError("no key has the id in the token")
        return key
