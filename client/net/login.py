"""The login of a blocking connection: SaslHandshake, then the tokens of the mechanism in SaslAuthenticate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.client.errors import SaslAuthenticationFailedError
from ottla.client.net import sasl
from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

# In these versions the tokens travel in requests, and the broker says for how long it believes us.
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1

# Sends an encoded request and returns the response.
Call = Callable[[Api, int, bytes], Any]


class SaslLogin(NamedTuple):
    """A mechanism, and what begins an exchange in it."""

    mechanism: str
    begin: Callable[[], sasl.Exchange]


def log_in(login: SaslLogin, call: Call) -> int:
    """Tell a broker who we are; return for how many milliseconds it believes us, 0 for ever. Raises KafkaError."""
    request = SaslHandshakeRequest(mechanism=login.mechanism)
    handshake = call(Api.SASL_HANDSHAKE, _HANDSHAKE_VERSION, encode(request, _HANDSHAKE_VERSION))
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise KafkaError(
            ErrorCode.of(handshake.error_code), f"the broker does not offer {login.mechanism}, but {offered}"
        )
    exchange = login.begin()
    try:
        token = next(exchange)
        while True:
            step = SaslAuthenticateRequest(auth_bytes=token)
            response = call(Api.SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, encode(step, _AUTHENTICATE_VERSION))
            if response.error_code:
                raise KafkaError(ErrorCode.of(response.error_code), response.error_message or "the login failed")
            try:
                token = exchange.send(response.auth_bytes)
            except StopIteration:
                return int(response.session_lifetime_ms)
    except SaslAuthenticationFailedError as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from error
