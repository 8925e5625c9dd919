"""All partitions of this broker, and the operations that wait for them to move on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

from ottla.broker.purgatory import Purgatory
from ottla.broker.replication.partition import Partition, PartitionRole
from ottla.broker.storage import log_changes
from ottla.broker.storage.logs import Logs
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition


class Partitions:
    """The partitions that the controller gave to this broker. Reading the table needs no lock."""

    def __init__(
        self,
        node_id: int,
        logs: Logs,
        clock: Callable[[], int],
        read_options: Callable[[str], None] = lambda topic: None,
    ) -> None:
        self.node_id = node_id
        self.logs = logs
        self._clock = clock
        # Called before a log is created: nobody announces the options that a topic is created with.
        self._read_options = read_options
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, Partition] = {}
        # Requests for a partition that were refused, by topic; for metrics.
        self.failed_appends: Counter[str] = Counter()
        self.failed_reads: Counter[str] = Counter()
        # Operations by partition: fetches wait for bytes, produces for the high watermark.
        self.delayed_fetches = Purgatory("fetch")
        self.delayed_produces = Purgatory("produce")

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def start(self) -> None:
        """Begin to look after what waits."""
        self.delayed_fetches.start()
        self.delayed_produces.start()

    def stop(self) -> None:
        """Answer everything that waits."""
        self.delayed_produces.stop()
        self.delayed_fetches.stop()

    def find(self, partition: TopicPartition) -> Partition | None:
        """Return a partition that this broker has."""
        return self._partitions.get(partition)

    def get(self, partition: TopicPartition) -> Partition:
        """Return a partition; KafkaError where this broker does not have it, or its disk fails."""
        found = self._partitions.get(partition)
        if found is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {partition}")
        self.logs.get(partition)
        return found

    def take_role(self, partition: TopicPartition, topic_id: bytes, role: PartitionRole, *, is_new: bool) -> Partition:
        """Become leader or follower as the controller says, creating the log where there is none."""
        if partition not in self._partitions and self.logs.find(partition) is None:
            self._read_options(partition.topic)
        with self._lock:
            known = self._partitions.get(partition)
            if known is None:
                log = self.logs.find(partition) or self.logs.create(partition, topic_id, is_new=is_new)
                known = Partition(partition, topic_id, self.node_id, log, self._clock)
                self._partitions[partition] = known
        if known.take_role(role):
            self.moved(partition)
        return known

    def drop(self, partition: TopicPartition, *, delete: bool) -> None:
        """Stop serving a partition; with `delete`, its log goes too."""
        with self._lock:
            self._partitions.pop(partition, None)
        self.moved(partition)
        if delete:
            for error in log_changes.delete(self.logs, [partition]).values():
                raise error

    def moved(self, partition: TopicPartition) -> None:
        """Tell those that wait that something of a partition has changed: high watermark, leader, log start."""
        self.delayed_produces.check(partition)
        self.delayed_fetches.check(partition)
