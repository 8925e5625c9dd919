"""The synchronous twins on a real broker."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.client.consumer.consuming import group_name
from tests.kit.broker_process import BrokerProcess

import ottla.client.admin.admin
import ottla.client.consumer.consumer
import ottla.client.producer.producer
from ottla.client.admin.results import NewTopic
from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
from ottla.client.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NoBrokersAvailable,
    UnknownTopicOrPartitionError,
)
from ottla.client.local_cluster.ports import free_port
from ottla.client.sync.send_queue import WAITING_MAX
from ottla.client.types import RecordMetadata, TopicPartition
from ottla.sync import Admin, Consumer, Producer

LOOP_THREAD = "ottla-sync"


@pytest.mark.parametrize(
    ("twin", "client"),
    [
        (Producer, ottla.client.producer.producer.Producer),
        (Consumer, ottla.client.consumer.consumer.Consumer),
        (Admin, ottla.client.admin.admin.Admin),
    ],
)
def test_a_twin_has_all_that_its_client_has(twin: type[Any], client: type[Any]) -> None:
    """Under the same names, with the same arguments, and without coroutines."""
    for name, method in inspect.getmembers(client, inspect.isfunction):
        if name.startswith("_"):
            continue
        ours = getattr(twin, name)
        assert not inspect.iscoroutinefunction(ours), name
        assert [*inspect.signature(ours).parameters] == [*inspect.signature(method).parameters], name


def test_records_come_back_as_they_were_sent(broker: BrokerProcess, topic: str) -> None:
    """Topics are made, records written and read, offsets committed, in plain calls."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1)])
        assert topic in {each.name for each in admin.list_topics()}
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(100)]
        assert [future.result(30).offset for future in futures] == [*range(100)]
        assert producer.send_and_wait(topic, b"100", key=b"last").offset == 100

    partition = TopicPartition(topic, 0)
    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group_name(),
        "auto_offset_reset": "earliest",
    }
    with Consumer(topic, consumer_timeout_ms=10_000, **options) as consumer:
        values = []
        for record in consumer:
            values.append(record.value)
            if record.key == b"last":
                break
        assert values == [b"%d" % number for number in range(101)]
        consumer.commit({partition: 40})
        assert consumer.committed(partition) == 40
        consumer.seek(partition, 99)
        assert [record.offset for record in consumer.getmany(timeout_ms=10_000)[partition]] == [99, 100]
    assert not [thread for thread in threading.enumerate() if thread.name == LOOP_THREAD]


def test_threads_share_a_producer(broker: BrokerProcess, topic: str) -> None:
    """The records of each are written in its order, also when more are sent than may wait; flush waits for all."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
    count = WAITING_MAX * 2
    futures: dict[bytes, list[Future[RecordMetadata]]] = {b"a": [], b"b": []}

    def send(key: bytes) -> None:
        futures[key].extend(producer.send(topic, b"value", key=key) for _ in range(count))

    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        threads = [threading.Thread(target=send, args=(key,)) for key in futures]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        offsets = {key: [future.result(0).offset for future in some] for key, some in futures.items()}
    assert all(some == sorted(some) for some in offsets.values())
    assert sorted(offsets[b"a"] + offsets[b"b"]) == [*range(2 * count)]


def test_iteration_ends_when_nothing_comes(broker: BrokerProcess, topic: str) -> None:
    """And without consumer_timeout_ms when the consumer is stopped."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
    with Consumer(topic, bootstrap_servers=broker.bootstrap, consumer_timeout_ms=50) as consumer:
        assert [*consumer] == []
    with Consumer(topic, bootstrap_servers=broker.bootstrap) as consumer:
        stopper = threading.Timer(0.05, consumer.stop)
        stopper.start()
        assert [*consumer] == []
        stopper.join()


