"""The session with ZooKeeper that the options of a broker describe."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from ottla.broker.cluster.guardian import Guardian
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.cluster.zookeeper_login import DigestLogin, ZooKeeperLogin
from ottla.broker.config import BrokerConfig, ConfigError
from ottla.broker.config.layers import Problem
from ottla.broker.security.tls.key_stores import KeyStoreError
from ottla.broker.security.tls.tls_settings import TlsSettings
from ottla.client.net.security.jaas import JaasError, parse_login

_JAAS = BrokerConfig.ottla_zookeeper_sasl_jaas_config.name
_TLS = BrokerConfig.zookeeper_ssl_client_enable.name


def zookeeper_session(config: BrokerConfig, guardian: Guardian | None = None) -> ZooKeeper:
    """Return a session that is not started. Raises ConfigError if the login cannot be used."""
    login = ZooKeeperLogin(_digest(config), _tls(config, guardian), config.zookeeper_set_acl)
    return ZooKeeper(
        config.zookeeper,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        in_flight_max=config.zookeeper_max_in_flight_requests,
        guardian=guardian,
        login=login,
    )


def _digest(config: BrokerConfig) -> DigestLogin | None:
    text = config.ottla_zookeeper_sasl_jaas_config
    if text is None:
        return None
    try:
        login = parse_login(text.value)
        if "DIGEST-MD5" not in login.mechanisms:
            raise JaasError("the login module must be org.apache.zookeeper.server.auth.DigestLoginModule")
        digest = DigestLogin(login.option("username"), login.option("password"))
    except JaasError as error:
        raise ConfigError([Problem((_JAAS,), f"{_JAAS}: {error}")]) from error
    try:
        import puresasl  # type: ignore[import-untyped] # noqa: F401 - kazoo logs in with it
    except ImportError as error:
        missing = f"{_JAAS} needs another package: pip install 'ottla[security]'"
        raise ConfigError([Problem((_JAAS,), missing)]) from error
    return digest


def _tls(config: BrokerConfig, guardian: Guardian | None) -> Callable[[], ssl.SSLContext] | None:
    if not config.zookeeper_ssl_client_enable:
        return None
    settings = TlsSettings.of_zookeeper(config)
    try:
        settings.client_context()
        trusted, key = settings.client_pem()
    except KeyStoreError as error:
        raise ConfigError([Problem((_TLS,), f"{_TLS}: {error}")]) from error

    if guardian is not None:
        password = config.zookeeper_ssl_keystore_password
        guardian.use_tls(
            trusted,
            key,
            None if password is None else password.value,
            checks_names=bool(settings.endpoint_identification_algorithm),
        )

    def context() -> ssl.SSLContext:
        try:
            return settings.client_context()
        except KeyStoreError as error:
            raise OSError(str(error)) from error

    return context
