"""The life of a cluster with many partitions: created, idle, asked about, and bereft of its controller."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from bench.support.contender import HOST, Contender, Ottla
from bench.support.usage import cpu_seconds, memory_mb
from tests.kit.waiting import until

from ottla.client.local_cluster.plan import SESSION_TIMEOUT_MS
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.requests import encode_response

BROKERS: Final = 3
GOALS: Final = {
    "controller killed: a topic can be created, s": 10.0,
    "busiest idle broker, % of a core": 10.0,
    "metadata of all topics, ms": 100.0,
}

_METADATA_VERSION: Final = 12
_CREATE_VERSION: Final = 7
_WAIT_SECONDS_MAX: Final = 300.0
_POLL_SECONDS: Final = 0.05
_CALM_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 20.0
_METADATA_ROUNDS: Final = 20


class Clients:
    """A connection to every broker of a cluster."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._connections = {
            broker: BlockingConnection(
                HOST,
                int(address.rpartition(":")[2]),
                client_id="bench",
                connect_timeout_ms=5_000,
                request_timeout_ms=int(_WAIT_SECONDS_MAX * 1000),
            )
            for broker, address in addresses.items()
        }

    @property
    def brokers(self) -> list[int]:
        """The brokers that are not forgotten."""
        return list(self._connections)

    def metadata(self, broker: int, topics: Iterable[str] | None) -> MetadataResponse:
        """Ask a broker for topics, or for all."""
        wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer: MetadataResponse = self._connections[broker].request(Api.METADATA, _METADATA_VERSION, request)
        return answer

    def create(self, broker: int, topics: Mapping[str, int]) -> CreateTopicsResponse:
        """Have a broker create topics with so many partitions, replicated on all; it must be the controller."""
        replicas = len(self._connections)
        wanted = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=replicas, assignments=[], configs=[])
            for name, count in topics.items()
        ]
        request = CreateTopicsRequest(topics=wanted, timeout_ms=int(_WAIT_SECONDS_MAX * 1000))
        answer: CreateTopicsResponse = self._connections[broker].request(Api.CREATE_TOPICS, _CREATE_VERSION, request)
        return answer

    def forget(self, broker: int) -> None:
        """Know that a broker is gone."""
        self._connections.pop(broker).close()

    def controllers(self) -> set[int]:
        """Return whom the brokers take for the controller."""
        return {self.metadata(broker, []).controller_id for broker in self._connections}

    def all_have_leaders(self, topics: Mapping[str, int]) -> bool:
        """Whether every broker knows a leader for every partition."""
        return all(_led(self.metadata(broker, topics)) == sum(topics.values()) for broker in self._connections)


def measure_scale(folder: Path, topics: int, partitions: int) -> dict[str, float]:
    """Start a cluster, put it through its life, and return what was measured, by names with units."""
    contender = Ottla(folder / "ottla", BROKERS, {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)})
    try:
        contender.start()
        clients = Clients(contender.addresses)
        wanted = {f"scale-{uuid.uuid4().hex[:8]}": partitions for _ in range(topics)}
        values = _creation(contender, clients, wanted)
        time.sleep(_CALM_SECONDS)
        values |= _idle(contender)
        values |= _metadata(clients)
        values |= _memory(contender)
        values |= _failover(contender, clients)
        return values
    finally:
        contender.stop()


def _creation(contender: Contender, clients: Clients, topics: Mapping[str, int]) -> dict[str, float]:
    controller = clients.controllers().pop()
    before = cpu_seconds(contender.pids)
    begun = time.perf_counter()
    answer = clients.create(controller, topics)
    answered = time.perf_counter()
    failed = {topic.name: topic.error_message for topic in answer.topics if topic.error_code}
    if failed:
        raise RuntimeError(f"not created: {failed}")
    _wait(lambda: clients.all_have_leaders(topics))
    return {
        "created: answered, s": answered - begun,
        "created: leaders known to all brokers, s": time.perf_counter() - begun,
        "created: CPU of all brokers, s": cpu_seconds(contender.pids) - before,
    }


def _idle(contender: Contender) -> dict[str, float]:
    before = {broker: cpu_seconds([pid]) for broker, pid in contender.broker_pids.items()}
    begun = time.perf_counter()
    time.sleep(_IDLE_SECONDS)
    seconds = time.perf_counter() - begun
    used = {broker: cpu_seconds([pid]) - before[broker] for broker, pid in contender.broker_pids.items()}
    percent = {f"idle broker {broker}, % of a core": 100 * cpu / seconds for broker, cpu in used.items()}
    return {**percent, "busiest idle broker, % of a core": max(percent.values())}


def _metadata(clients: Clients) -> dict[str, float]:
    took = []
    for _ in range(_METADATA_ROUNDS):
        begun = time.perf_counter()
        answer = clients.metadata(1, None)
        took.append(time.perf_counter() - begun)
    size = sum(len(part) for part in encode_response(Api.METADATA, _METADATA_VERSION, 0, answer))
    return {
        "metadata of all topics, ms": sorted(took)[len(took) // 2] * 1000,
        "metadata of all topics, slowest of 20, ms": max(took) * 1000,
        "metadata of all topics, KB": size / 1000,
    }


def _memory(contender: Contender) -> dict[str, float]:
    resident = {broker: memory_mb([pid], "VmRSS") for broker, pid in contender.broker_pids.items()}
    return {f"memory of broker {broker}, MB": size for broker, size in resident.items()}


def _failover(contender: Contender, clients: Clients) -> dict[str, float]:
    """Kill the controller; another is in office when all take it for the controller, and it creates a topic."""
    killed = clients.controllers().pop()
    begun = time.perf_counter()
    contender.kill_broker(killed)
    clients.forget(killed)
    _wait(lambda: len(found := clients.controllers()) == 1 and found.isdisjoint({killed, -1}))
    elected = time.perf_counter() - begun
    successor = clients.controllers().pop()
    name = f"after-{uuid.uuid4().hex[:8]}"
    _wait(lambda: not any(topic.error_code for topic in clients.create(successor, {name: 1}).topics))
    created = time.perf_counter() - begun
    _wait(lambda: all(_led_by(clients.metadata(broker, None), killed) == 0 for broker in contender.broker_pids))
    return {
        "controller killed: another known to all, s": elected,
        "controller killed: a topic can be created, s": created,
        "controller killed: its partitions led by others, s": time.perf_counter() - begun,
    }


def _led(answer: MetadataResponse) -> int:
    return sum(partition.leader_id >= 0 for topic in answer.topics for partition in topic.partitions)


def _led_by(answer: MetadataResponse, broker: int) -> int:
    """Count the partitions that a broker leads, or that nobody does."""
    return sum(partition.leader_id in (broker, -1) for topic in answer.topics for partition in topic.partitions)


def _wait(condition: Callable[[], bool]) -> None:
    """Ask again until it is so, also a broker that is busy, or in the middle of a change."""
    until(condition, seconds=_WAIT_SECONDS_MAX, pause_s=_POLL_SECONDS, not_yet=KafkaError)
