"""aiokafka's keyword arguments as options of our clients."""

from __future__ import annotations

import warnings
from typing import Any, Final

# The version of aiokafka whose API this is.
VERSION: Final = "0.14.0"
# None in place of a time in aiokafka.
_NEVER_MS: Final = (1 << 31) - 1


def check_deprecated(loop: Any, api_version: Any) -> None:
    """Warn of arguments that aiokafka has deprecated; they have no effect."""
    for name, given in (("loop", loop), ("api_version", api_version)):
        if given is not None:
            warnings.warn(f"The `{name}` parameter is deprecated and has no effect.", DeprecationWarning, stacklevel=3)


def client_options(
    *,
    bootstrap_servers: Any,
    client_id: str,
    metadata_max_age_ms: int,
    request_timeout_ms: int,
    retry_backoff_ms: int,
    ssl_context: Any,
    security_protocol: str,
    connections_max_idle_ms: int | None,
    sasl_mechanism: str,
    sasl_plain_username: str | None,
    sasl_plain_password: str | None,
    sasl_oauth_token_provider: Any,
) -> dict[str, Any]:
    """Return the options that all clients have; ValueError if they do not go together."""
    if security_protocol in ("SSL", "SASL_SSL") and ssl_context is None:
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
    if security_protocol.startswith("SASL_") and sasl_mechanism == "GSSAPI":
        raise ValueError("sasl_mechanism GSSAPI (Kerberos) is not supported: use SCRAM-SHA-512 or OAUTHBEARER")
    return {
        "bootstrap_servers": bootstrap_servers,
        "client_id": client_id,
        "metadata_max_age_ms": metadata_max_age_ms,
        "request_timeout_ms": request_timeout_ms,
        "default_api_timeout_ms": request_timeout_ms,
        "retry_backoff_ms": retry_backoff_ms,
        "ssl_context": ssl_context,
        "security_protocol": security_protocol,
        "connections_max_idle_ms": _NEVER_MS if connections_max_idle_ms is None else connections_max_idle_ms,
        "sasl_mechanism": sasl_mechanism,
        "sasl_plain_username": sasl_plain_username,
        "sasl_plain_password": sasl_plain_password,
        "sasl_oauth_token_provider": None if sasl_oauth_token_provider is None else sasl_oauth_token_provider.token,
    }
