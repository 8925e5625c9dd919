"""A mirror that is killed at any moment, with brokers of both clusters killed as well: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from tests.client.mirror.contents import ends, seen, stored
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla import Admin, Producer
from ottla.client.admin.results import NewTopic, OffsetSpec
from ottla.client.errors import KafkaError
from ottla.client.types import TopicPartition

pytestmark = pytest.mark.long

PARTITIONS = 3
MIRROR_DEATHS = 6
RECORDS_MIN = 3000
STEP_SECONDS_MAX = 120


class Cluster:
    """Some brokers, any of which may be killed."""

    def __init__(self, kind: str, folder: Path, zookeeper: ZooKeeper, size: int) -> None:
        made = KafkaProcess if kind == "kafka" else BrokerProcess
        options = (
            f"default.replication.factor={size}",
            f"min.insync.replicas={(size + 1) // 2}",
            f"offsets.topic.replication.factor={size}",
            f"transaction.state.log.replication.factor={size}",
            "zookeeper.session.timeout.ms=6000",
        )
        self.size = size
        self.brokers = [
            made(folder / str(number), zookeeper.connect, *options, broker_id=number) for number in range(1, size + 1)
        ]

    @property
    def bootstrap(self) -> str:
        """All addresses: any broker may be dead."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    async def restart_one(self, random: Random) -> None:
        """Kill a broker, and start it again a moment later."""
        broker = random.choice(self.brokers)
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(random.uniform(0, 2))
        await asyncio.to_thread(broker.start)


@pytest.fixture
def clusters(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> Iterator[tuple[Cluster, Cluster]]:
    """The source and the destination."""
    if "kafka" in request.param:
        kafka_or_skip()
    with ExitStack() as stack:
        made = []
        for number, kind in enumerate(request.param):
            cluster = Cluster(kind, tmp_path / str(number), ZooKeeper(zookeeper_server), 1 if kind == "kafka" else 3)
            for broker in cluster.brokers:
                stack.callback(broker.kill)
                broker.start_on_free_ports()
            made.append(cluster)
        yield made[0], made[1]


@contextlib.contextmanager
def mirroring(
    source: Cluster, destination: Cluster, topic: str, log: Path, *more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command as a process, which is killed at the end."""
    command = [sys.executable, "-m", "ottla.client.cli", "mirror", "--from", source.bootstrap]
    command += ["--to", destination.bootstrap, "--topics", topic, "--interval", "0.5", *more]
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


def said(log: Path) -> str:
    """Return what the mirrors have said."""
    return log.read_text()


@asynccontextmanager
async def writing(bootstrap: str, topic: str) -> AsyncIterator[asyncio.Event]:
    """Write records all the time, some of them in transactions of both ends; give what is set when it is enough."""
    acknowledged = 0
    is_over, is_enough = False, asyncio.Event()

    async def write(transactional_id: str | None) -> None:
        nonlocal acknowledged
        number = 0
        async with Producer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=2, delivery_timeout_ms=110_000
        ) as producer:
            while not is_over:
                number += 1
                try:
                    if transactional_id is not None:
                        await producer.begin_transaction()
                    sent = [
                        await producer.send(topic, b"%d-%d" % (number, each), key=b"k", partition=each % PARTITIONS)
                        for each in range(9)
                    ]
                    await asyncio.gather(*sent)
                    if transactional_id is not None:
                        await (producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction())
                    acknowledged += 9
                    if acknowledged >= RECORDS_MIN:
                        is_enough.set()
                except KafkaError as error:
                    if not error.abortable:
                        raise
                    await producer.abort_transaction()
                await asyncio.sleep(0.005)

    writers = [asyncio.create_task(write(each)) for each in (None, f"writes-{topic}")]
    try:
        yield is_enough
    finally:
        is_over = True
        async with asyncio.timeout(STEP_SECONDS_MAX):
            await asyncio.gather(*writers)


async def copied(destination: Cluster, partitions: list[TopicPartition]) -> int:
    """Return how much the destination has; 0 if it cannot be asked."""
    with contextlib.suppress(KafkaError):
        async with Admin(bootstrap_servers=destination.bootstrap, default_api_timeout_ms=5000) as admin:
            found = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
            return sum(row.offset for row in found)
    return 0


async def trim(source: Cluster, partitions: list[TopicPartition]) -> None:
    """Delete what half of the partitions have, once they have something; one of them starts within a batch then."""
    async with Admin(bootstrap_servers=source.bootstrap) as admin, asyncio.timeout(STEP_SECONDS_MAX):
        ends_there: list[int] = []
        while min(ends_there, default=0) < 50:
            found = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
            ends_there = [row.offset for row in found]
        await admin.delete_records({partitions[0]: ends_there[0] // 2 + 1, partitions[1]: ends_there[1] - 20})


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "clusters",
    [
        pytest.param(("ours", "ours"), id="ours-to-ours"),
        # Kafka takes half a minute and more to come back six times.
        pytest.param(("kafka", "ours"), id="kafka-to-ours", marks=pytest.mark.long_faults),
        pytest.param(("ours", "kafka"), id="ours-to-kafka", marks=pytest.mark.long_faults),
    ],
    indirect=True,
)
def test_nothing_is_lost_and_nothing_comes_twice(clusters: tuple[Cluster, Cluster], topic: str, tmp_path: Path) -> None:
    """Whenever the mirror dies, and whichever broker does."""
    asyncio.run(_test_faults(*clusters, topic, tmp_path / "mirror.log"))


async def _test_faults(source: Cluster, destination: Cluster, topic: str, log: Path) -> None:
    random = Random(topic)
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, source.size)])
        await admin.alter_group_offsets(f"group-{topic}", dict.fromkeys(partitions, 11))
    async with writing(source.bootstrap, topic) as is_enough:
        await trim(source, partitions)
        for death in range(MIRROR_DEATHS):
            before = await copied(destination, partitions)
            with mirroring(source, destination, topic, log) as process:
                async with asyncio.timeout(STEP_SECONDS_MAX):
                    while await copied(destination, partitions) <= before:
                        assert process.poll() is None, said(log)
                        await asyncio.sleep(0.05)
                    if death == 1:
                        await destination.restart_one(random)
                    if death == 2:
                        await source.restart_one(random)
                    if death == 3:
                        await trim(source, partitions)
                await asyncio.sleep(random.uniform(0, 0.5))
                # At whatever line it is.
                process.send_signal(signal.SIGKILL)
        async with asyncio.timeout(STEP_SECONDS_MAX):
            await is_enough.wait()

    with mirroring(source, destination, topic, log, "--once", "--groups", f"group-{topic}") as process:
        assert await asyncio.to_thread(process.wait, STEP_SECONDS_MAX) == 0, said(log)
    assert f"source and destination agree: 1 topic, {PARTITIONS} partitions, 1 group" in said(log)
    total = 0
    for partition in partitions:
        here, there = await seen(destination.bootstrap, partition), await seen(source.bootstrap, partition)
        assert here == there
        total += len(here)
        if isinstance(destination.brokers[0], KafkaProcess):
            continue
        assert await stored(destination.bootstrap, partition) == await stored(source.bootstrap, partition)
    assert total > RECORDS_MIN / 2
    assert await ends(destination.bootstrap, partitions) == await ends(source.bootstrap, partitions)
