"""A SASL login as a sequence of requests and responses. No I/O: connections send them."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.errors import error_for
from ottla.protocol.api import Api
from ottla.protocol.message import Message
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.client.net.security.sasl import SaslExchange
    from ottla.client.net.settings import ClientSettings

# From this version of SaslHandshake on, tokens are sent in SaslAuthenticate. From this version of SaslAuthenticate on,
# the broker returns the lifetime of the login.
HANDSHAKE_VERSION_MIN: Final = 1
AUTHENTICATE_VERSION: Final = 1

# A login is renewed after this part of its lifetime: early enough to get the responses to requests in flight.
_LIFETIME_SHARE: Final = 0.85


class SaslLogin(NamedTuple):
    """A mechanism, and the function that starts an exchange."""

    mechanism: str
    begin: Callable[[], SaslExchange]


def login_steps(login: SaslLogin) -> Generator[tuple[Api, Message], Any, float]:
    """Yield the requests of a login and receive their responses; return after how many seconds to renew it.

    Raises the broker's KafkaError, or SaslAuthenticationFailedError if the broker cannot prove its identity.
    """
    handshake = yield Api.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=login.mechanism)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise error_for(handshake.error_code, f"{login.mechanism} is not offered; the broker offers {offered}")
    exchange = login.begin()
    token = next(exchange)
    while True:
        response = yield Api.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or "the login failed")
        try:
            token = exchange.send(response.auth_bytes)
        except StopIteration:
            lifetime_ms: int = response.session_lifetime_ms
            return lifetime_ms / 1000 * _LIFETIME_SHARE if lifetime_ms else math.inf


async def login_of(settings: ClientSettings) -> SaslLogin:
    """Return the login for a client's options; this fetches a token if one is needed."""
    # Costs an import of hash functions, which most clients do not need.
    from ottla.client.net.security import sasl

    mechanism = settings.sasl_mechanism
    if mechanism == "OAUTHBEARER":
        assert settings.sasl_oauth_token_provider is not None
        token = await settings.sasl_oauth_token_provider()
        return SaslLogin(mechanism, lambda: sasl.oauth_bearer(token))
    username, password = settings.sasl_plain_username or "", settings.sasl_plain_password or ""
    if mechanism == "PLAIN":
        return SaslLogin(mechanism, lambda: sasl.plain(username, password))
    by_token = settings.sasl_scram_token_auth
    return SaslLogin(mechanism, lambda: sasl.scram(mechanism, username, password, by_token=by_token))
