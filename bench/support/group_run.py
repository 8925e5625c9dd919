"""What is measured of consumer groups: the first record of a new one, thousands of members, and a million offsets."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.support.contender import HOST, Ottla
from bench.support.group_members import MEMBERS, Crew
from bench.support.usage import cpu_seconds, memory_mb
from confluent_kafka import Consumer, Producer
from tests.kit.waiting import until

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.client.local_cluster.plan import SESSION_TIMEOUT_MS, broker_defaults
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest

GOALS: Final = {
    "first record of a new group, median, ms": 300.0,
    "broker with all members, % of a core": 40.0,
    "coordinator killed: offsets told after another leads, s": 20.0,
}

_FIRST_RECORD_ROUNDS: Final = 15
_HEARTBEAT_INTERVAL_S: Final = 3.0
_CREWS: Final = 4
_PARTITIONS: Final = 1000
_WAIT_S: Final = 120.0
_COMMIT_VERSION, _FETCH_VERSION, _FIND_VERSION, _CREATE_VERSION, _METADATA_VERSION = 8, 7, 3, 7, 12


def measure_first_record(folder: Path, brokers: int) -> dict[str, float]:
    """Take the time from the first poll of a new consumer in a new group to its first record, with librdkafka."""
    cluster = Ottla(folder, brokers, broker_defaults(brokers))
    try:
        cluster.start()
        topic = f"first-{uuid.uuid4().hex[:8]}"
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        producer.produce(topic, b"record")
        assert producer.flush(_WAIT_S) == 0
        took = [_first_record_ms(cluster.bootstrap, topic) for _ in range(_FIRST_RECORD_ROUNDS)]
    finally:
        cluster.stop()
    return {
        "first record of the very first group, ms": took[0],
        "first record of a new group, median, ms": statistics.median(took[1:]),
        "first record of a new group, slowest, ms": max(took[1:]),
    }


def _first_record_ms(bootstrap: str, topic: str) -> float:
    consumer: Any = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"new-{uuid.uuid4().hex}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    begun = time.perf_counter()
    record = consumer.poll(_WAIT_S)
    took = time.perf_counter() - begun
    assert record is not None
    assert record.error() is None, record.error()
    consumer.close()
    return took * 1000


def measure_members(folder: Path, groups: int, seconds: float) -> dict[str, float]:
    """Have groups of three members each send heartbeats, and see what that costs the broker."""
    cluster = Ottla(folder)
    try:
        cluster.start()
        idle = _cpu_percent(cluster, lambda: time.sleep(seconds / 2))
        connection = _connection(cluster.addresses[1])
        _wait(lambda: _coordinator(connection, "any") == 1)
        ids = [f"group-{number}" for number in range(groups)]
        crews = [Crew(lambda: _connection(cluster.addresses[1]), ids[number::_CREWS]) for number in range(_CREWS)]
        begun = time.perf_counter()
        _together([crew.join for crew in crews])
        joined = time.perf_counter() - begun
        # The first round is not measured.
        _heartbeat(crews, _HEARTBEAT_INTERVAL_S)
        sent = sum(crew.heartbeats for crew in crews)
        begun = time.perf_counter()
        busy = _cpu_percent(cluster, lambda: _heartbeat(crews, seconds))
        rate = (sum(crew.heartbeats for crew in crews) - sent) / (time.perf_counter() - begun)
        failures = [failure for crew in crews for failure in crew.failures]
        if failures:
            raise RuntimeError(f"{len(failures)} failed: {failures[:3]}")
        return {
            "members": float(groups * MEMBERS),
            "all members joined, s": joined,
            "heartbeats per second": rate,
            "idle broker, % of a core": idle,
            "broker with all members, % of a core": busy,
            "memory of the broker, MB": memory_mb(cluster.pids, "VmRSS"),
        }
    finally:
        cluster.stop()


def measure_failover(folder: Path, groups: int) -> dict[str, float]:
    """Commit a thousand offsets in each group, all in one partition; kill its leader, and ask the next one."""
    properties = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS), "offsets.topic.num.partitions": "1"}
    cluster = Ottla(folder, 3, properties)
    try:
        cluster.start()
        connections = {broker: _connection(address) for broker, address in cluster.addresses.items()}
        _create_topic(connections)
        coordinator = _wait(lambda: _coordinator(connections[1], "any"))
        begun = time.perf_counter()
        for number in range(groups):
            _commit(connections[coordinator], f"group-{number}", number)
        committed = time.perf_counter() - begun
        begun = time.perf_counter()
        cluster.kill_broker(coordinator)
        connections.pop(coordinator).close()
        asked = next(iter(connections.values()))
        successor = _wait(lambda: (leader := _leader(asked)) not in (-1, coordinator) and leader)
        led = time.perf_counter()
        answer = _wait(lambda: _fetch(connections[successor], f"group-{groups - 1}"))
        told = time.perf_counter()
        assert answer == dict.fromkeys(range(_PARTITIONS), groups - 1)
        return {
            "committed offsets": float(groups * _PARTITIONS),
            "committed, offsets per second": groups * _PARTITIONS / committed,
            "coordinator killed: another leads, s": led - begun,
            "coordinator killed: offsets told after another leads, s": told - led,
            "memory of the coordinator, MB": memory_mb([cluster.broker_pids[successor]], "VmRSS"),
        }
    finally:
        cluster.stop()


def _heartbeat(crews: list[Crew], seconds: float) -> None:
    until_s = time.perf_counter() + seconds
    _together([lambda crew=crew: crew.heartbeat(_HEARTBEAT_INTERVAL_S, until_s) for crew in crews])  # type: ignore[misc]


def _together(calls: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cpu_percent(cluster: Ottla, during: Callable[[], None]) -> float:
    begun, before = time.perf_counter(), cpu_seconds(cluster.pids)
    during()
    return 100 * (cpu_seconds(cluster.pids) - before) / (time.perf_counter() - begun)


def _connection(address: str) -> BlockingConnection:
    port = int(address.rpartition(":")[2])
    timeout_ms = int(_WAIT_S * 1000)
    return BlockingConnection(HOST, port, client_id="bench", connect_timeout_ms=5_000, request_timeout_ms=timeout_ms)


def _coordinator(connection: BlockingConnection, group_id: str) -> int | None:
    answer = connection.request(Api.FIND_COORDINATOR, _FIND_VERSION, FindCoordinatorRequest(key=group_id, key_type=0))
    return answer.node_id if answer.error_code == ErrorCode.NONE else None


def _leader(connection: BlockingConnection) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=CONSUMER_OFFSETS)], allow_auto_topic_creation=False)
    leader: int = connection.request(Api.METADATA, _METADATA_VERSION, request).topics[0].partitions[0].leader_id
    return leader


def _create_topic(connections: dict[int, BlockingConnection]) -> None:
    wanted = CreatableTopic(name="topic", num_partitions=_PARTITIONS, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(_WAIT_S * 1000))
    controller = connections[1].request(Api.METADATA, _METADATA_VERSION, MetadataRequest(topics=[])).controller_id
    answer = connections[controller].request(Api.CREATE_TOPICS, _CREATE_VERSION, request)
    if answer.topics[0].error_code != ErrorCode.NONE:
        raise RuntimeError(str(answer))


def _commit(connection: BlockingConnection, group_id: str, offset: int) -> None:
    rows = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        for number in range(_PARTITIONS)
    ]
    request = OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name="topic", partitions=rows)])

    def commit() -> bool:
        answer = connection.request(Api.OFFSET_COMMIT, _COMMIT_VERSION, request)
        return all(row.error_code == ErrorCode.NONE for row in answer.topics[0].partitions)

    _wait(commit)


def _fetch(connection: BlockingConnection, group_id: str) -> dict[int, int] | None:
    answer = connection.request(Api.OFFSET_FETCH, _FETCH_VERSION, OffsetFetchRequest(group_id=group_id, topics=None))
    if answer.error_code != ErrorCode.NONE:
        return None
    return {row.partition_index: row.committed_offset for row in answer.topics[0].partitions}


def _wait(ask: Callable[[], Any]) -> Any:
    """Ask again until there is an answer, also a broker in the middle of a change."""
    return until(ask, "an answer", seconds=_WAIT_S, not_yet=KafkaError)
