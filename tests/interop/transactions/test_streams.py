"""Kafka Streams with `processing.guarantee=exactly_once_v2`, on our broker as on Kafka's."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.faults.cluster import Cluster
from tests.interop.clients import confluent
from tests.interop.conftest import CreateTopic
from tests.interop.transactions import librdkafka
from tests.kit.apache_kafka import STREAMS
from tests.kit.broker_process import BrokerProcess, clean_environment, topic_name
from tests.kit.guarded_process import GuardedProcess
from tests.kit.kafka_process import kafka_command, kafka_or_skip
from tests.kit.waiting import DEADLINE_S, until

from ottla.broker.coordination.placement import TRANSACTION_STATE

SOURCE = Path(__file__).with_name("StreamsCount.java")
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
PARTITIONS = len(REPLICAS)

pytestmark = pytest.mark.long


class Counting:
    """The program that counts words, and what it has to count."""

    def __init__(self, bootstrap: str, folder: Path, group: str, source: str, target: str) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._arguments = (bootstrap, group)
        self._topics = (source, target)
        self._sent = 0
        self.log = folder / "streams.log"

    @contextmanager
    def run(self, where: str, ending: signal.Signals) -> Iterator[GuardedProcess]:
        """Run it with a folder for its state, and end it with a signal."""
        said_before = self.log.stat().st_size if self.log.exists() else 0
        arguments = (*self._arguments, str(self._folder / where), *self._topics)
        log4j = self._folder / "log4j.properties"
        command = kafka_command(str(SOURCE), *arguments, log4j=log4j, libs=STREAMS)
        process = GuardedProcess(command, self.log, clean_environment())
        try:
            until(lambda: b"state RUNNING" in self.log.read_bytes()[said_before:], "the program runs")
            yield process
            assert process.poll() is None, "the program has failed"
        finally:
            process.end(ending)

    def send(self, each: int) -> None:
        """Send every word so many times, to all partitions of the source."""
        with confluent.producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True}) as client:
            self._produce(client, each)

    def _produce(self, client: Producer, each: int) -> None:
        source, _ = self._topics
        for number in range(each):
            for word in WORDS:
                client.produce(source, word.encode(), partition=number % PARTITIONS)
        assert client.flush(DEADLINE_S) == 0
        self._sent += each

    def counts(self) -> dict[str, list[int]]:
        """Return the counts of each word, as a reader of committed records finds them at the moment."""
        _, target = self._topics
        found: dict[str, list[int]] = {}
        for partition in range(PARTITIONS):
            for word, value in librdkafka.read_now(self._bootstrap, target, "read_committed", partition):
                found.setdefault(word.decode(), []).append(int(value))
        return found

    def wait_for(self, total: int) -> None:
        """Wait until so many counts of all words are there."""
        until(lambda: sum(map(len, self.counts().values())) >= total, f"{total} counts")

    def wait_for_all(self) -> None:
        """Wait until everything that was sent is counted."""
        self.wait_for(self._sent * len(WORDS))

    def check(self) -> None:
        """Expect each count of each word once, in order; no transaction is open any more."""
        _, target = self._topics
        for partition in range(PARTITIONS):
            librdkafka.wait_for_markers(self._bootstrap, target, partition)
        assert self.counts() == {word: list(range(1, self._sent + 1)) for word in WORDS}


def test_words_are_counted_exactly_once_through_restarts(
    broker: BrokerProcess, create_topic: CreateTopic, group: str, tmp_path: Path
) -> None:
    """The program is killed amid its work, goes on elsewhere and comes back; the broker is restarted meanwhile."""
    kafka_or_skip(STREAMS)
    source, target = create_topic(PARTITIONS), create_topic(PARTITIONS)
    counting = Counting(broker.bootstrap, tmp_path, group, source, target)
    counting.send(20)
    with counting.run("here", signal.SIGKILL):
        counting.wait_for_all()
        counting.send(200)
        counting.wait_for(200)
    # Without the files of the first, it reads the counts from their changelog.
    with counting.run("there", signal.SIGTERM):
        counting.send(50)
        broker.stop()
        broker.start()
        counting.send(50)
        counting.wait_for_all()
    with counting.run("here", signal.SIGTERM):
        counting.send(20)
        counting.wait_for_all()
    counting.check()


def test_words_are_counted_exactly_once_while_brokers_are_killed(cluster: Cluster, group: str, tmp_path: Path) -> None:
    """One after the other: each of them coordinates or leads something."""
    kafka_or_skip(STREAMS)
    source, target = topic_name(), topic_name()
    for topic in (source, target):
        cluster.create_topic(topic, REPLICAS)
    counting = Counting(cluster.bootstrap, tmp_path, group, source, target)
    counting.send(20)
    with counting.run("here", signal.SIGTERM):
        counting.wait_for_all()
        for broker in cluster.brokers.values():
            counting.send(50)
            broker.kill()
            counting.send(50)
            counting.wait_for_all()
            cluster.restore()
            for topic in (source, target, TRANSACTION_STATE, f"{group}-words-repartition", f"{group}-counts-changelog"):
                replicas = until(partial(cluster.state.assignment, topic), f"the replicas of {topic}")
                cluster.wait_for_full_isr(topic, [replicas[number] for number in sorted(replicas)])
    counting.check()
