"""Tokens for OAUTHBEARER from an issuer that really answers over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.clock import FakeClock
from tests.kit.token_issuer import CLIENT_ID, CLIENT_SECRET, HttpAnswer, TokenIssuer

from ottla.client.errors import KafkaConfigurationError, KafkaConnectionError, SaslAuthenticationFailedError
from ottla.client.net.security.token_endpoint import ClientCredentials, TokenEndpoint
from ottla.client.net.settings import ClientSettings

BEARER: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    """An issuer with one client."""
    with TokenIssuer() as made:
        yield made


def endpoint(issuer: TokenIssuer, clock: FakeClock[float] | None = None, **changes: Any) -> TokenEndpoint:
    """The issuer's token endpoint, for the client that it knows."""
    given = {"url": issuer.token_url, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, **changes}
    credentials = ClientCredentials(**given)
    return TokenEndpoint(credentials) if clock is None else TokenEndpoint(credentials, clock)


def test_a_token_is_kept_until_it_is_about_to_expire(issuer: TokenIssuer) -> None:
    """One request for all connections, and the next one before the end of the lifetime."""
    clock = FakeClock(1_000_000.0)
    issuer.answer = lambda _path: HttpAnswer(200, json.dumps({"access_token": "opaque", "expires_in": 100}).encode())
    tokens = endpoint(issuer, clock)
    for _ in range(10):
        assert tokens.token() == "opaque"
    clock.now += 79
    tokens.token()
    assert len(issuer.requests) == 1
    clock.now += 1
    tokens.token()
    assert len(issuer.requests) == 2


def test_the_lifetime_of_a_signed_token_is_its_own(issuer: TokenIssuer) -> None:
    """Whatever else the answer says; without any, each login asks."""
    clock = FakeClock(1_000_000.0)
    signed = issuer.token(exp=1_000_010)
    issuer.answer = lambda _path: HttpAnswer(200, json.dumps({"access_token": signed, "expires_in": 9999}).encode())
    tokens = endpoint(issuer, clock)
    tokens.token()
    clock.now += 8
    tokens.token()
    assert len(issuer.requests) == 2
    issuer.answer = lambda _path: HttpAnswer(200, b'{"access_token":"opaque"}')
    clock.now += 8
    tokens.token()
    tokens.token()
    assert len(issuer.requests) == 4


def test_the_client_says_who_it_is_and_what_it_wants(issuer: TokenIssuer) -> None:
    """The secret in a header, the rest as a form."""
    endpoint(issuer, scope="read write").token()
    assert issuer.forms == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HttpAnswer(401, b'{"error":"invalid_client"}'), SaslAuthenticationFailedError),
        (HttpAnswer(200, b"{}"), SaslAuthenticationFailedError),
        (HttpAnswer(200, b"[" * 100_000), SaslAuthenticationFailedError),
        (HttpAnswer(200, b'{"access_token":"a\\nb"}'), SaslAuthenticationFailedError),
        (HttpAnswer(200, b'{"access_token":7}'), SaslAuthenticationFailedError),
        (HttpAnswer(503, b""), KafkaConnectionError),
        (HttpAnswer(302, b"", {"Location": "http://127.0.0.1:1/"}), KafkaConnectionError),
    ],
)
def test_a_bad_answer_is_an_error_without_the_secret(
    issuer: TokenIssuer, answer: HttpAnswer, error: type[Exception]
) -> None:
    """One that can be retried if the issuer is not well, and one that cannot if it refuses us."""
    issuer.answer = lambda _path: answer
    with pytest.raises(error) as raised:
        endpoint(issuer).token()
    assert CLIENT_SECRET not in str(raised.value)
    assert issuer.requests == ["/token"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "sasl_oauthbearer_token_endpoint_url"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://issuer/token"}, "client_id"),
        (
            {
                "sasl_oauthbearer_token_endpoint_url": "http://issuer/token",
                "sasl_oauthbearer_client_id": "a",
                "sasl_oauthbearer_client_secret": "planted",
            },
            "https",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], says: str) -> None:
    """With what is missing."""
    with pytest.raises(KafkaConfigurationError, match=says) as refused:
        ClientSettings(**BEARER, **options)
    assert "planted" not in str(refused.value)


def test_options_of_java_and_librdkafka_mean_the_same() -> None:
    """A login with a client id, or the options of their own."""
    common = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
    }
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    java = {
        **common,
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
        "OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{module} required clientId="a" clientSecret="b" scope="c";',
    }
    librdkafka = {
        **common,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "a",
        "sasl.oauthbearer.client.secret": "b",
        "sasl.oauthbearer.scope": "c",
    }
    for options in (java, librdkafka):
        made = ClientSettings.from_config(options)
        assert (made.sasl_oauthbearer_client_id, made.sasl_oauthbearer_scope) == ("a", "c")
        assert made.sasl_oauthbearer_client_secret == "b"
        assert made.sasl_oauth_token_provider is not None
