"""One partition on this broker: who leads it, which replicas are in sync, and how far it is committed.

The partition alone decides about the high watermark. Its lock protects leader epoch, ISR and the followers'
positions; the log has a lock of its own, taken inside. Nothing waits for the network or ZooKeeper under the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.storage.file_slice import FileSlice
from ottla.broker.storage.log import Appended, Log
from ottla.broker.storage.validation import validated
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionRole:
    """What the controller decided: leader, epochs, replicas."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


class Read(NamedTuple):
    """What a fetch gets of one partition."""

    records: FileSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # (producer id, first offset); None unless the reader wants only what is committed.
    aborted_transactions: list[tuple[int, int]] | None


class Partition:
    """A replica of a partition, leading or following."""

    def __init__(
        self, partition: TopicPartition, topic_id: bytes, node_id: int, log: Log, clock: Callable[[], int]
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._role = PartitionRole(NO_LEADER, -1, -1, (), frozenset())
        # For metrics: exact for what goes in, which is counted under the lock.
        self.appends = self.records_in = self.bytes_in = 0
        self.reads = self.bytes_out = 0

    def __repr__(self) -> str:
        role = self._role
        return f"Partition({self.partition}, leader={role.leader_id} epoch {role.leader_epoch}, isr={sorted(role.isr)})"

    @property
    def role(self) -> PartitionRole:
        """What the controller decided last; immutable."""
        return self._role

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self._role.leader_id == self.node_id

    def take_role(self, role: PartitionRole) -> bool:
        """Become what the controller says; return False where it said so already, or something newer.

        Raises OSError where the leader epoch cannot be stored.
        """
        with self._lock:
            if role.leader_epoch < self._role.leader_epoch or (
                role.leader_epoch == self._role.leader_epoch and role.partition_epoch <= self._role.partition_epoch
            ):
                return False
            is_new_epoch = role.leader_epoch > self._role.leader_epoch
            if role.leader_id == self.node_id and is_new_epoch:
                with self.log.lock:
                    self.log.leader_epochs.assign(role.leader_epoch, self.log.log_end_offset)
            self._role = role
            if role.leader_id == self.node_id:
                self._advance_high_watermark()
            return True

    def check_leader(self, current_leader_epoch: int = -1) -> PartitionRole:
        """Return the role if this broker leads in that epoch (-1: in any); raise KafkaError otherwise."""
        role = self._role
        if role.leader_id != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {role.leader_id} leads {self.partition}")
        self.check_epoch(role, current_leader_epoch)
        return role

    def check_epoch(self, role: PartitionRole, current_leader_epoch: int) -> None:
        """Raise KafkaError where a client knows an older or a newer leader than we do."""
        if current_leader_epoch < 0 or current_leader_epoch == role.leader_epoch:
            return
        if current_leader_epoch < role.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.partition} is in epoch {role.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.partition} is in epoch {role.leader_epoch}")

    # Appending

    def append(self, data: memoryview | bytes, *, required_acks: int) -> Appended:
        """Append a producer's batch; raise KafkaError with nothing appended."""
        role = self.check_leader()
        if required_acks == -1:
            self._check_in_sync(role)
        return self._append(validated(data, self.log.rules, self._clock()), role)

    def append_batch(self, batch: RecordBatch) -> Appended:
        """Append a batch that this broker made: records of internal topics, transaction markers."""
        role = self.check_leader()
        self._check_in_sync(role)
        return self._append(batch, role, from_client=False)

    def _append(self, batch: RecordBatch, role: PartitionRole, *, from_client: bool = True) -> Appended:
        appended = self.log.append_as_leader(batch, role.leader_epoch, from_client=from_client)
        with self._lock:
            self._advance_high_watermark()
            self.appends += 1
            self.records_in += batch.record_count
            self.bytes_in += batch.size
        return appended

    def _check_in_sync(self, role: PartitionRole) -> None:
        needed = min(self.log.config.min_insync_replicas, len(role.replicas))
        if len(role.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.partition} has {len(role.isr)} replicas in sync, min.insync.replicas asks for {needed}",
            )

    def _advance_high_watermark(self) -> None:
        """Move the high watermark to what every replica in the ISR has. The caller holds the lock."""
        if len(self._role.isr) <= 1:
            self.log.advance_high_watermark(self.log.log_end_offset)

    def commit_error(self, last_offset: int) -> ErrorCode | None:
        """Return how an acks=all append up to `last_offset` stands: NONE or an error, None while it must wait."""
        role = self._role
        if role.leader_id != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark <= last_offset:
            return None
        if len(role.isr) < min(self.log.config.min_insync_replicas, len(role.replicas)):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # Reading

    def upper_offset(self, *, committed_only: bool) -> int:
        """How far a consumer may read."""
        return self.log.last_stable_offset if committed_only else self.log.high_watermark

    def read(
        self, offset: int, max_bytes: int, current_leader_epoch: int, *, committed_only: bool, at_least_one: bool
    ) -> Read:
        """Read for a consumer."""
        self.check_leader(current_leader_epoch)
        log = self.log
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        upper = stable if committed_only else high_watermark
        records = log.read(offset, max_bytes, upper, at_least_one=at_least_one)
        self.reads += 1
        self.bytes_out += len(records) if records is not None else 0
        aborted = None
        if committed_only:
            aborted = log.aborted_transactions(offset, upper) if records is not None else []
        return Read(records, high_watermark, stable, log.log_start_offset, aborted)
