"""One broker in each way to be secure: it is its own controller, and reaches itself as other brokers would."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, Message, Producer
from cryptography.hazmat.primitives.asymmetric import ec
from tests.broker.security.certificates import Certificates
from tests.kit.broker_process import BrokerProcess, BrokerStartError, topic_name
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.security_results import ScramCredentialUpsertion
from ottla.client.cli.access.offline_users import store
from ottla.protocol.scram import ScramMechanism

DEADLINE_S = 90
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def zookeeper_path(zookeeper_server: ZooKeeperServer) -> str:
    """Where a cluster of the test's own lives."""
    return ZooKeeper(zookeeper_server).connect


@pytest.fixture
def start(zookeeper_path: str, tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker whose only listener has some protocol."""

    def start_one(protocol: str, options: dict[str, str]) -> BrokerProcess:
        overrides = [f"{name}={value}" for name, value in options.items()]
        return running.enter_context(BrokerProcess(tmp_path / "broker", zookeeper_path, *overrides, protocol=protocol))

    with ExitStack() as running:
        yield start_one


def check(broker: BrokerProcess, options: dict[str, Any]) -> None:
    """Write a record and read it again."""
    assert "no_word_from_controller" not in broker.output(), "it could not talk to itself"
    client = {"bootstrap.servers": broker.bootstrap, "security.protocol": broker.protocol, **options}
    topic = topic_name()
    producer = Producer(client)
    producer.produce(topic, b"value")
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = until(lambda: without_error(consumer.poll(1)), "the record is read", pause_s=0)
    consumer.close()
    assert message.value() == b"value"


def without_error(message: Message | None) -> Message | None:
    """The message, if it is one and no error."""
    return None if message is None or message.error() else message


def test_certificates_on_both_sides(start: StartBroker, tmp_path: Path) -> None:
    """SSL with `ssl.client.auth=required`, among brokers too."""
    certificates = Certificates(tmp_path)
    own = tmp_path / "alice.pem"
    Certificates.write(own, certificates.ca, "alice@example.org", common_name="alice")
    broker = start("SSL", {**certificates.options(), "ssl.client.auth": "required"})
    check(
        broker,
        {
            "ssl.ca.location": str(certificates.truststore),
            "ssl.certificate.location": str(own),
            "ssl.key.location": str(own),
        },
    )


def test_scram_in_the_clear(start: StartBroker, zookeeper_path: str) -> None:
    """SASL_PLAINTEXT, with the broker's own credential in ZooKeeper before its first start."""
    for user in ("broker", "alice"):
        credential = ScramCredentialUpsertion(
            user=user, mechanism=ScramMechanism.SCRAM_SHA_512, password=f"{user}-secret", iterations=4096
        )
        store(zookeeper_path, [credential], DEADLINE_S)
    broker = start(
        "SASL_PLAINTEXT",
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
                f'{SCRAM} required username="broker" password="broker-secret";'
            ),
        },
    )
    check(broker, {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "alice-secret"})
    # The list of options has one with this word in its name.
    assert "secret" not in broker.output().replace("delegation.token.secret.key", "")


def test_signed_tokens(start: StartBroker, tmp_path: Path) -> None:
    """SASL_SSL with OAUTHBEARER; the broker's own token is in a file."""
    certificates = Certificates(tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    keys, token_file = tmp_path / "jwks.json", tmp_path / "token"
    keys.write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "ES256"}]}))
    expires = int(time.time()) + 3600

    def token(user: str) -> str:
        return jwt.encode({"sub": user, "exp": expires}, key, "ES256", headers={"kid": "1"})

    token_file.write_text(token("broker"))
    broker = start(
        "SASL_SSL",
        {
            **certificates.options(),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f'{BEARER} required token_file="{token_file}";',
        },
    )
    check(
        broker,
        {
            "ssl.ca.location": str(certificates.truststore),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token("alice"), float(expires)),
        },
    )


def test_a_broker_that_cannot_be_secure_does_not_start(start: StartBroker, tmp_path: Path) -> None:
    """And says what is missing, in words and without a secret."""
    certificates = Certificates(tmp_path)
    certificates.keystore.write_text("nothing of a key")
    with pytest.raises(BrokerStartError, match=r"listener SSL: .*broker\.pem is not PEM"):
        start("SSL", certificates.options())
    login = f'{PLAIN} required username="b" password="planted" user_b="planted";'
    with pytest.raises(BrokerStartError, match=r"ottla\.sasl\.plain\.allow\.without\.tls=true") as refused:
        start(
            "SASL_PLAINTEXT",
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.jaas.config": login,
            },
        )
    assert "planted" not in refused.value.output
