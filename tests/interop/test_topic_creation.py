"""Topics that are made because somebody uses them, and those that cannot be."""

from __future__ import annotations

import pytest
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import Client, Sent
from tests.interop.raw import RawConnection, retrying
from tests.kit.broker_process import BrokerProcess, MakeBroker, topic_name

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import UUID_ZERO

METADATA_VERSION = 9
BEFORE_CREATION_COULD_BE_FORBIDDEN = 3


def ask(broker: BrokerProcess, topic: str, *, may_create: bool, version: int = METADATA_VERSION) -> ErrorCode:
    """Ask for the metadata of a topic and return the code of the answer."""
    body = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=UUID_ZERO, name=topic)], allow_auto_topic_creation=may_create
    )
    with RawConnection(broker.bootstrap) as connection:
        (answer,) = connection.request(Api.METADATA, version, body).topics
    return ErrorCode.of(answer.error_code)


def exists(broker: BrokerProcess, topic: str) -> bool:
    """Whether there is such a topic; asking does not create it."""
    return ask(broker, topic, may_create=False) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_made_when_a_client_produces_to_it(client: Client, broker: BrokerProcess) -> None:
    """And the first records are not lost."""
    topic = topic_name()
    client.produce(broker.bootstrap, topic, [Sent(b"first"), Sent(b"second")])

    assert [record.value for record in client.consume(broker.bootstrap, topic, 2)] == [b"first", b"second"]


def test_a_topic_is_made_only_when_that_is_asked_for(broker: BrokerProcess) -> None:
    """Clients that only look do not create; old ones cannot say so."""
    topic = topic_name()

    assert ask(broker, topic, may_create=False) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not exists(broker, topic)
    assert ask(broker, topic, may_create=True) is ErrorCode.LEADER_NOT_AVAILABLE
    with RawConnection(broker.bootstrap) as connection:
        assert retrying(lambda: connection.end_offset(topic)) == 0
    old = topic_name()
    assert ask(broker, old, may_create=True, version=BEFORE_CREATION_COULD_BE_FORBIDDEN) in (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NONE,
    )
    with RawConnection(broker.bootstrap) as connection:
        assert retrying(lambda: connection.end_offset(old)) == 0


def test_a_broker_may_forbid_it(make_broker: MakeBroker) -> None:
    """With auto.create.topics.enable=false, topics come from administrators alone."""
    broker = make_broker("auto.create.topics.enable=false")
    topic = topic_name()

    assert ask(broker, topic, may_create=True) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(topic))
    assert Confluent().produce(broker.bootstrap, topic, [Sent(b"value")]) == [0]


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "slash/", "ümlaut", "colon:", "x" * 250])
def test_a_name_that_no_topic_may_have_is_refused(name: str, broker: BrokerProcess) -> None:
    """Whether it is asked for or used."""
    with RawConnection(broker.bootstrap) as connection, pytest.raises(KafkaError) as refusal:
        retrying(lambda: connection.create_topic(name))

    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ask(broker, name, may_create=True) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_would_be_one_metric_collide(broker: BrokerProcess) -> None:
    """A dot and an underscore in the same place are too much alike."""
    name = topic_name()
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(f"{name}.a_b"))
        with pytest.raises(KafkaError) as refusal:
            connection.create_topic(f"{name}_a.b")

    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "topic_name_may_collide" in broker.output()
