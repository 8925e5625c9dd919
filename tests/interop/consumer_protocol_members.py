"""Members of groups of the new protocol, as librdkafka has them, for the tests of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import confluent_kafka.admin
from confluent_kafka import (
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from tests.interop.raw import RawConnection, retrying
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

# Its stubs do not know everything.
api: Any = confluent_kafka.admin

DEADLINE_S = 60
PARTITIONS = 4
SESSION_MS = 6000

# A member in a process of its own, so that it can be killed.
MEMBER = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
consumer.subscribe([topic])
said = None
while True:
    consumer.poll(0.1)
    has = len(consumer.assignment())
    if has != said:
        print(f"has {has}", flush=True)
        said = has
"""


def create(broker: BrokerProcess, name: str, partitions: int = 1) -> str:
    """Create a topic."""
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(name, partitions, {}))
    return name


def produce(broker: BrokerProcess, topic: str, first: int, count: int) -> None:
    """Write numbers to all partitions in turn."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


class Member:
    """A consumer of the new protocol that remembers what happened to it."""

    def __init__(self, broker: BrokerProcess, group: str, *topics: str, **options: Any) -> None:
        self.events: list[str] = []
        self.values: list[int] = []
        self.errors: list[KafkaError] = []
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        self.consumer = Consumer(settings)
        self.consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._note("got", partitions),
            on_revoke=lambda _, partitions: self._note("gave", partitions),
        )

    def _note(self, event: str, partitions: list[TopicPartition]) -> None:
        # It is also called when nothing is to be added to what there is.
        if partitions:
            self.events.append(f"{event} {len(partitions)}")

    @property
    def has(self) -> set[tuple[str, int]]:
        """What it reads."""
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def poll(self) -> None:
        """Take what there is."""
        message = self.consumer.poll(0.02)
        if message is None:
            return
        error, value = message.error(), message.value()
        if error is not None:
            self.errors.append(error)
        elif value is not None:
            self.values.append(int(value))

    def close(self) -> None:
        """Leave."""
        self.consumer.close()


@contextmanager
def members(broker: BrokerProcess, group: str, count: int, *topics: str, **options: Any) -> Iterator[list[Member]]:
    """Give some members, closed in the end."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            member = Member(broker, group, *topics, **options)
            stack.callback(member.close)
            found.append(member)
        yield found


def poll_until(condition: Callable[[], bool], *polled: Member) -> None:
    """Poll members until something holds."""

    def poll() -> None:
        for member in polled:
            member.poll()

    until(condition, lambda: [(member.has, member.events, member.errors) for member in polled], meanwhile=poll)


def of(topic: str, count: int = PARTITIONS) -> set[tuple[str, int]]:
    """All partitions of a topic."""
    return {(topic, index) for index in range(count)}


def share(topic: str, *found: Member) -> bool:
    """Whether members have a topic among them, evenly."""
    sizes = [len(member.has) for member in found]
    assert sum(sizes) == len(set[tuple[str, int]]().union(*(member.has for member in found)))
    return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1
