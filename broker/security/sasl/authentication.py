"""The state of the SASL authentication of one connection. No I/O.

    (none) --handshake--> tokens --last token--> done --handshake--> tokens of a repetition --last token--> done

Before the first `done`, only these steps and ApiVersions are admitted. If an authentication expires, the client repeats
it on the same connection, as the same user and with the same mechanism. Until it expires, the client is served as
before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from ottla.broker.security.audit.audit import AuditSubject
from ottla.broker.security.sasl.sasl_exchange import AuthenticationFailedError, Proof, SaslExchange
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.security.sasl.sasl_listener import SaslListener
    from ottla.broker.security.session import Session

log = structlog.get_logger(__name__)

# Rounds of one exchange: SCRAM has two.
_STEPS_MAX: Final = 8
_ADMITTED: Final = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})


class NotAuthenticatedError(Exception):
    """A request that must not be answered; the connection is closed."""


class AuthenticationAnswer(NamedTuple):
    """The answer to a token."""

    error: ErrorCode
    message: str | None
    token: bytes
    # How long the authentication lasts; 0 is for ever.
    lifetime_ms: int


class Authentication:
    """The authentication of one connection. Only the thread that handles its requests uses it."""

    def __init__(
        self,
        listener: SaslListener,
        session: Session,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._listener = listener
        self._session = session
        self._monotonic = monotonic
        self._wall = wall
        self.is_done = False
        # Whether tokens come without a request around them, as they do after a handshake of version 0.
        self.expects_raw_token = False
        # Called once, at the first success.
        self.on_done: Callable[[], None] = lambda: None
        self._mechanism = ""
        self._exchange: SaslExchange | None = None
        self._steps = 0
        self._client_id = ""
        # Of the last successful authentication.
        self._proved_with = ""
        self._expires: float | None = None

    def __repr__(self) -> str:
        return f"<Authentication {self._mechanism or 'not begun'} done={self.is_done}>"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms of the listener."""
        return self._listener.mechanisms

    def check(self, api: Api) -> None:
        """Raise NotAuthenticatedError for a request that is not admitted now."""
        if api in _ADMITTED:
            return
        if not self.is_done:
            raise NotAuthenticatedError(f"{api.label} came before the client was authenticated")
        if self._expires is not None and self._monotonic() > self._expires:
            raise NotAuthenticatedError(f"{api.label} came after the authentication had expired")

    def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """Choose a mechanism."""
        if self._exchange is not None or (self.is_done and self._expires is None):
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self._listener.mechanisms:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism = mechanism
        self._steps = 0
        self._exchange = self._listener.exchange(mechanism)
        next(self._exchange)
        self.expects_raw_token = version == 0
        return ErrorCode.NONE

    def step(self, token: bytes, client_id: str = "") -> AuthenticationAnswer:
        """Handle a token of the mechanism."""
        self._client_id = client_id
        exchange = self._exchange
        if exchange is None:
            message = "SaslAuthenticate came without a SaslHandshake before it, or after the end"
            return AuthenticationAnswer(ErrorCode.ILLEGAL_SASL_STATE, message, b"", 0)
        self._steps += 1
        try:
            if self._steps > _STEPS_MAX:
                raise AuthenticationFailedError("Authentication failed: too many messages")
            answer = exchange.send(token)
        except StopIteration as end:
            return self._ended(end.value)
        except AuthenticationFailedError as error:
            return self._failed(error)
        return AuthenticationAnswer(ErrorCode.NONE, None, answer, 0)

    def _ended(self, proof: Proof) -> AuthenticationAnswer:
        self._exchange = None
        self.expects_raw_token = False
        principal = f"User:{proof.user}"
        if self.is_done and (principal, self._mechanism) != (self._session.principal, self._proved_with):
            return self._failed(AuthenticationFailedError("Cannot change principals or mechanisms on a connection"))
        lifetime_ms = self._lifetime_ms(proof)
        if lifetime_ms is not None and lifetime_ms <= 0:
            return self._failed(AuthenticationFailedError("Authentication failed: the credential has expired"))
        self._proved_with = self._mechanism
        self._session.by_token = proof.by_token
        self._expires = None if lifetime_ms is None else self._monotonic() + lifetime_ms / 1000
        is_first = not self.is_done
        self._session.principal = principal
        self.is_done = True
        self._listener.succeeded(self._subject, self._mechanism)
        if is_first:
            self.on_done()
        return AuthenticationAnswer(ErrorCode.NONE, None, proof.last_token, lifetime_ms or 0)

    def _failed(self, error: AuthenticationFailedError) -> AuthenticationAnswer:
        self._exchange = None
        self.expects_raw_token = False
        self._listener.failed(self._subject, self._mechanism, error.detail)
        return AuthenticationAnswer(error.code, error.detail, b"", 0)

    @property
    def _subject(self) -> AuditSubject:
        return AuditSubject(self._session, self._client_id)

    def _lifetime_ms(self, proof: Proof) -> int | None:
        limits = [limit for limit in (self._listener.max_reauth_ms(),) if limit > 0]
        if proof.expires_ms is not None:
            limits.append(proof.expires_ms - int(self._wall() * 1000))
        return min(limits, default=None)
