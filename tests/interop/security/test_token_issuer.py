"""OAUTHBEARER with an issuer of tokens: brokers fetch its keys, and all kinds of clients fetch their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.java_tools import RunTool
from tests.kit.token_issuer import CLIENT_ID, CLIENT_SECRET, TokenIssuer
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.errors import SaslAuthenticationFailedError
from ottla.sync import Admin, Consumer

DEADLINE_S = 60.0
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN = f'{MODULE} required clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" scope="brokers";'
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    """The issuer of all tokens here."""
    with TokenIssuer() as made:
        yield made


@pytest.fixture(scope="module")
def broker(
    issuer: TokenIssuer, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker that trusts the issuer, and logs in to itself with a token of its own."""
    options = (
        "sasl.enabled.mechanisms=OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url={issuer.keys_url}",
        f"sasl.oauthbearer.expected.issuer={issuer.url}",
        f"sasl.oauthbearer.token.endpoint.url={issuer.token_url}",
        f"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={LOGIN}",
    )
    folder, connect = tmp_path_factory.mktemp("bearer"), ZooKeeper(zookeeper_server).connect
    with BrokerProcess(folder, connect, *options, protocol="SASL_PLAINTEXT") as made:
        yield made


def options_of(broker: BrokerProcess, issuer: TokenIssuer) -> dict[str, Any]:
    """The options of our clients."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": issuer.token_url,
        "sasl_oauthbearer_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_secret": CLIENT_SECRET,
    }


def test_brokers_and_clients_log_in_with_tokens_of_the_issuer(
    broker: BrokerProcess, issuer: TokenIssuer, tmp_path: Path, run_tool: RunTool
) -> None:
    """Ours, librdkafka's and Java's; each client asks once for all its connections."""
    assert {"scope": ["brokers"], "grant_type": ["client_credentials"]} in issuer.forms
    topic, common = topic_name(), {"bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT"}
    librdkafka = Producer(
        {
            **common,
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
        }
    )
    librdkafka.produce(topic, b"librdkafka")
    assert librdkafka.flush(DEADLINE_S) == 0

    java = {
        **common,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": LOGIN,
        "sasl.login.callback.handler.class": HANDLER,
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
    }
    path = tmp_path / "java.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in java.items()))
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    run_tool(CONSOLE_PRODUCER, *where, "--producer.config", str(path), standard_input="java\n")

    asked = len(issuer.forms)
    with Consumer(topic, **options_of(broker, issuer), group_id="readers", auto_offset_reset="earliest") as consumer:
        assert {consumer.getone().value for _ in range(2)} == {b"librdkafka", b"java"}
    assert len(issuer.forms) == asked + 1
    # The file for Java's clients is one for ours, too.
    with Admin.from_config(path) as admin:
        assert topic in {each.name for each in admin.list_topics()}


def test_a_client_that_the_issuer_does_not_know_is_told(broker: BrokerProcess, issuer: TokenIssuer) -> None:
    """At once, and without its secret."""
    options = options_of(broker, issuer) | {"sasl_oauthbearer_client_secret": "planted-wrong"}
    with pytest.raises(SaslAuthenticationFailedError, match="401") as refused, Admin(**options) as admin:
        admin.list_topics()
    assert "planted" not in str(refused.value)
    assert CLIENT_SECRET not in broker.output()
