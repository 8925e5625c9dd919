"""The broker's side of a SASL mechanism, as a generator: sent what the client says, it yields what to answer.

The first thing that it yields is nothing, to be sent the first token. It returns who the client is, with the last
token, or raises AuthenticationFailedError. No I/O.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError


class AuthenticationFailedError(KafkaError):
    """The client is not who it says; the text goes to the client, and tells no more than that."""

    def __init__(self, detail: str) -> None:
        """Say what failed, without a secret and without whether the user exists."""
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, detail)


class Proof(NamedTuple):
    """Who the client is."""

    user: str
    last_token: bytes = b""
    # Milliseconds since 1970 after which what it showed is no longer good; None is never.
    expires_ms: int | None = None


Exchange = Generator[bytes, bytes, Proof]


def check_authorization_id(authorization_id: str, user: str) -> None:
    """Refuse a client that wants to act as somebody else."""
    if authorization_id and authorization_id != user:
        raise AuthenticationFailedError("Authentication failed: Client requested an authorization id that is different")


def text_of(token: bytes) -> str:
    """Read a token as text."""
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationFailedError("Authentication failed: the token is not text") from error
