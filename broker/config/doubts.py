"""Options of security that protect less than they seem to. The broker starts, and logs a warning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.config.names import listener_prefix
from ottla.broker.config.option import Option
from ottla.broker.config.rows.broker import BrokerOptions

if TYPE_CHECKING:
    from ottla.broker.config.broker_config import BrokerConfig

# What the library accepts with TLS 1.3. Python cannot change that.
_TLS_13_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_TOKENS: Final = "OAUTHBEARER"


def security_doubts(config: BrokerConfig) -> Iterator[str]:
    """Yield what the operator should know."""
    yield from _suites(config)
    yield from _tokens(config)


def is_tls_13_suite(suite: str) -> bool:
    """Whether a name is that of a suite of TLS 1.3. Names of older suites say how keys are exchanged, too."""
    return suite.startswith("TLS_") and "_WITH_" not in suite


def _suites(config: BrokerConfig) -> Iterator[str]:
    lists = {BrokerOptions.ssl_cipher_suites.name: config.ssl_cipher_suites}
    for endpoint in config.listeners:
        own = config.set_for_listener(endpoint.listener_name, BrokerOptions.ssl_cipher_suites)
        if own is not None:
            lists[listener_prefix(endpoint.listener_name) + BrokerOptions.ssl_cipher_suites.name] = own
    lists[BrokerOptions.zookeeper_ssl_cipher_suites.name] = config.zookeeper_ssl_cipher_suites or ()
    for name, suites in lists.items():
        newer = {suite for suite in suites if is_tls_13_suite(suite)}
        if newer and newer != _TLS_13_SUITES:
            yield (
                f"{name} has {', '.join(sorted(newer))}, but TLS 1.3 cannot be limited to some of its suites: it is "
                f"used with {', '.join(sorted(_TLS_13_SUITES))}"
            )


def _tokens(config: BrokerConfig) -> Iterator[str]:
    """Warn if any token with a good signature is accepted: an issuer signs tokens for others, too."""
    for endpoint in config.listeners:
        listener = endpoint.listener_name
        if _TOKENS not in config.for_listener(listener, BrokerOptions.sasl_enabled_mechanisms):
            continue
        rules: tuple[tuple[Option[Any], str], ...] = (
            (BrokerOptions.sasl_oauthbearer_expected_issuer, "of every issuer whose keys are known"),
            (BrokerOptions.sasl_oauthbearer_expected_audience, "for every other service"),
        )
        for option, who in rules:
            if not config.for_listener(listener, option, _TOKENS):
                yield f"{option.name} is not set for the listener {listener}, which accepts tokens {who}"
