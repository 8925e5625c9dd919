"""SCRAM credentials (RFC 5802): mechanisms, the keys derived from a password, and their text form.

A server stores what it needs to check a password, but never the password:

    salted password = PBKDF2(password, salt, iterations)
    stored key      = H(HMAC(salted password, "Client Key"))
    server key      = HMAC(salted password, "Server Key")

The text in ZooKeeper is Kafka's: `salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Self

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
# Used unless the caller gives another number.
ITERATIONS_DEFAULT: Final = 8192

_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class ScramMechanism(IntEnum):
    """A mechanism, by its number in the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def label(self) -> str:
        """Its SASL name, which is also its key in ZooKeeper."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The name of its hash function in `hashlib`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def of(cls, label: str) -> Self:
        """Return the mechanism with a SASL name; raise ValueError if there is none."""
        for mechanism in cls:
            if mechanism.label == label:
                return mechanism
        raise ValueError(f"{label} is not a SCRAM mechanism")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server stores about a user's password, for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def derived(cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int) -> Self:
        """Derive the keys from a salted password."""
        digest = mechanism.digest
        client_key = hmac.digest(salted_password, b"Client Key", digest)
        return cls(
            salt=salt,
            stored_key=hashlib.new(digest, client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", digest),
            iterations=iterations,
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raise ValueError if it is invalid. The error does not show the text: it is secret."""
        fields = dict(part.strip().partition("=")[::2] for part in text.split(","))
        if sorted(fields) != sorted(_FIELDS):
            raise ValueError(f"a SCRAM credential must have the fields {', '.join(_FIELDS)}")
        try:
            salt, stored_key, server_key = (b64decode(fields[name], validate=True) for name in _FIELDS[:3])
            iterations = int(fields["iterations"])
        except ValueError:
            raise ValueError("a SCRAM credential must have base64 values and a number of iterations") from None
        return cls(salt, stored_key, server_key, iterations)

    def format(self) -> str:
        """Return the text form."""
        salt, stored_key, server_key = (
            b64encode(value).decode() for value in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: PBKDF2 with this many iterations."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
