"""A broker with two log directories and one partition that is moved between them; segments of a few hundred bytes."""

from __future__ import annotations

from pathlib import Path

from tests.broker.storage.many_logs import ORDERS, TOPIC_ID, Broker, crash
from tests.kit.clock import FakeClock

from ottla.broker.replication.leader.leadership import PartitionRole
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.partition import Partition, PartitionContext
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.directory_files import DirectoryKind, parse_directory_name
from ottla.broker.storage.log import Log
from ottla.broker.storage.recovery.startup import close_logs
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import batches

ROUND_BYTES = 300


def record(*values: str, **header: int) -> bytes:
    """Make a batch of records."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1_700_000_000_000, None, value.encode())
    return bytes(builder.build(**header))  # type: ignore[arg-type]


def values(log: Log) -> list[str]:
    """Return what a log holds from its start to its end."""
    found, offset = [], log.log_start_offset
    while (piece := log.read(offset, 100_000)) is not None:
        for batch in batches(memoryview(piece.read())):
            found += [bytes(each[3] or b"").decode() for each in batch.records()]
            offset = batch.next_offset
    return found


class MovingBroker:
    """Starts again and again in the same directories; `orders` is led by this broker alone, or followed."""

    def __init__(self, root: Path, directories: int = 2) -> None:
        self.disks = Broker(root, directories)
        self.paths = self.disks.paths
        # In seconds.
        self.clock = FakeClock(0.0)
        self._epoch = 0
        self._appended = 0

    def start(self, *, with_role: bool = True) -> None:
        """Open the logs, and lead in the next epoch."""
        self.logs = self.disks.start()
        self.partitions = Partitions(PartitionContext(1, self.disks.clock), self.logs)
        self.moves = LogDirMoves(self.partitions, self.disks.config, self.clock, round_bytes=ROUND_BYTES)
        if with_role:
            self.lead()

    def stop(self) -> None:
        """Stop in order."""
        close_logs(self.logs, 7)

    def restart(self) -> None:
        """Die, and start again."""
        crash(self.logs)
        self.start()

    def lead(self, partition: TopicPartition = ORDERS) -> None:
        """Lead in the next epoch."""
        self._take(partition, 1)

    def follow(self, partition: TopicPartition = ORDERS) -> None:
        """Follow broker 2 in the next epoch."""
        self._take(partition, 2)

    def _take(self, partition: TopicPartition, leader: int) -> None:
        self._epoch += 1
        isr = frozenset({1, leader})
        role = PartitionRole(leader, self._epoch, self._epoch, tuple(sorted(isr)), isr)
        self.partitions.take_role(partition, TOPIC_ID, role, is_new=True)

    @property
    def orders(self) -> Partition:
        """The partition."""
        return self.partitions.get(ORDERS)

    def append(self, count: int = 1) -> list[str]:
        """Append records that are told apart; return their values."""
        made = [f"value-{self._appended + number}" for number in range(count)]
        self._appended += count
        for value in made:
            self.orders.append(record(value), required_acks=1)
        return made

    def move(self, directory: int, partition: TopicPartition = ORDERS) -> None:
        """Ask for the partition to be moved to the first directory (0), or the second."""
        self.moves.move(partition, str(self.paths[directory]))

    def copy(self, rounds: int) -> None:
        """Let some rounds be done."""
        for _ in range(rounds):
            self.moves.advance()

    def finish(self) -> None:
        """Let the moves come to an end."""
        for _ in range(1000):
            if not self.logs.futures():
                return
            self.moves.advance()
            self.clock.sleep(1)
        raise AssertionError(f"still there: {self.logs.futures()}")

    def names(self, directory: int) -> dict[DirectoryKind, int]:
        """Count the partition directories of each kind."""
        found: dict[DirectoryKind, int] = {}
        for path in self.paths[directory].iterdir():
            parsed = parse_directory_name(path.name)
            if path.is_dir() and parsed is not None:
                found[parsed.kind] = found.get(parsed.kind, 0) + 1
        return found
