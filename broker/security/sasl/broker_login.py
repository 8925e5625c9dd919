"""How this broker authenticates at other brokers: with its certificate, and its login from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.config.layers import ConfigError, Problem
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.client.net.connector import Connector
from ottla.client.net.security import sasl
from ottla.client.net.security.endpoint import check_url
from ottla.client.net.security.jaas import JaasError, JaasLogin, parse_login
from ottla.client.net.security.login import SaslLogin
from ottla.client.net.security.token_endpoint import ClientCredentials, TokenEndpoint
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig
    from ottla.broker.security.tls.tls_listener import TlsListener

# An option of OAUTHBEARER's login: the path of a token file, which another program renews.
_TOKEN_FILE: Final = "token_file"  # noqa: S105 - the name of an option


def connector_to(
    listener: str, config: Callable[[], BrokerConfig], tls: TlsListener | None, has_sasl: bool
) -> Connector:
    """Return how to connect to other brokers at a listener; ConfigError if a login is missing."""
    login = None
    if has_sasl:
        mechanism = config().for_listener(listener, BrokerOptions.sasl_mechanism_inter_broker_protocol)
        if mechanism is not None:
            broker_login = BrokerLogin(listener, mechanism, config)
            broker_login.exchange()  # finds wrong options now
            login = SaslLogin(mechanism, broker_login.begin)
    return Connector(None if tls is None else lambda: tls.client_context, login)


class BrokerLogin:
    """Our login at other brokers' listeners, with the names and passwords that are configured at the time."""

    def __init__(self, listener: str, mechanism: str, config: Callable[[], BrokerConfig]) -> None:
        self._listener = listener
        self._mechanism = mechanism
        self._config = config
        # Kept, because it keeps its token; replaced when its credentials change.
        self._token_endpoint: TokenEndpoint | None = None

    def begin(self) -> sasl.SaslExchange:
        """Start our login for a connection. Options that became invalid make it fail; it is tried again later."""
        try:
            return self.exchange()
        except ConfigError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from error

    def exchange(self) -> sasl.SaslExchange:
        """Return our side of the exchange; ConfigError if the login is missing or wrong. Nothing is sent yet."""
        config, listener, mechanism = self._config(), self._listener, self._mechanism
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{BrokerOptions.sasl_jaas_config.name}"
        text = config.for_listener(listener, BrokerOptions.sasl_jaas_config, mechanism)
        try:
            if text is None:
                raise JaasError("this broker has no login for the other brokers")
            login = parse_login(text.value)
            if mechanism not in login.mechanisms:
                raise JaasError(f"the login module is not for {mechanism}")
            if mechanism == "OAUTHBEARER":
                return self._with_token(login, config)
            username, password = login.option("username"), login.option("password")
        except (JaasError, OSError, ValueError) as error:
            raise ConfigError([Problem((name,), f"{name}: {error}")]) from error
        if mechanism == "PLAIN":
            return sasl.plain(username, password)
        return sasl.scram(mechanism, username, password)

    def _with_token(self, login: JaasLogin, config: BrokerConfig) -> sasl.SaslExchange:
        url = config.for_listener(self._listener, BrokerOptions.sasl_oauthbearer_token_endpoint_url)
        if url is None or _TOKEN_FILE in login.options:
            return sasl.oauth_bearer(Path(login.option(_TOKEN_FILE)).read_text().strip())
        check_url(url)
        credentials = ClientCredentials(
            url,
            login.option("clientId"),
            login.option("clientSecret"),
            login.options.get("scope"),
            config.for_listener(self._listener, BrokerOptions.ottla_sasl_oauthbearer_cafile),
        )
        endpoint = self._token_endpoint
        if endpoint is None or endpoint.credentials != credentials:
            endpoint = self._token_endpoint = TokenEndpoint(credentials)
        return _fetching(endpoint)


def _fetching(endpoint: TokenEndpoint) -> sasl.SaslExchange:
    """Fetch the token when the exchange begins, on the thread of the connection."""
    yield from sasl.oauth_bearer(endpoint.token())
