"""The broker's side of a SASL mechanism, as a generator: it is sent the client's tokens and yields the answers.

It first yields nothing, to be sent the first token. With the last token it returns who the client is, or it raises
AuthenticationFailedError. No I/O.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError


class AuthenticationFailedError(KafkaError):
    """The client is not who it claims to be. The text goes to the client and says no more than that."""

    def __init__(self, detail: str) -> None:
        """`detail` must contain no secret, and must not show whether the user exists."""
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, detail)


class Proof(NamedTuple):
    """Who the client is."""

    user: str
    last_token: bytes = b""
    # Milliseconds since 1970 when the proof expires; None is never.
    expires_ms: int | None = None
    # Whether it was a delegation token of the user: such a client gets no further tokens.
    by_token: bool = False


SaslExchange = Generator[bytes, bytes, Proof]


def check_authorization_id(authorization_id: str, user: str) -> None:
    """Refuse a client that wants to act as another user."""
    if authorization_id and authorization_id != user:
        raise AuthenticationFailedError("Authentication failed: Client requested an authorization id that is different")


def text_of(token: bytes) -> str:
    """Decode a token as text."""
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationFailedError("Authentication failed: the token is not text") from error
