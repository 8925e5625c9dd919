"""A consumer with positions of its own, which says everything that it gets."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from tests.faults.checker.history import NO_EPOCH, NO_TRANSACTION, Assign, Poll, PolledRecord, PositionLost
from tests.faults.workload.settings import BACKOFF_MS_MAX, Settings

POLL_S = 0.2
POLL_RECORDS_MAX = 500


class ConsumerWorker:
    """Reads all partitions; belongs to no group."""

    def __init__(self, settings: Settings, name: str, *, is_committed: bool = False) -> None:
        self._settings = settings
        self._name = name
        self._is_committed = is_committed
        self.positions = dict.fromkeys(range(settings.partitions), 0)
        self._client = Consumer(
            {
                **settings.client,
                "group.id": "not-used",
                "enable.auto.commit": False,
                # To start again from somewhere in silence would hide that what was read is gone.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": BACKOFF_MS_MAX // 2,
                "isolation.level": "read_committed" if is_committed else "read_uncommitted",
                # Behind the last record there may be markers, which only the end of the partition tells.
                "enable.partition.eof": True,
            }
        )
        self._assign(self.positions)

    def run(self) -> None:
        """Read until told to stop."""
        try:
            while not self._settings.stopping.is_set():
                self.poll()
        finally:
            self.close()

    def poll(self, timeout_s: float = POLL_S, transaction: int = NO_TRANSACTION) -> None:
        """Ask once, and write down what came, as part of a transaction if there is one."""
        records = []
        lost: dict[int, int] = {}
        for message in self._client.consume(POLL_RECORDS_MAX, timeout_s):
            error = message.error()
            partition, offset = message.partition(), message.offset()
            if error is None:
                assert partition is not None
                assert offset is not None
                records.append(self._record(message, partition, offset))
                self.positions[partition] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF and partition is not None and offset is not None:
                self.positions[partition] = max(self.positions[partition], offset)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None:
                lost[partition] = self.positions[partition]
            else:
                sys.stderr.write(f"{self._name}: {error}\n")
        if records:
            self._settings.history.write(
                Poll(
                    worker=self._name,
                    records=tuple(records),
                    is_committed=self._is_committed,
                    transaction=transaction,
                )
            )
        if lost:
            self._start_over(lost)

    def high_watermark(self, partition: int, timeout_s: float) -> int:
        """Ask the leader how far a partition goes."""
        bounds = self._client.get_watermark_offsets(TopicPartition(self._settings.topic, partition), timeout_s)
        if bounds is None:
            raise TimeoutError(f"no answer about partition {partition}")
        return int(bounds[1])

    def close(self) -> None:
        """End the client."""
        self._client.close()

    def _record(self, message: Message, partition: int, offset: int) -> PolledRecord:
        epoch = message.leader_epoch()
        value = (message.value() or b"").decode(errors="replace")
        return PolledRecord(self._settings.partition(partition), offset, value, NO_EPOCH if epoch is None else epoch)

    def _start_over(self, lost: Mapping[int, int]) -> None:
        for partition, offset in lost.items():
            name = self._settings.partition(partition)
            self._settings.history.write(PositionLost(worker=self._name, partition=name, offset=offset))
            self.positions[partition] = 0
        self._assign(self.positions)

    def _assign(self, positions: Mapping[int, int]) -> None:
        names = tuple(self._settings.partition(partition) for partition in positions)
        self._settings.history.write(Assign(worker=self._name, partitions=names))
        self._client.assign(
            [TopicPartition(self._settings.topic, partition, offset) for partition, offset in positions.items()]
        )
