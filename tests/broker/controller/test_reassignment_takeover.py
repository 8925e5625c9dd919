"""Controllers that die in the middle of a reassignment: after each of their writes, one after the other.

A controller that is stopped after a write has told nobody of what it did. Another one takes office at once, and has
only what stands in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.broker.controller.brokers import brokers
from tests.broker.controller.reassigning import Cluster, Stop, wait_for
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.stop_replica import StopReplicaRequest

WRITES_MAX = 30


@pytest.fixture
def cluster(zookeeper: ZooKeeper) -> Iterator[Cluster]:
    """Three brokers."""
    with brokers(zookeeper, 1, 2, 3) as started:
        yield Cluster(started)


def move(cluster: Cluster, partition: TopicPartition) -> None:
    """Ask for a target until a controller has taken it."""
    while cluster.recorded(partition)[1:] == ([], []) and cluster.recorded(partition)[0] == [1]:
        cluster.alter(partition, [2, 3])


def cancel(cluster: Cluster, partition: TopicPartition) -> None:
    """Ask to go back until a controller has taken it."""
    while cluster.recorded(partition)[2] == [1]:
        cluster.alter(partition, None)


def replace(cluster: Cluster, partition: TopicPartition) -> None:
    """Ask for another target than that of a move under way, until a controller has taken it."""
    while 3 not in cluster.recorded(partition)[0]:
        cluster.alter(partition, [3])


def ask_like_old_tools(cluster: Cluster, partition: TopicPartition) -> None:
    """Write the node that a controller watches."""
    asked = znodes.ReassignedPartition(topic=partition.topic, partition=partition.partition, replicas=[2, 3])
    zookeeper = cluster.brokers[1].zookeeper
    zookeeper.create(znodes.REASSIGNMENT, znodes.ReassignmentNode(partitions=[asked]).encode())
    while cluster.recorded(partition)[0] == [1]:
        # Whoever is in office answers after it has seen the node.
        cluster.listed()


def last_words(cluster: Cluster, broker: int, partition: TopicPartition) -> str | None:
    """Return the last thing that a broker was told about a partition."""
    for request in reversed(cluster.brokers[broker].fake.requests):
        if not isinstance(request, LeaderAndIsrRequest | StopReplicaRequest):
            continue
        for topic in request.topic_states:
            for state in topic.partition_states:
                if (topic.topic_name, state.partition_index) == partition:
                    return "follow" if isinstance(request, LeaderAndIsrRequest) else "delete"
    return None


def reassign(
    cluster: Cluster,
    partition: TopicPartition,
    ask: Callable[[Cluster, TopicPartition], None],
    before: list[int] | None,
) -> None:
    """Make a topic with a replica on broker 1, and ask for a target; go on until no controller has more to do."""
    creator = cluster.controller
    creator.cluster.create_topic(TopicSpec(partition.topic, assignment={0: [1]}))
    wait_for(creator, lambda fake: fake.leader(partition.topic) == 1)
    if before is not None:
        cluster.alter(partition, before)
    ask(cluster, partition)
    while cluster.listed(partition):
        cluster.catch_up(partition)


def check(cluster: Cluster, partition: TopicPartition, target: list[int]) -> None:
    """Hold what ZooKeeper has, and what the brokers heard last, against the target."""
    assert cluster.recorded(partition) == (target, [], [])
    state = cluster.state(partition)
    assert (state.leader in target, sorted(state.isr)) == (True, target)
    assert cluster.brokers[1].zookeeper.exists(znodes.REASSIGNMENT) is None
    for broker in {1, 2, 3} - set(target):
        assert last_words(cluster, broker, partition) in ("delete", None)
    for broker in target:
        wait_for(cluster.brokers[broker], lambda fake: partition in fake.partitions)
        wait_for(cluster.brokers[broker], lambda fake: fake.partitions[partition].replicas == target)
        assert last_words(cluster, broker, partition) == "follow"


@pytest.mark.parametrize(
    ("ask", "before", "target"),
    [
        (move, None, [2, 3]),
        (cancel, [2, 3], [1]),
        (replace, [2], [3]),
        (ask_like_old_tools, None, [2, 3]),
    ],
)
def test_another_controller_finishes_what_one_began(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[Cluster, TopicPartition], None],
    before: list[int] | None,
    target: list[int],
) -> None:
    """Wherever the first one stops: the target has the partition, and nobody else has a log of it."""
    stop = Stop(monkeypatch)

    def ask_and_stop(cluster: Cluster, partition: TopicPartition) -> None:
        stop.left = writes
        ask(cluster, partition)

    for writes in range(1, WRITES_MAX):
        partition = TopicPartition(f"orders{writes}", 0)
        reassign(cluster, partition, ask_and_stop, before)
        has_survived, stop.left = stop.left is not None, None
        check(cluster, partition, target)
        if has_survived:
            return
    pytest.fail(f"a reassignment takes more than {WRITES_MAX} writes")
