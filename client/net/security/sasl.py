"""The client side of the SASL mechanisms. No I/O.

A mechanism is a generator: it yields the tokens to send to the broker, and receives the broker's responses. It ends
after the last token, and raises SaslAuthenticationFailedError if the broker cannot prove its identity.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import Final

from ottla.client.errors import SaslAuthenticationFailedError

SaslExchange = Generator[bytes, bytes, None]

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# The broker chooses the number of iterations, and each costs time. Kafka allows 4096 to 16384. With fewer, an impostor
# could guess the password from our proof much faster.
_ITERATIONS_MIN: Final = 4096
_ITERATIONS_MAX: Final = 1 << 20


def plain(username: str, password: str) -> SaslExchange:
    """Send name and password in clear text; only an encrypted connection keeps them secret."""
    yield f"\0{username}\0{password}".encode()


def oauth_bearer(token: str) -> SaslExchange:
    """Send a token from another server; the broker's response is empty, or says why it refuses the token."""
    answer = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if answer:
        raise SaslAuthenticationFailedError(answer.decode(errors="replace"))


def scram(
    mechanism: str, username: str, password: str, nonce: str | None = None, *, by_token: bool = False
) -> SaslExchange:
    """Prove that we know the password without sending it, and check that the broker knows it (RFC 5802, 7677).

    With `by_token`, these are the id of a delegation token and its HMAC.
    """
    digest = _HASHES[mechanism]
    nonce = nonce or secrets.token_urlsafe(24)
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={escaped},r={nonce}" + (",tokenauth=true" if by_token else "")
    server_first = (yield f"n,,{client_first}".encode()).decode(errors="replace")
    fields = _fields(server_first)
    server_nonce, iterations = fields.get("r", ""), fields.get("i", "")
    if not server_nonce.startswith(nonce):
        raise SaslAuthenticationFailedError("the broker's response belongs to another exchange")
    is_number = iterations.isascii() and iterations.isdigit() and len(iterations) <= len(str(_ITERATIONS_MAX))
    if not is_number or not _ITERATIONS_MIN <= int(iterations) <= _ITERATIONS_MAX:
        raise SaslAuthenticationFailedError(
            f"the broker asks for {iterations[:20]!r} iterations, not for {_ITERATIONS_MIN} to {_ITERATIONS_MAX}"
        )

    salted = hashlib.pbkdf2_hmac(digest, password.encode(), _decoded(fields.get("s", "")), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", digest)
    client_final = f"c=biws,r={server_nonce}"
    message = f"{client_first},{server_first},{client_final}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server_final = _fields((yield f"{client_final},p={proof}".encode()).decode(errors="replace"))

    if "e" in server_final:
        raise SaslAuthenticationFailedError(server_final["e"])
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
    if not hmac.compare_digest(_decoded(server_final.get("v", "")), expected):
        raise SaslAuthenticationFailedError("the broker does not know the password: it may be an impostor")


def _fields(message: str) -> dict[str, str]:
    """Read `a=1,b=2`; values may hold an equals sign."""
    return {name: value for name, _, value in (part.partition("=") for part in message.split(","))}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise SaslAuthenticationFailedError(f"the broker sent {text!r}, which is not base64") from error
