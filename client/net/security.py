"""What a connection does to be allowed in: TLS, and SASL behind ApiVersions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.client.errors import KafkaConfigurationError, error_for
from ottla.client.net import sasl
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.client.net.asyncio_connection import AsyncioConnection

# From this version on, the tokens of the mechanism travel in SaslAuthenticate.
_HANDSHAKE_VERSION = 1


def tls_context(settings: ClientSettings) -> SSLContext | None:
    """Return the TLS context of a connection, None for one in the clear."""
    if not settings.uses_tls:
        return None
    if settings.ssl_context is not None:
        return settings.ssl_context
    import ssl

    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        context.check_hostname = settings.ssl_check_hostname
        if settings.ssl_certfile:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password)
    except OSError as error:
        raise KafkaConfigurationError(
            f"the TLS files (ssl_cafile, ssl_certfile, ssl_keyfile) do not load: {error}"
        ) from error
    return context


async def authenticate(connection: AsyncioConnection, settings: ClientSettings) -> int:
    """Tell the broker who we are; return for how many milliseconds it believes us, 0 for ever."""
    handshake = await connection.request(
        Api.SASL_HANDSHAKE,
        SaslHandshakeRequest(mechanism=settings.sasl_mechanism),
        version_min=_HANDSHAKE_VERSION,
    )
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise error_for(handshake.error_code, f"{settings.sasl_mechanism} is not offered, but {offered}")
    exchange = await _exchange(settings)
    token = next(exchange)
    while True:
        response: Any = await connection.request(Api.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        if response.error_code:
            raise error_for(response.error_code, response.error_message or "")
        try:
            token = exchange.send(response.auth_bytes)
        except StopIteration:
            return int(response.session_lifetime_ms)


async def _exchange(settings: ClientSettings) -> sasl.Exchange:
    if settings.sasl_mechanism == "OAUTHBEARER":
        assert settings.sasl_oauth_token_provider is not None
        return sasl.oauth_bearer(await settings.sasl_oauth_token_provider())
    username, password = settings.sasl_plain_username or "", settings.sasl_plain_password or ""
    if settings.sasl_mechanism == "PLAIN":
        return sasl.plain(username, password)
    return sasl.scram(settings.sasl_mechanism, username, password)
