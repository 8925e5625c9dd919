"""What the clients log, and that they are silent otherwise."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from tests.client.consumer.consuming import create_topic, group_name, member, produce, read
from tests.client.producer.scripted_producing import Brokers, producing
from tests.client.scripted_broker import HANGUP, Reply
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until_async

from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.metadata import first_of
from ottla.client.net.settings import ClientSettings
from ottla.client.types import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import RecordBatch

UNREACHABLE = """
import asyncio
from ottla import Producer
from ottla.errors import NoBrokersAvailable

async def main():
    try:
        await Producer(bootstrap_servers="127.0.0.1:1").start()
    except NoBrokersAvailable:
        print("as expected")

asyncio.run(main())
"""


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """Return what the clients have logged at this level or above."""
    return [
        record.getMessage() for record in caplog.records if record.name.startswith("ottla") and record.levelno >= level
    ]


def test_nothing_is_printed_unless_the_program_sets_up_logging() -> None:
    """Not even a warning, which Python prints for loggers without a handler."""
    ran = subprocess.run([sys.executable, "-c", UNREACHABLE], check=False, capture_output=True, text=True, timeout=120)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "as expected\n", "")


async def test_normal_work_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """No line for a connection, a request or a record."""
    caplog.set_level(logging.DEBUG, "ottla")
    async with producing(Brokers()) as producer:
        for _ in range(10):
            await producer.send_and_wait("t", b"value")

    assert lines(caplog, logging.DEBUG) == []


async def test_a_lost_connection_and_the_retry_are_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    """The first says what was lost, the second what is done about it."""
    caplog.set_level(logging.INFO, "ottla")
    brokers = Brokers()
    seen = 0

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        nonlocal seen
        seen += 1
        return HANGUP if seen == 1 else ErrorCode.NOT_ENOUGH_REPLICAS if seen == 2 else None

    brokers.judge = judge
    async with producing(brokers) as producer:
        await producer.send_and_wait("t", b"value", partition=0)

    lost, first, second = lines(caplog)
    assert "lost the connection to 127.0.0.1:" in lost
    assert "1 requests in flight" in lost
    assert first.startswith("sending 1 batches again, the first for t-0: ")
    assert "NOT_ENOUGH_REPLICAS" in second


async def test_a_new_leader_is_a_line(caplog: pytest.LogCaptureFixture, broker: BrokerProcess, topic: str) -> None:
    """With the partition, the old leader and the new one."""
    await create_topic(broker.bootstrap, topic)
    caplog.set_level(logging.INFO, "ottla")
    async with ClusterClient(ClientSettings(bootstrap_servers=broker.bootstrap)) as cluster:
        leader = (await cluster.metadata([topic])).leader(TopicPartition(topic, 0))
        assert leader is not None
        cluster.learn_brokers({77: cluster.brokers[leader]})
        assert cluster.learn_leader(TopicPartition(topic, 0), 77, 1000)

    assert lines(caplog) == [f"leader changed: {topic}-0 from {leader} to 77"]


async def test_a_rebalance_says_what_moved(caplog: pytest.LogCaptureFixture, broker: BrokerProcess, topic: str) -> None:
    """One line for what is given up and one for what is taken, by the group's name."""
    await create_topic(broker.bootstrap, topic, 2)
    await produce(broker.bootstrap, topic, [b"0"], 0)
    caplog.set_level(logging.INFO, "ottla")
    group = group_name()
    async with member(broker.bootstrap, group, topic) as first:
        await read(first, 1)
        async with member(broker.bootstrap, group, topic) as second:
            await until_async(lambda: _share(first.assignment(), second.assignment()))

    said = lines(caplog)
    assert f"group {group}: assigned {topic}-0, {topic}-1" in said
    assert f"group {group}: revoked {topic}-0, {topic}-1" in said
    assert f"group {group}: assigned {topic}-0" in said
    assert f"group {group}: assigned {topic}-1" in said
    assert sum("joined generation" in line for line in said) >= 3


async def _share(*assignments: set[TopicPartition]) -> bool:
    return all(len(some) == 1 for some in assignments)


def test_long_lists_are_cut() -> None:
    """A line stays readable when a broker with a thousand partitions dies."""
    assert first_of(["a", "b"]) == "a, b"
    assert first_of([str(number) for number in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
