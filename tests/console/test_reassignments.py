"""Moves of replicas through the console: previewed, started, watched and cancelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from tests.console.console_client import running_console
from tests.kit.broker_process import MakeBroker
from tests.kit.clock import FakeClock
from tests.kit.waiting import until_async
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic, PartitionOutcome, Reassignment
from ottla.client.net.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.client.producer.producer import Producer
from ottla.console.api.reassignments import (
    Cancellation,
    Moves,
    MovesQuery,
    MovingPartition,
    Placement,
    cancel_moves,
    list_reassignments,
    move_partitions,
)
from ottla.console.cluster.rates import Rates
from ottla.console.cluster.view import ClusterState, LogDirs
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition

FIRST = TopicPartition("orders", 0)
PLAN = """'{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [%s]}]}'"""


class MovingCluster:
    """A view of a cluster in which a partition moves from broker 1 to broker 3, and half of it is copied."""

    def __init__(self) -> None:
        brokers = {number: BrokerAddress(number, "localhost", 9091 + number) for number in (1, 2, 3)}
        topic = TopicInfo("orders", partitions={0: PartitionInfo(0, 1, 0, (1, 2, 3), (1, 2))})
        self._state = ClusterState(0, "id", 1, brokers, {"orders": topic}, (4,))
        self.copied = 500
        self.clock = FakeClock(0.0)
        self.rates = Rates(self.clock)
        self.asked: list[Mapping[TopicPartition, Sequence[int] | None]] = []

    @property
    def admin(self) -> MovingCluster:
        return self

    async def view(self) -> MovingCluster:
        return self

    async def state(self) -> ClusterState:
        return self._state

    async def log_dirs(self) -> LogDirs:
        return LogDirs(0, [], (), {FIRST: {1: (1000, 0), 2: (1000, 0), 3: (self.copied, 7)}}, {})

    async def reassignments(self) -> Sequence[Reassignment]:
        return (Reassignment("orders", 0, (1, 2, 3), (3,), (1,)), Reassignment("other", 0, (1, 2), (2,), (1,)))

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, raise_errors: bool
    ) -> list[PartitionOutcome]:
        self.asked.append(replicas)
        return [PartitionOutcome(*each, None) for each in replicas]


@pytest.fixture
def cluster() -> MovingCluster:
    """The cluster, which is its own request."""
    return MovingCluster()


def call(cluster: MovingCluster) -> Call:
    """Return a request of a user of this cluster."""
    return cast(Call, cast(Any, cluster))


async def test_the_progress_of_a_move_is_what_the_new_replica_has(cluster: MovingCluster) -> None:
    """And how fast it grows, after the second look."""
    await list_reassignments(call(cluster), MovesQuery())
    cluster.clock.now += 2
    cluster.copied = 700
    answer = await list_reassignments(call(cluster), MovesQuery(topic="orders"))
    (row,) = answer.items
    assert ([each.broker_id for each in row.adding], row.removing, row.size_bytes) == ([3], [1], "1000")
    assert (row.adding[0].size_bytes, row.adding[0].bytes_per_s) == ("700", 100.0)


async def test_a_move_is_cancelled_after_a_preview(cluster: MovingCluster) -> None:
    """The partition stays where it was; one that does not move is no change."""
    partitions = [MovingPartition(topic="orders", partition=0), MovingPartition(topic="orders", partition=9)]
    preview = await cancel_moves(call(cluster), Cancellation(partitions=partitions))
    assert [(row.subject, row.before, row.after) for row in preview.changes] == [("orders-0", "1, 2, 3", "1, 2")]
    assert preview.command == f"echo {PLAN % '1, 2'} | ottla partition reassign cancel - --yes"
    assert cluster.asked == []
    await cancel_moves(call(cluster), Cancellation(partitions=partitions, dry_run=False))
    assert cluster.asked == [{FIRST: None}]


@pytest.mark.parametrize(
    ("replicas", "words"), [([2, 2], "2, 2"), ([2, 4], "not alive: 4"), ([2, 99], "not alive: 99")]
)
async def test_a_move_that_would_never_end_is_refused(cluster: MovingCluster, replicas: list[int], words: str) -> None:
    """To a broker that is down, or does not exist."""
    placement = Placement(topic="orders", partition=0, replicas=replicas)
    with pytest.raises(Problem, match=words):
        await move_partitions(call(cluster), Moves(partitions=[placement], dry_run=False))
    assert cluster.asked == []


async def test_partitions_move_between_real_brokers(make_broker: MakeBroker, zookeeper_server: ZooKeeperServer) -> None:
    """One by one, and spread over brokers; the preview says what is copied, and nothing moves before."""
    connect = ZooKeeper(zookeeper_server).connect
    first, second = (make_broker(zookeeper=connect, broker_id=number) for number in (1, 2))
    bootstrap = f"{first.bootstrap},{second.bootstrap}"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", replica_assignments={0: [1], 1: [1]})])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", b"x" * 1000, partition=0)
    async with running_console(bootstrap) as console:

        async def replicas() -> list[list[int]]:
            partitions = (await console.get("/topics/orders"))["partitions"]
            return [[replica["broker_id"] for replica in each["replicas"]] for each in partitions]

        async def are_at(wanted: list[list[int]]) -> bool:
            return (await console.get("/reassignments"))["items"] == [] and await replicas() == wanted

        body: dict[str, Any] = {"partitions": [{"topic": "orders", "partition": 0, "replicas": [2]}]}
        preview = await console.post("/reassignments", body)
        assert preview["changes"] == [{"subject": "orders-0", "before": "1", "after": "2", "error": None}]
        assert preview["command"] == f"echo {PLAN % '2'} | ottla partition reassign execute - --yes"
        (warning,) = preview["warnings"]
        assert warning.startswith("About 1")
        assert await replicas() == [[1], [1]]
        await console.post("/reassignments", {**body, "dry_run": False})
        await until_async(lambda: are_at([[2], [1]]), "the partition has moved")
        spread = {"topics": ["orders"], "brokers": [1, 2], "replication_factor": 2}
        changed = await console.post("/reassignments", {"spread": spread, "dry_run": False})
        assert [row["after"] for row in changed["changes"]] == ["1, 2", "2, 1"]
        assert changed["command"] == (
            "ottla partition reassign plan --topic orders --brokers 1,2 --replication-factor 2 > plan.json"
            " && ottla partition reassign execute plan.json"
        )
        await until_async(lambda: are_at([[1, 2], [2, 1]]), "the topic is spread")
        again = await console.post("/reassignments", {"spread": spread})
        assert (again["changes"], again["warnings"]) == ([], [])
        await console.post("/reassignments", {**body, "spread": spread}, status=400)
