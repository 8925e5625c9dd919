"""Twenty thousand requests that are nearly right, on several connections: the broker outlives them unchanged."""

from __future__ import annotations

import select
import socket
import urllib.request
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import islice
from typing import Any

import confluent_kafka
from tests.faults.live import MIB, PATIENCE_SECONDS, Client, Process, Said, connect, creatable_topic
from tests.faults.mutation import mutated_frames, recorded_topics
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest

FRAMES = 20_000
ROUNDS = 10
CONNECTIONS = 8
PIPELINED_MAX = 3
# Most requests are answered or refused much sooner; those that wait are left behind.
REACTION_SECONDS = 0.02
# Then the connection is replaced, also when all went well: one of its requests may wait for long.
FRAMES_PER_CONNECTION = 40
MEMORY_GROWTH_BYTES_MAX = 32 * MIB


class Sender:
    """One connection after another to the same broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._socket: socket.socket | None = None
        self._sent = 0

    def send(self, frames: list[bytes]) -> None:
        """Take what the broker did with the frames before, then send some more at once."""
        if self._socket is not None and (self._sent >= FRAMES_PER_CONNECTION or not self._is_open(self._socket)):
            self.close()
        if self._socket is None:
            self._socket = connect(self._broker)
            self._sent = 0
        self._sent += len(frames)
        with suppress(ConnectionError):
            self._socket.sendall(b"".join(frames))

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @staticmethod
    def _is_open(client: socket.socket) -> bool:
        seconds = REACTION_SECONDS
        try:
            while select.select([client], [], [], seconds)[0]:
                if not client.recv(65536):
                    return False
                seconds = 0.0
        except ConnectionError:
            return False
        return True


def attack(broker: BrokerProcess, frames: Iterable[bytes]) -> None:
    """Send all frames, some at a time on each of several connections."""
    left = iter(frames)
    senders = [Sender(broker) for _ in range(CONNECTIONS)]
    turn = 0
    while burst := list(islice(left, 1 + turn % PIPELINED_MAX)):
        senders[turn % CONNECTIONS].send(burst)
        turn += 1
    for sender in senders:
        sender.close()


def create_recorded_topics(broker: BrokerProcess) -> None:
    """Create the topics that the requests are about, those that are missing now."""
    wanted = [creatable_topic(name) for name in sorted(recorded_topics())]
    with closing(Client(broker)) as client:
        until(lambda: bool(client.request(Api.METADATA, 1, MetadataRequest(topics=[])).brokers), "a broker is known")
        client.request(Api.CREATE_TOPICS, 4, CreateTopicsRequest(topics=wanted, timeout_ms=30_000))


def requests_answered(broker: BrokerProcess) -> float:
    """Read how many requests were answered, over all APIs."""
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=PATIENCE_SECONDS) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("kafka_network_requestmetrics_requests_t"))


def delete_all_topics(broker: BrokerProcess) -> None:
    """Delete what the frames that were still good have created."""
    with closing(Client(broker)) as client:

        def topics() -> list[str]:
            known = client.request(Api.METADATA, 1, MetadataRequest(topics=None)).topics
            return [topic.name for topic in known]

        names = topics()
        client.request(Api.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=names, timeout_ms=30_000))
        until(lambda: not topics(), "all topics are gone")


def settled(broker: BrokerProcess) -> tuple[int, int]:
    """Return memory and descriptors once topics and connections are gone."""
    delete_all_topics(broker)
    process = Process(broker.pid)
    return process.resident_bytes, process.descriptors


def test_mutated_frames_leave_the_broker_as_it_was(make_broker: MakeBroker, topic: str) -> None:
    """It still serves, nothing failed that was not foreseen, and memory and descriptors are back where they were."""
    broker = make_broker("auto.create.topics.enable=false")
    said = Said(broker)
    with closing(Client(broker)) as client:
        apis = {row.api_key for row in client.api_versions().api_keys}
    create_recorded_topics(broker)
    attack(broker, mutated_frames(0, FRAMES // ROUNDS, apis))
    resident, descriptors = settled(broker)
    answered, refused = requests_answered(broker), len(said.lines("_refused"))
    for seed in range(1, ROUNDS + 1):
        create_recorded_topics(broker)
        attack(broker, mutated_frames(seed, FRAMES // ROUNDS, apis))

    # Frames behind a bad one on the same connection are not looked at.
    assert requests_answered(broker) - answered + len(said.lines("_refused")) - refused > FRAMES / 3
    delete_all_topics(broker)
    until(lambda: Process(broker.pid).descriptors <= descriptors + 5, "descriptors are back")
    assert settled(broker)[0] - resident < MEMORY_GROWTH_BYTES_MAX
    said.check_no_failure()
    with closing(Client(broker)) as client:
        client.create_topic(topic)
        client.round_trip(topic)
    delivered: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"value", on_delivery=lambda error, message: delivered.append(error or message))
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert delivered[0].offset() == 1
