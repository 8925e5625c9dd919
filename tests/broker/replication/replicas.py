"""Single replicas for tests: a real log, a clock that the test moves, proposals that lie in a list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.broker.replication.recorded_waits import RecordedWaits
from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.replication.follower.steps import Fetched
from ottla.broker.replication.leader.leadership import FollowerFetch, IsrProposal, PartitionRole
from ottla.broker.replication.partition import EpochEndOffset, Partition, PartitionContext
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import open_logs
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
LAG_MAX_MS = 1000


def role(
    leader: int = 1, epoch: int = 0, version: int | None = None, isr: Iterable[int] = (1, 2, 3), **fields: int
) -> PartitionRole:
    """What the controller says of a partition on the brokers 1, 2 and 3."""
    partition_epoch = epoch if version is None else version
    return PartitionRole(leader, epoch, partition_epoch, (1, 2, 3), frozenset(isr), **fields)  # type: ignore[arg-type]


def fetch(replica: int, offset: int, *, epoch: int = 0, last_epoch: int = -1, broker_epoch: int = -1) -> FollowerFetch:
    """What a follower asks for."""
    return FollowerFetch(replica, broker_epoch, offset, last_epoch, epoch, 0)


def fetched(
    records: bytes = b"",
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
    error: ErrorCode = ErrorCode.NONE,
) -> Fetched:
    """What a leader answers."""
    end = EpochEndOffset(*diverging) if diverging is not None else None
    return Fetched(error, high_watermark, log_start, end, records)


def batch(value: bytes = b"value", **header: int) -> bytes:
    """A batch of one record; with `base_offset` and `partition_leader_epoch` as a leader sends it."""
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, value)
    return bytes(builder.build(**header))  # type: ignore[arg-type]


class Replica:
    """Broker 1 and its replica, without a role at first."""

    def __init__(self, directory: Path, min_isr: int = 2) -> None:
        self.clock = FakeClock(NOW_MS)
        self.live = {1, 2, 3}
        self.may_lead_alone = True
        # How long ago ZooKeeper is known to have heard from the broker.
        self.heard_ms_ago = 0
        self.proposals: list[IsrProposal] = []
        self.waits = RecordedWaits()
        config = BrokerConfig.of({"log.dirs": str(directory), "log.segment.bytes": "400"})
        topic = TopicConfig(config, {"min.insync.replicas": str(min_isr)})
        self.logs = open_logs(Logs(config, lambda _: topic, self.clock), MetaProperties(1, "a-cluster"))
        context = PartitionContext(
            1,
            self.clock,
            lag_max_ms=lambda: LAG_MAX_MS,
            is_alive=lambda broker: broker in self.live,
            broker_epoch=lambda: 10,
            may_lead_alone=lambda: self.may_lead_alone,
            was_heard_within_ms=lambda limit: self.heard_ms_ago <= limit,
            propose=self.proposals.append,
            waits=self.waits,
        )
        self.partition = Partition(ORDERS, TOPIC_ID, self.logs.create(ORDERS, TOPIC_ID), context)
        self.log = self.partition.log

    def lead(self, epoch: int = 0, version: int | None = None, isr: Iterable[int] = (1, 2, 3)) -> None:
        """Have the controller make it the leader."""
        assert self.partition.take_role(role(1, epoch, version, isr))

    def follow(self, epoch: int = 0, leader: int = 2) -> None:
        """Have the controller make it a follower."""
        assert self.partition.take_role(role(leader, epoch))

    def append(self, count: int = 1, acks: int = -1) -> None:
        """Append records of producers."""
        for _ in range(count):
            self.partition.append(batch(), required_acks=acks)

    def fetched_by(self, *replicas: int, offset: int, epoch: int = 0, broker_epoch: int = -1) -> None:
        """Let followers fetch that have everything below an offset."""
        for replica in replicas:
            request = fetch(replica, offset, epoch=epoch, broker_epoch=broker_epoch)
            self.partition.read_for_follower(request, 1000, at_least_one=True)
