"""Translate options that only Java's clients have into ours, so that their files work here too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.client.errors import KafkaConfigurationError

_PEM: Final = "PEM"


def without_java_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with our options in their place; KafkaConfigurationError if there is no equivalent."""
    translated: dict[str, Any] = {}
    for key, value in config.items():
        translate = _TRANSLATIONS.get(key)
        translated |= {key: value} if translate is None else translate(key, str(value).strip())
    return translated


def _login(key: str, text: str) -> dict[str, Any]:
    from ottla.client.net.security.jaas import JaasError, parse_login

    try:
        login = parse_login(text)
        if login.mechanisms == ("OAUTHBEARER",):
            names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
            found = {ours: login.options[java] for java, ours in names.items() if java in login.options}
            return {f"sasl.oauthbearer.{ours}": value for ours, value in found.items()}
        by_token = login.options.get("tokenauth", "").lower() == "true"
        return {
            "sasl.username": login.option("username"),
            "sasl.password": login.option("password"),
            **({"sasl.scram.token.auth": True} if by_token else {}),
        }
    except JaasError as error:
        raise KafkaConfigurationError(f"{key}: {error}") from None


def _token_handler(key: str, text: str) -> dict[str, Any]:
    """Accept Java's class that does what we do: it fetches tokens from an endpoint."""
    if text.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
        raise KafkaConfigurationError(f"{key} must be OAuthBearerLoginCallbackHandler: other classes are Java's alone")
    return {}


def _token_method(key: str, text: str) -> dict[str, Any]:
    if text.lower() != "oidc":
        raise KafkaConfigurationError(f"{key} must be oidc, not {text!r}")
    return {}


def _store_type(key: str, text: str) -> dict[str, Any]:
    if text.upper() != _PEM:
        first = "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype pkcs12, and then "
        raise KafkaConfigurationError(
            f"{key} must be {_PEM}, not {text!r}. To convert it: {first if text.upper() == 'JKS' else ''}"
            "openssl pkcs12 -in FILE.p12 -out FILE.pem"
        )
    return {}


def _host_name_check(key: str, text: str) -> dict[str, Any]:
    if text.lower() not in ("", "https"):
        raise KafkaConfigurationError(f"{key} must be https, or empty for no check, not {text!r}")
    return {"ssl.check.hostname": text.lower() == "https"}


_TRANSLATIONS: Final[Mapping[str, Callable[[str, str], dict[str, Any]]]] = {
    "sasl.jaas.config": _login,
    "sasl.login.callback.handler.class": _token_handler,
    "sasl.oauthbearer.method": _token_method,
    "ssl.truststore.type": _store_type,
    "ssl.keystore.type": _store_type,
    "ssl.endpoint.identification.algorithm": _host_name_check,
}
