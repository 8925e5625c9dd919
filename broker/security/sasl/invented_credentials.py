"""Credentials for users who do not exist, so that nobody can find out who does.

A client that logs in is told the salt and the iterations of the user, before it has proved anything. For an unknown
user they are made of the name and a random secret of the cluster: always the same, and the same on every broker. They
look like those that are stored, because each tool makes salts of its own kind.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.protocol.scram import ITERATIONS_DEFAULT, ScramCredential

SECRET_BYTES: Final = 32
# Of salts that our tools make.
_SALT_BYTES: Final = 24
# Kafka's tools make a salt of a random number of this many bits, written in letters and digits.
_TEXT_BITS: Final = 130
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class CredentialStyle(NamedTuple):
    """What a credential shows of the tool that made it. A salt of text has no fixed length."""

    salt_bytes: int | None = _SALT_BYTES
    iterations: int = ITERATIONS_DEFAULT

    @classmethod
    def of(cls, credential: ScramCredential) -> CredentialStyle:
        """Return the style of a stored credential."""
        is_text = 20 <= len(credential.salt) <= 26 and set(credential.salt) <= set(_DIGITS)
        return cls(None if is_text else len(credential.salt), credential.iterations)

    @classmethod
    def usual(cls, credentials: Iterable[ScramCredential]) -> CredentialStyle:
        """Return the style of most credentials; ours if there are none."""
        styles = Counter(map(cls.of, credentials))
        return max(styles, key=lambda style: (styles[style], style.iterations), default=cls())


def invented_credential(secret: bytes, mechanism: str, user: str, style: CredentialStyle) -> ScramCredential:
    """Return the credential of a user who does not exist. No password fits it."""

    def made(purpose: str) -> bytes:
        return hmac.digest(secret, f"{purpose} {mechanism} {user}".encode(), "sha512")

    salt, key = made("salt"), made("key")
    if style.salt_bytes is None:
        salt = _text(int.from_bytes(salt) >> (8 * len(salt) - _TEXT_BITS))
    else:
        while len(salt) < style.salt_bytes:
            salt += made(f"salt {len(salt)}")
        salt = salt[: style.salt_bytes]
    return ScramCredential(salt=salt, stored_key=key, server_key=key, iterations=style.iterations)


def _text(number: int) -> bytes:
    found = bytearray()
    while number:
        number, digit = divmod(number, len(_DIGITS))
        found.append(_DIGITS[digit])
    return bytes(reversed(found)) or b"0"
