"""Writing to an internal topic with acks=all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.coordination.stored_records import StoredRecord, TransactionalProducer, batch_of
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.waits import PendingAppend, PendingAppends
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import RecordBatch

Done = Callable[[ErrorCode], None]


class Append:
    """Records of a coordinator as one batch that was appended, or could not be."""

    __slots__ = ("_error", "_pending", "first_offset")

    def __init__(
        self,
        partition: Partition | None,
        records: Sequence[StoredRecord],
        now_ms: int,
        codec: Codec,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Append the records, perhaps under a lock. `partition` is None where this broker does not have it.

        With a producer they are part of its transaction.
        """
        self._error: ErrorCode | None = None
        self._pending: PendingAppend | None = None
        self.first_offset = -1
        try:
            self._pending = _append(partition, batch_of(records, now_ms, codec, producer), producer)
            self.first_offset = self._pending.appended.first_offset
        except KafkaError as error:
            self._error = error.code

    @property
    def error(self) -> ErrorCode | None:
        """Why nothing was appended; None where it was."""
        return self._error

    def then(self, timeout_ms: int, done: Done) -> None:
        """Call `done` when the batch is committed, or will not be; perhaps before this returns. No lock may be held."""
        pending = self._pending
        if pending is None:
            done(self._error or ErrorCode.NONE)
            return

        def ended() -> None:
            outcome = pending.outcome
            done(ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome)

        PendingAppends([pending]).when_done(timeout_ms, ended)


def _append(partition: Partition | None, batch: RecordBatch, producer: TransactionalProducer | None) -> PendingAppend:
    if partition is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if batch.size > partition.log.config.max_message_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {batch.size} bytes for {partition.partition}")
    return partition.append_batch(batch, None if producer is None else producer.guard)
