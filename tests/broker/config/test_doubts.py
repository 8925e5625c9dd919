"""Options of security that protect less than they seem to."""

from __future__ import annotations

import pytest

from ottla.broker.config import BrokerConfig

ALL = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
OLDER = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
TOKENS = {
    "listeners": "SASL_PLAINTEXT://:9092,PLAINTEXT://:9093",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
}
RULES = {"sasl.oauthbearer.expected.issuer": "https://issuer", "sasl.oauthbearer.expected.audience": "kafka"}


@pytest.mark.parametrize(
    "name", ["ssl.cipher.suites", "listener.name.plaintext.ssl.cipher.suites", "zookeeper.ssl.cipher.suites"]
)
def test_suites_of_tls_13_are_all_or_none(name: str) -> None:
    """The library cannot leave one out, and the operator is told."""
    (warning,) = BrokerConfig.of({name: "TLS_AES_256_GCM_SHA384"}).warnings
    assert warning.startswith(f"{name} has TLS_AES_256_GCM_SHA384, but TLS 1.3 cannot be limited")
    for suites in (ALL, OLDER, f"{OLDER},{ALL}", ""):
        assert BrokerConfig.of({name: suites}).warnings == ()


def test_tokens_of_any_issuer_and_for_anybody_are_warned_of() -> None:
    """Unset means unchecked."""
    issuer, audience = BrokerConfig.of(TOKENS).warnings
    assert issuer == (
        "sasl.oauthbearer.expected.issuer is not set for the listener SASL_PLAINTEXT, which accepts tokens of every "
        "issuer whose keys are known"
    )
    assert audience == (
        "sasl.oauthbearer.expected.audience is not set for the listener SASL_PLAINTEXT, which accepts tokens for every "
        "other service"
    )
    assert BrokerConfig.of({**TOKENS, **RULES}).warnings == ()
    assert BrokerConfig.of({"listeners": "PLAINTEXT://:9092"}).warnings == ()


def test_rules_of_one_listener_count_for_it() -> None:
    """Also with the name of the mechanism."""
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    own = {prefix + name: value for name, value in RULES.items()}
    assert BrokerConfig.of({**TOKENS, **own}).warnings == ()
