"""The audit stream of a real broker: what clients did stands in its topic, and nothing secret with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.token_broker import PASSWORD, SECRET, TokenBroker
from tests.kit.broker_process import topic_name
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.results import ConfigResource, NewTopic
from ottla.client.admin.security_results import AclBinding, AclOperation, ResourceType, ScramCredentialUpsertion
from ottla.client.errors import InvalidTopicError, SaslAuthenticationFailedError, TopicAuthorizationFailedError
from ottla.protocol.config_resources import ConfigResourceType
from ottla.sync import Admin, Consumer, Producer

TOPIC = "__ottla_audit"


@pytest.fixture(scope="module")
def broker(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    """A broker with its audit stream in a topic."""
    folder, connect = tmp_path_factory.mktemp("audit"), ZooKeeper(zookeeper_server).connect
    with TokenBroker(folder, connect, "ottla.audit=topic") as made:
        yield made


def stream(broker: TokenBroker, last: dict[str, str]) -> list[dict[str, Any]]:
    """Read the stream up to an event with these fields."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        with Consumer(TOPIC, **broker.options(), auto_offset_reset="earliest", consumer_timeout_ms=500) as consumer:
            found[:] = [json.loads(record.value or b"") for record in consumer]
        return any(last.items() <= event.items() for event in found)

    until(is_there, f"{last} is in the stream")
    return found


def test_what_clients_do_stands_in_the_topic(broker: TokenBroker) -> None:
    """Logins, refusals and changes; by whom, and what was there before."""
    topic = topic_name()
    with Admin(**broker.options()) as admin:
        admin.create_topics([NewTopic(topic, configs={"retention.ms": "1000"})])
        admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, topic): {"retention.ms": "2000"}})
        admin.create_acls([AclBinding("User:alice", AclOperation.DESCRIBE, ResourceType.TOPIC, topic)])
        admin.alter_user_scram_credentials([ScramCredentialUpsertion("carol", "planted-password-x")])
        admin.alter_client_quotas([({"user": "alice"}, {"producer_byte_rate": 1e6})])
        token = admin.create_delegation_token()
    with (
        pytest.raises(TopicAuthorizationFailedError),
        Producer(**broker.options("alice"), enable_idempotence=False) as producer,
    ):
        producer.send_and_wait(topic, b"x")
    wrong = broker.options("bob") | {"sasl_plain_password": "planted-password-y"}
    with pytest.raises(SaslAuthenticationFailedError), Admin(**wrong) as stranger:
        stranger.list_topics()
    with Admin(**broker.options()) as admin:
        admin.delete_topics([topic])

    events = stream(broker, {"event": "topic_deleted", "resource": f"Topic:{topic}"})
    by_event = {event["event"]: event for event in events}
    assert by_event["options_altered"]["change"] == {"retention.ms": ["1000", "2000"]}
    assert by_event["acls_created"]["change"]["acls"] == ["Allow User:alice Describe from *"]
    assert by_event["user_altered"]["change"] == {"SCRAM-SHA-512": "set"}
    assert by_event["delegation_token_created"]["resource"] == f"DelegationToken:{token.token_id}"
    denied, failed = by_event["access_denied"], by_event["authentication_failed"]
    assert (denied["principal"], denied["operation"], denied["resource"]) == ("User:alice", "Write", f"Topic:{topic}")
    assert (failed["mechanism"], failed["address"]) == ("PLAIN", "127.0.0.1")
    assert {"login", "quotas_altered"} <= by_event.keys()
    assert all(event["client_id"] for event in events if event["event"] not in ("login", "authentication_failed"))
    text = json.dumps(events)
    assert "planted" not in text
    assert token.hmac not in text
    assert PASSWORD not in text
    assert SECRET not in text


def test_nobody_forges_events(broker: TokenBroker) -> None:
    """The topic is internal: not even the administrator produces to it."""
    with Admin(**broker.options()) as admin:
        admin.create_topics([NewTopic(topic_name())])
        until(lambda: TOPIC in {each.name for each in admin.list_topics(include_internal=True)}, "the topic is there")
    with pytest.raises(InvalidTopicError), Producer(**broker.options()) as producer:
        producer.send_and_wait(TOPIC, b"{}")
