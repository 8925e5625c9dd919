"""A broker that follows, over real logs, and a leader on a loopback port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker.replication.fake_leader import VERSIONS, FakeLeader, LeaderLog, topic_id
from tests.broker.replication.peer import Peer, peer
from tests.broker.replication.recorded_waits import RecordedWaits

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.replication.follower.fetchers import Fetchers
from ottla.broker.replication.leader.leadership import PartitionRole
from ottla.broker.replication.partition import Partition, PartitionContext
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.log import Log
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.group_commit import Flush, GroupCommit
from ottla.broker.storage.recovery.startup import close_logs, open_logs
from ottla.protocol.identifiers import TopicPartition

LEADER, FOLLOWER = 1, 2
TIMEOUT_S = 30
BROKER_EPOCH = 77


class FollowingBroker:
    """A broker that only follows; its leaders are found through `endpoints`."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.config = BrokerConfig.of(
            {
                "log.dirs": str(directory),
                "replica.fetch.backoff.ms": "50",
                "replica.fetch.wait.max.ms": "20000",
                **options,
            }
        )
        default = TopicConfig(self.config, {})
        owner = MetaProperties(FOLLOWER, "c" * 22)
        self.logs = open_logs(Logs(self.config, lambda topic: default, lambda: 5000), owner)
        self.endpoints: dict[int, tuple[str, int]] = {}
        self.changed = threading.Condition()
        self.moves: list[TopicPartition] = []
        # What forces a log to disk; a test may put another in its place.
        self.flush: Flush = Log.flush
        self.group_commit = GroupCommit(self.logs.dirs, flush=self._flush, linger=lambda: None)
        self.group_commit.start()
        self.fetchers = Fetchers(
            lambda: self.config,
            FOLLOWER,
            lambda: BROKER_EPOCH,
            self.endpoints.get,
            self.logs,
            self.group_commit,
        )
        self.fetchers.start()

    def _flush(self, log: Log) -> int:
        return self.flush(log)

    def _moved(self, partition: TopicPartition) -> None:
        with self.changed:
            self.moves.append(partition)
            self.changed.notify_all()

    def partition(self, topic: str, index: int = 0, *, identifier: bytes | None = None) -> Partition:
        """Make a replica of a partition, without a role."""
        name = TopicPartition(topic, index)
        identifier = topic_id(topic) if identifier is None else identifier
        log = self.logs.create(name, identifier, is_new=True)
        context = PartitionContext(FOLLOWER, lambda: 5000, waits=RecordedWaits(self._moved))
        return Partition(name, identifier, log, context)

    def follow(self, partition: Partition, epoch: int = 0, leader: int = LEADER) -> Partition:
        """Become follower, as the controller says."""
        replicas = (leader, FOLLOWER)
        partition.take_role(PartitionRole(leader, epoch, epoch, replicas, frozenset(replicas)))
        self.fetchers.add(partition, leader)
        return partition

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until partitions have moved so far; a test fails where they never do."""
        with self.changed:
            assert self.changed.wait_for(condition, TIMEOUT_S), "it never came to that"

    def close(self) -> None:
        """End the fetchers and close the logs."""
        self.fetchers.stop()
        self.group_commit.stop()
        close_logs(self.logs, BROKER_EPOCH)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FollowingBroker]:
    """A broker that follows."""
    made = FollowingBroker(tmp_path, {})
    yield made
    made.close()


@pytest.fixture
def leader() -> FakeLeader:
    """A leader with a few logs."""
    made = FakeLeader()
    for topic in ("orders", "payments", "visits"):
        made.logs[topic, 0] = LeaderLog()
    return made


@pytest.fixture
def port(leader: FakeLeader, broker: FollowingBroker) -> Iterator[Peer]:
    """The leader's port, which the follower knows."""
    with peer(leader.answer, VERSIONS) as listening:
        broker.endpoints[LEADER] = listening.endpoint
        yield listening
        broker.fetchers.stop()


def contents(partition: Partition) -> bytes:
    """All bytes of a log."""
    read = partition.log.read(partition.log.log_start_offset, 1_000_000)
    return b"" if read is None else read.read()
