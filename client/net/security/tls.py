"""The TLS context of a client's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import ClientSettings

if TYPE_CHECKING:
    from ssl import SSLContext


def tls_context(settings: ClientSettings) -> SSLContext | None:
    """Return the TLS context of a connection; None for plaintext."""
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
            f"cannot load the TLS files (ssl_cafile, ssl_certfile, ssl_keyfile): {error}"
        ) from error
    return context
