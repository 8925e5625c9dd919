"""Delegation tokens with Apache Kafka's own tools, clients and brokers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.token_broker import ADMIN, PASSWORD, TokenBroker
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.java_tools import RunTool
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.results import NewTopic
from ottla.client.net.connector import Connector
from ottla.client.net.security import sasl
from ottla.client.net.security.login import SaslLogin
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.sync import Admin, Consumer

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
PRODUCER = "kafka.tools.ConsoleProducer"
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def token_broker(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    """A broker that gives tokens."""
    with TokenBroker(tmp_path_factory.mktemp("tokens"), ZooKeeper(zookeeper_server).connect) as made:
        yield made


def token_in(printed: str) -> Any:
    """Return the last token in a table of Kafka's tool: id, HMAC, owner and so on in columns."""
    row = printed.strip().splitlines()[-1].split()
    return SimpleNamespace(token_id=row[0], hmac=row[1], owner=row[2])


def test_kafkas_tool_creates_renews_describes_and_ends_tokens(
    token_broker: TokenBroker, tmp_path: Path, run_tool: RunTool
) -> None:
    """And Kafka's producer logs in with one."""
    login = tmp_path / "login.properties"
    login.write_text(token_broker.properties)
    where = ("--bootstrap-server", token_broker.bootstrap, "--command-config", str(login))
    made = run_tool(TOKENS, *where, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token = token_in(made)
    assert token.owner == f"User:{ADMIN}"

    topic = topic_name()
    with Admin(**token_broker.options()) as admin:
        admin.create_topics([NewTopic(topic)])
    by_token = tmp_path / "token.properties"
    by_token.write_text(token_broker.token_properties(token))
    producer = ("--bootstrap-server", token_broker.bootstrap, "--topic", topic, "--producer.config", str(by_token))
    run_tool(PRODUCER, *producer, standard_input="from Java\n")
    with Consumer(topic, **token_broker.token_options(token), auto_offset_reset="earliest") as consumer:
        assert consumer.getone().value == b"from Java"

    renewed = run_tool(TOKENS, *where, "--renew", "--renew-time-period", "3600000", "--hmac", token.hmac)
    assert "Completed renew operation" in renewed
    assert token.token_id in run_tool(TOKENS, *where, "--describe", "--owner-principal", f"User:{ADMIN}")
    run_tool(TOKENS, *where, "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    assert not re.search(re.escape(token.token_id), run_tool(TOKENS, *where, "--describe"))


class KafkaTokenBroker(KafkaProcess, TokenBroker):
    """The same broker, as Apache Kafka's."""


def asked(broker: BrokerProcess, login: SaslLogin, api: Api, version: int, message: Message) -> Any:
    """Send a request to one broker, after a login; return the response."""
    connection = Connector(login=login).connection(
        broker.host, broker.port, client_id="test", connect_timeout_ms=SECONDS_MAX * 1000, request_timeout_ms=60_000
    )
    with closing(connection):
        return connection.request(api, version, message)


ADMINISTRATOR = SaslLogin("PLAIN", lambda: sasl.plain(ADMIN, PASSWORD))


def created_at(broker: BrokerProcess) -> Any:
    """Have one broker create a token."""
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    token = asked(broker, ADMINISTRATOR, Api.CREATE_DELEGATION_TOKEN, 3, request)
    assert token.error_code == 0
    return token


def logs_in(broker: BrokerProcess, token: Any, mechanism: str) -> bool:
    """Whether one broker accepts a token."""
    password = base64.b64encode(token.hmac).decode()
    login = SaslLogin(mechanism, lambda: sasl.scram(mechanism, token.token_id, password, by_token=True))
    try:
        asked(
            broker, login, Api.DESCRIBE_CLUSTER, 0, DescribeClusterRequest(include_cluster_authorized_operations=False)
        )
    except KafkaError as error:
        if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    return True


def is_refused(broker: BrokerProcess, token: Any) -> bool:
    """Whether one broker does not accept a token."""
    return not logs_in(broker, token, "SCRAM-SHA-512")


@pytest.mark.long
def test_a_token_of_one_kind_of_broker_is_accepted_by_the_other(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Whoever made it; and whoever ends it, it has ended everywhere."""
    kafka_or_skip()
    zookeeper = ZooKeeper(zookeeper_server).connect
    with (
        TokenBroker(tmp_path / "ours", zookeeper, broker_id=1) as ours,
        KafkaTokenBroker(tmp_path / "kafka", zookeeper, broker_id=2) as kafka,
    ):
        for maker, other in ((ours, kafka), (kafka, ours)):
            token = created_at(maker)
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                until(partial(logs_in, other, token, mechanism), "the other broker accepts the token")
            described = asked(
                other, ADMINISTRATOR, Api.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest(owners=None)
            )
            assert [each.token_id for each in described.tokens] == [token.token_id]
            renewal = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=100_000)
            assert asked(other, ADMINISTRATOR, Api.RENEW_DELEGATION_TOKEN, 2, renewal).error_code == 0
            end = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
            assert asked(other, ADMINISTRATOR, Api.EXPIRE_DELEGATION_TOKEN, 2, end).error_code == 0
            until(partial(is_refused, maker, token), "the token has ended")
