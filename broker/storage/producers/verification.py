"""Which producers have shown that a partition is part of their transaction, before its first batch is appended.

A batch that is late, of a transaction that was aborted meanwhile, would begin a transaction that nobody ends. So the
leader asks the coordinator before it appends the first batch of a transaction. It makes a guard, asks, and appends only
if the guard is still the same. Each batch of the transaction and each marker removes the guard: a `yes` from before an
abort is worth nothing after it.

Not thread-safe: the partition's lock protects it.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import RecordBatch


class VerificationGuard:
    """One attempt to verify; it is compared by identity."""

    __slots__ = ("epoch", "lowest_sequence", "timestamp_ms")

    def __init__(self, epoch: int, lowest_sequence: int, timestamp_ms: int) -> None:
        self.epoch = epoch
        # The first sequence that waits for the verification. If a later batch came first, the earlier one was lost.
        self.lowest_sequence = lowest_sequence
        self.timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        return f"<VerificationGuard epoch={self.epoch} lowest_sequence={self.lowest_sequence}>"


class Verifications:
    """The guards of one partition, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, batch: RecordBatch, now_ms: int) -> VerificationGuard:
        """Return the guard for a batch that may begin a transaction; batches of one epoch share theirs."""
        guard = self._guards.get(batch.producer_id)
        if guard is None or batch.producer_epoch > guard.epoch:
            guard = self._guards[batch.producer_id] = VerificationGuard(
                batch.producer_epoch, batch.base_sequence, now_ms
            )
        elif batch.producer_epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, batch.base_sequence)
        return guard

    def check(self, batch: RecordBatch, guard: VerificationGuard | None) -> None:
        """Raise KafkaError unless the batch, which begins a transaction, comes with the guard in force."""
        if guard is None or self._guards.get(batch.producer_id) is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has no transaction here, and was not found to have begun one",
            )
        if batch.producer_epoch == guard.epoch and batch.base_sequence > guard.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {batch.base_sequence} of producer {batch.producer_id} before {guard.lowest_sequence}",
            )

    def end(self, producer_id: int) -> None:
        """Remove the guard of a producer: a batch of its transaction, or a marker, was appended."""
        if self._guards:
            self._guards.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the guards whose batch never came."""
        old = [
            producer_id for producer_id, guard in self._guards.items() if now_ms - guard.timestamp_ms >= expiration_ms
        ]
        for producer_id in old:
            del self._guards[producer_id]

    def reset(self) -> None:
        """Forget everything."""
        self._guards.clear()
