"""How this broker authenticates at other brokers: with its certificate, and its login from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.config.layers import ConfigError, Problem
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.client.net.connector import Connector
from ottla.client.net.security import sasl
from ottla.client.net.security.jaas import JaasError, parse_login
from ottla.client.net.security.login import SaslLogin
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig
    from ottla.broker.security.tls.tls_listener import TlsListener

# An option of OAUTHBEARER's login: the path of a token file, which another program renews.
_TOKEN_FILE: Final = "token_file"


def connector_to(
    listener: str, config: Callable[[], BrokerConfig], tls: TlsListener | None, has_sasl: bool
) -> Connector:
    """Return how to connect to other brokers at a listener; ConfigError if a login is missing."""
    login = None
    if has_sasl:
        mechanism = config().for_listener(listener, BrokerOptions.sasl_mechanism_inter_broker_protocol)
        if mechanism is not None:
            begin_exchange(listener, mechanism, config())  # finds wrong options now
            login = SaslLogin(mechanism, lambda: _begun(listener, mechanism, config()))
    return Connector(None if tls is None else lambda: tls.client_context, login)


def _begun(listener: str, mechanism: str, config: BrokerConfig) -> sasl.SaslExchange:
    """Start our login for a connection. Options that became invalid make this login fail; it is tried again later."""
    try:
        return begin_exchange(listener, mechanism, config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from error


def begin_exchange(listener: str, mechanism: str, config: BrokerConfig) -> sasl.SaslExchange:
    """Start our login with the names and passwords that are configured now."""
    name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{BrokerOptions.sasl_jaas_config.name}"
    text = config.for_listener(listener, BrokerOptions.sasl_jaas_config, mechanism)
    try:
        if text is None:
            raise JaasError("this broker has no login for the other brokers")
        login = parse_login(text.value)
        if mechanism not in login.mechanisms:
            raise JaasError(f"the login module is not for {mechanism}")
        if mechanism == "OAUTHBEARER":
            return sasl.oauth_bearer(Path(login.option(_TOKEN_FILE)).read_text().strip())
        username, password = login.option("username"), login.option("password")
    except (JaasError, OSError) as error:
        raise ConfigError([Problem((name,), f"{name}: {error}")]) from error
    return sasl.plain(username, password) if mechanism == "PLAIN" else sasl.scram(mechanism, username, password)
