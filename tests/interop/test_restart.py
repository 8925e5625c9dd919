"""What a broker keeps when it stops, and when it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pytest
from confluent_kafka import TopicPartition
from tests.interop.clients import aio, confluent, python
from tests.interop.clients.all import LIBRARIES, client_name
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import DEADLINE_S, Client, Producing, Received, Sent, plain
from tests.interop.raw import RawConnection, one_record, retrying
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import UUID_ZERO

COUNT = 100
RECORDS = [
    Sent(b"value %d" % number, b"key", (("number", b"%d" % number),), 1_700_000_000_000 + number)
    for number in range(COUNT)
]
CONFIGS = {"retention.ms": "1234567", "max.message.bytes": "2000000"}
INIT_PRODUCER_ID_VERSION = 4
METADATA_VERSION = 12
# A killed broker is missed after this time, and started again only then.
SESSION_TIMEOUT_MS = 6000


@dataclass(frozen=True, slots=True)
class Restarted:
    """A broker in its second life, with what was there in its first."""

    broker: BrokerProcess
    topic: str
    topic_id: bytes
    deleted: str
    # Of an idempotent producer that sent three batches to a topic of its own.
    producer_id: int
    producer_topic: str
    # Consumers that had read half of the topic. kafka-python is not among them: it forgets to close the sockets with
    # which it tries to reconnect.
    confluent_consumer: Any
    aiokafka_consumer: _AioConsumer


class _AioConsumer:
    """A consumer of aiokafka on a loop that runs only while somebody receives."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._start(bootstrap, topic))

    async def _start(self, bootstrap: str, topic: str) -> Any:
        client = aio.consumer(bootstrap)
        await client.start()
        client.assign([aio.TopicPartition(topic, 0)])
        client.seek(aio.TopicPartition(topic, 0), 0)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.stop())
        self._runner.close()

    def receive(self, count: int) -> list[Received]:
        """Return the next records."""
        return self._runner.run(asyncio.wait_for(aio.receive(self._client, count), DEADLINE_S))


@pytest.fixture(scope="module", params=["stop", "kill"])
def restarted(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Restarted]:
    """A broker that was used, then stopped or killed, and started again."""
    connect = ZooKeeper(zookeeper_server).connect
    timeout = f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}"
    broker = BrokerProcess(tmp_path_factory.mktemp("restarted"), connect, timeout)
    topic, deleted, producer_topic = topic_name(), topic_name(), topic_name()
    with ExitStack() as stack:
        stack.enter_context(broker)
        with RawConnection(broker.bootstrap) as connection:
            topic_id = retrying(lambda: connection.create_topic(topic, 2, CONFIGS))
            connection.create_topic(producer_topic)
            producer_id = _produce_three_batches(connection, producer_topic)
        Confluent().produce(broker.bootstrap, topic, RECORDS, Producing(codec="gzip", linger_ms=5))
        with python.admin(broker.bootstrap) as admin:
            admin.create_topics([deleted])
            admin.delete_topics([deleted])
        of_confluent = stack.enter_context(confluent.consumer(broker.bootstrap))
        of_confluent.assign([TopicPartition(topic, 0, 0)])
        assert plain(confluent.receive(of_confluent, COUNT // 2)) == RECORDS[: COUNT // 2]
        of_aiokafka = stack.enter_context(_AioConsumer(broker.bootstrap, topic))
        assert plain(of_aiokafka.receive(COUNT // 2)) == RECORDS[: COUNT // 2]

        if request.param == "stop":
            assert broker.stop() == 0
        else:
            broker.kill()
        broker.start()
        with RawConnection(broker.bootstrap) as connection:
            for each in (topic, producer_topic):
                retrying(partial(connection.end_offset, each))
        yield Restarted(broker, topic, topic_id, deleted, producer_id, producer_topic, of_confluent, of_aiokafka)


def _produce_three_batches(connection: RawConnection, topic: str) -> int:
    body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    producer_id: int = connection.request(Api.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body).producer_id
    for sequence in range(3):
        batch = one_record(b"%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        assert connection.produce(topic, batch) == sequence
    return producer_id


@pytest.mark.parametrize("client", LIBRARIES, ids=client_name)
def test_records_are_kept(client: Client, restarted: Restarted) -> None:
    """Every acknowledged record is there, as it was."""
    assert plain(client.consume(restarted.broker.bootstrap, restarted.topic, COUNT)) == RECORDS


def test_topics_keep_their_ids_partitions_and_options(restarted: Restarted) -> None:
    """The topic is the same one, and what was deleted stays deleted."""
    names = [restarted.topic, restarted.deleted]
    body = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=UUID_ZERO, name=name) for name in names], allow_auto_topic_creation=False
    )
    with RawConnection(restarted.broker.bootstrap) as connection:
        kept, deleted = connection.request(Api.METADATA, METADATA_VERSION, body).topics
    assert (kept.topic_id, kept.error_code) == (restarted.topic_id, ErrorCode.NONE)
    assert [partition.leader_id for partition in kept.partitions] == [restarted.broker.broker_id] * 2
    assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with python.admin(restarted.broker.bootstrap) as admin:
        found = admin.describe_configs([python.ConfigResource("topic", restarted.topic)])["topic"][restarted.topic]
    assert {name: option["value"] for name, option in found.items()} == CONFIGS


def test_options_of_a_topic_are_in_force_again(restarted: Restarted) -> None:
    """A record above the default limit is taken where the topic's own is higher."""
    big = Sent(b"x" * 1_500_000)
    offsets = Confluent().produce(
        restarted.broker.bootstrap, restarted.topic, [big], Producing(request_bytes_max=1_900_000), partition=1
    )

    assert offsets == [0]


def test_a_duplicate_from_before_is_recognised(restarted: Restarted) -> None:
    """The last batch again gets the offset that it had; a snapshot of producers remembers no more than that one."""
    batch = one_record(b"2", producer_id=restarted.producer_id, producer_epoch=0, base_sequence=2)
    with RawConnection(restarted.broker.bootstrap) as connection:
        assert connection.produce(restarted.producer_topic, batch) == 2
        assert connection.end_offset(restarted.producer_topic) == 3


def test_a_gap_in_the_sequence_is_noticed(restarted: Restarted) -> None:
    """A producer whose batches went missing is told so."""
    batch = one_record(b"gap", producer_id=restarted.producer_id, producer_epoch=0, base_sequence=7)
    with RawConnection(restarted.broker.bootstrap) as connection, pytest.raises(KafkaError) as refusal:
        connection.produce(restarted.producer_topic, batch)

    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_ids_are_not_given_again(restarted: Restarted) -> None:
    """A new producer is not taken for one from before."""
    body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    with RawConnection(restarted.broker.bootstrap) as connection:
        new = connection.request(Api.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body).producer_id

    assert new > restarted.producer_id


def test_consumers_continue_where_they_were(restarted: Restarted) -> None:
    """They reconnect by themselves, and miss and repeat nothing."""
    rest = RECORDS[COUNT // 2 :]

    assert plain(confluent.receive(restarted.confluent_consumer, len(rest))) == rest
    assert plain(restarted.aiokafka_consumer.receive(len(rest))) == rest