def test_positions_and_commits_cover_what_an_iteration_handed_out(broker: BrokerProcess, topic: str) -> None:
    """No more, although records are taken ahead; a seek and a pause in the middle hold at once."""
    partition = TopicPartition(topic, 0)
    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group_name(),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=100) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
        producer.flush()

    def read(count: int) -> list[int]:
        return [record.offset for record in islice(consumer, count)]

    with Consumer(topic, consumer_timeout_ms=60_000, **options) as consumer:
        assert read(10) == [*range(10)]
        assert consumer.position(partition) == 10
        consumer.commit()
        assert read(10) == [*range(10, 20)]
        assert consumer.committed(partition) == 10
        assert consumer.getone().offset == 20
        assert read(2) == [21, 22]
        consumer.seek(partition, 50)
        assert read(2) == [50, 51]
        assert [record.offset for record in consumer.getmany(max_records=3, timeout_ms=60_000)[partition]] == [
            52,
            53,
            54,
        ]
        assert read(45) == [*range(55, 100)]
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert read(2) == [0, 1]
        consumer.pause(partition)
        assert consumer.getmany(timeout_ms=100) == {}
        consumer.resume(partition)
        assert read(1) == [2]


def test_auto_commit_covers_what_an_iteration_is_done_with(broker: BrokerProcess, topic: str) -> None:
    """All but the record at which it failed."""
    partition = TopicPartition(topic, 0)
    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group_name(),
        "auto_offset_reset": "earliest",
    }
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=100) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
        producer.flush()

    def fail_at_42() -> None:
        with Consumer(topic, consumer_timeout_ms=60_000, auto_commit_interval_ms=60_000, **options) as consumer:
            for record in consumer:
                1 // (record.offset - 42)

    with pytest.raises(ZeroDivisionError):
        fail_at_42()
    with Consumer(topic, consumer_timeout_ms=60_000, **options) as consumer:
        assert consumer.committed(partition) == 42
        assert next(consumer).offset == 42


def test_a_call_ends_with_its_time(broker: BrokerProcess, topic: str) -> None:
    """It is cancelled, and the client goes on."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
    with Consumer(topic, bootstrap_servers=broker.bootstrap, call_timeout_ms=1000) as consumer:
        with pytest.raises(KafkaTimeoutError, match="1000 ms"):
            consumer.getone()
        assert consumer.partitions_for_topic(topic) == {0}


def test_errors_arrive_at_the_caller(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    """Those of the call by the call, those of a record by its future, and those of wrong use at once."""
    with pytest.raises(KafkaConfigurationError):
        Producer(colour="red")  # type: ignore[call-arg]
    with pytest.raises(NoBrokersAvailable), Admin(bootstrap_servers=f"127.0.0.1:{free_port('127.0.0.1')}"):
        pass
    with pytest.raises(IllegalStateError, match="does not run"):
        Producer(bootstrap_servers=broker.bootstrap).flush()

    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    with Admin.from_config(config) as admin:
        admin.create_topics([NewTopic(topic, configs={"max.message.bytes": "1000"})])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.describe_topics(["no-such-topic"])
    with Producer.from_config(config) as producer:
        with pytest.raises(TypeError):
            producer.send(topic, 5).result(30)
        future = producer.send(topic, bytes(2000))
        with pytest.raises(MessageSizeTooLargeError):
            future.result(30)


def test_a_listener_may_call_its_consumer(broker: BrokerProcess, topic: str) -> None:
    """It runs beside the event loop, so a blocking call in it does not wait for itself."""
    other = f"{topic}-other"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic), NewTopic(other)])
    ends: dict[TopicPartition, int] = {}

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            ends.update(consumer.end_offsets(assigned))

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            if TopicPartition(other, 0) not in ends:
                consumer.commit(dict.fromkeys(revoked, 7))

    options: dict[str, Any] = {"group_id": group_name(), "partition_assignment_strategy": "range"}
    with Consumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False, **options) as consumer:
        consumer.subscribe([topic], listener=Listener())
        while TopicPartition(topic, 0) not in ends:
            consumer.getmany(timeout_ms=100)
        consumer.subscribe([topic, other])
        while TopicPartition(other, 0) not in ends:
            consumer.getmany(timeout_ms=100)
        assert ends == {TopicPartition(topic, 0): 0, TopicPartition(other, 0): 0}
        assert consumer.committed(TopicPartition(topic, 0)) == 7
