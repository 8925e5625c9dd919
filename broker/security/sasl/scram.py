"""SCRAM (RFC 5802, 7677): the client proves that it knows the password, and we prove that we know it too.

    client   n,[a=authorization id],n=user,r=nonce[,tokenauth=true]
    broker   r=nonce and ours,s=salt,i=iterations
    client   c=first part of its first message,r=both nonces,p=proof
    broker   v=our signature

With `tokenauth=true` the user is the id of a delegation token, and the client is the token's owner from then on.

An unknown user gets a salt and iterations too, always the same ones, and fails at the end, like a user with a wrong
password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.broker.security.sasl.invented_credentials import CredentialStyle, invented_credential
from ottla.broker.security.sasl.sasl_exchange import (
    AuthenticationFailedError,
    Proof,
    SaslExchange,
    check_authorization_id,
    text_of,
)
from ottla.protocol.scram import ScramCredential, ScramMechanism

_NONCE_BYTES: Final = 24
_TOKEN_EXTENSION: Final = "tokenauth=true"  # noqa: S105 - a word of the protocol
_VALUE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_NAME: Final = r"(?:[^,=\0]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_VALUE})(?P<extensions>,.*)?)",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_VALUE})(?:,[^p].*)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)

Lookup = Callable[[str], ScramCredential | None]


class TokenLogin(NamedTuple):
    """What a login with a delegation token is checked against, and whom it proves."""

    user: str
    credential: ScramCredential
    expires_ms: int


def scram(
    mechanism: str,
    lookup: Lookup,
    secret: bytes,
    nonce: str | None = None,
    style: CredentialStyle = CredentialStyle(),  # noqa: B008 - a value
    *,
    token_login: Callable[[str], TokenLogin | None] | None = None,
) -> SaslExchange:
    """Check the two messages of a client; unknown users get a salt from the secret, in the style of stored ones.

    `token_login` finds a delegation token by its id; without it, there are none.
    """
    digest = ScramMechanism.of(mechanism).digest
    failed = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    first = _matched(_CLIENT_FIRST, (yield b""))
    user = _unescaped(first["user"])
    check_authorization_id(_unescaped(first["authorization_id"] or ""), user)
    token = None
    if _has_token(first["extensions"] or ""):
        token = None if token_login is None else token_login(user)
        known = None if token is None else token.credential
    else:
        known = lookup(user)
    # Invented for known users as well: a client could measure the time that it takes.
    invented = invented_credential(secret, mechanism, user, style)
    credential = known or invented
    both = first["nonce"] + (nonce or secrets.token_urlsafe(_NONCE_BYTES))
    server_first = f"r={both},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"

    final = _matched(_CLIENT_FINAL, (yield server_first.encode()))
    # librdkafka before 2.6.1 repeats its own nonce in front; Kafka 3.9 accepts that.
    is_same = final["nonce"] in (both, first["nonce"] + both)
    is_bound = hmac.compare_digest(_decoded(final["binding"]), first["header"].encode())
    message = f"{first['bare']},{server_first},{final['bare']}".encode()
    proof = _decoded(final["proof"])
    signature = hmac.digest(credential.stored_key, message, digest)
    if not is_same or not is_bound or len(proof) != len(signature):
        raise AuthenticationFailedError(failed)
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    is_right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
    if known is None or not is_right:
        raise AuthenticationFailedError(failed)
    ours = hmac.digest(credential.server_key, message, digest)
    last_token = b"v=" + base64.b64encode(ours)
    if token is not None:
        return Proof(token.user, last_token, token.expires_ms, by_token=True)
    return Proof(user, last_token)


def _has_token(extensions: str) -> bool:
    return any(each.lower() == _TOKEN_EXTENSION for each in extensions.split(","))


def _matched(pattern: re.Pattern[str], token: bytes) -> re.Match[str]:
    found = pattern.fullmatch(text_of(token))
    if found is None:
        raise AuthenticationFailedError("Authentication failed: the SCRAM message cannot be read")
    return found


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise AuthenticationFailedError("Authentication failed: the SCRAM message is not base64") from error
