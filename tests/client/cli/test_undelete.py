"""A topic that was deleted by mistake comes back, with its records, options and committed offsets."""

from __future__ import annotations

from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until

from ottla.protocol.identifiers import TopicPartition
from ottla.sync import Consumer, Producer

COUNT = 100


def read_and_commit(broker: BrokerProcess, topic: str, group: str, count: int) -> list[bytes]:
    """Read records for a group, and commit."""
    values: list[bytes] = []
    with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10,
    ) as consumer:
        until(
            lambda: len(values) >= count,
            lambda: f"{len(values)} of {count} records",
            meanwhile=lambda: values.extend(
                record.value or b"" for each in consumer.poll(timeout_ms=500).values() for record in each
            ),
        )
        consumer.commit({TopicPartition(topic, 0): int(values[-1]) + 1})
    return values


def test_a_deleted_topic_comes_back_over_a_restart(make_broker: MakeBroker, ottla: Ottla, topic: str) -> None:
    """Under its name, or under another if the name was taken meanwhile; a group reads on where it was."""
    broker = make_broker("ottla.topic.undelete.ms=600000", "offsets.topic.num.partitions=1")
    at = broker.bootstrap
    assert ottla("topic", "create", topic, "-c", "retention.ms=123456789", bootstrap=at).code == 0
    with Producer(bootstrap_servers=at) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)
        producer.flush()
    read = read_and_commit(broker, topic, "readers", 10)

    assert ottla("topic", "delete", topic, "--yes", bootstrap=at).code == 0
    assert topic not in ottla("group", "describe", "readers", bootstrap=at).out
    # As in Kafka, the name is free a moment after all brokers have forgotten the topic.
    until(lambda: ottla("topic", "create", topic, bootstrap=at).code == 0, "the name can be taken")
    broker.kill()
    broker.start()
    (listed,) = ottla("topic", "deleted", "--format", "json", bootstrap=at).items
    assert listed["name"] == topic
    refused = ottla("topic", "undelete", topic, bootstrap=at)
    assert (refused.code, f"ottla topic undelete {topic} --as NAME" in refused.err) == (1, True)
    assert ottla("topic", "undelete", topic, "--as", f"{topic}-2", bootstrap=at).code == 0

    assert (
        '"retention.ms": "123456789"' in ottla("topic", "describe", f"{topic}-2", "--format", "json", bootstrap=at).out
    )
    read += read_and_commit(broker, f"{topic}-2", "readers", COUNT - len(read))
    assert [int(value) for value in read] == list(range(COUNT))
    # Once more, under its own name.
    assert ottla("topic", "delete", topic, f"{topic}-2", "--yes", bootstrap=at).code == 0
    until(
        lambda: ottla("topic", "undelete", f"{topic}-2", "--as", topic, bootstrap=at).code == 0, "the name can be taken"
    )
    lags = ottla("group", "lag", "readers", "--format", "json", bootstrap=at).items
    assert [(each["topic"], each["lag"]) for each in lags] == [(topic, 0)]
