"""Writes markers to the partitions that this broker leads, for its own coordinator and for those of other brokers.

A marker is written when every in-sync replica has it. The offsets that a group has committed in the transaction take
effect, or are dropped, before the coordinator hears of the marker: it may begin the next transaction then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.replication.partitions import Partitions
from ottla.broker.replication.waits import PendingAppend, PendingAppends
from ottla.broker.storage.producers.producers import TransactionNumber
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker
from ottla.protocol.records import RecordBatch

# A coordinator asks again after this time, perhaps another broker.
_TIMEOUT_MS: Final = 5_000


class OffsetsInTransactions(Protocol):
    """The offsets that groups have committed in transactions."""

    def transaction_ended(self, partition: int, producer_id: int, *, is_committed: bool) -> None:
        """Apply or drop those of a producer in a partition of `__consumer_offsets`."""
        ...


class MarkerWriter:
    """Appends markers. Thread-safe."""

    def __init__(self, partitions: Partitions, group_offsets: OffsetsInTransactions, clock: Callable[[], int]) -> None:
        """`clock` returns milliseconds since 1970."""
        self._partitions = partitions
        self._group_offsets = group_offsets
        self._clock = clock

    def write(self, marker: WritableTxnMarker, done: Callable[[Mapping[TopicPartition, ErrorCode]], None]) -> None:
        """Append a marker to its partitions, and call `done` with the result for each of them."""
        codes: dict[TopicPartition, ErrorCode] = {}
        appends: dict[TopicPartition, PendingAppend] = {}
        for topic in marker.topics:
            for index in topic.partition_indexes:
                key = TopicPartition(topic.name, index)
                try:
                    appends[key] = self._append(key, marker)
                except KafkaError as error:
                    codes[key] = error.code

        def written() -> None:
            for key, append in appends.items():
                outcome = append.outcome
                codes[key] = ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome
                if outcome is ErrorCode.NONE and key.topic == CONSUMER_OFFSETS:
                    self._group_offsets.transaction_ended(
                        key.partition, marker.producer_id, is_committed=marker.transaction_result
                    )
            done(codes)

        PendingAppends(list(appends.values())).when_done(_TIMEOUT_MS, written)

    def _append(self, key: TopicPartition, marker: WritableTxnMarker) -> PendingAppend:
        partition = self._partitions.find(key)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        control_type = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        batch = build_marker_batch(
            EndTransactionMarker(control_type, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self._clock(),
        )
        number = TransactionNumber(marker.coordinator_broker_epoch, marker.transaction_number)
        return partition.append_marker(RecordBatch(batch), number)
