"""A transaction coordinator for tests, with a real log. Tests control its loading, its clock and its markers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.broker.handlers.data_path import NOW_MS, Broker, running_broker

from ottla.broker.coordination.placement import TRANSACTION_STATE
from ottla.broker.transactions.coordinator import (
    CoordinatedTransaction,
    InitializedProducer,
    TransactionCoordinator,
    TransactionLimits,
)
from ottla.broker.transactions.transaction import StoredTransaction, TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

ID = "payments"
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
FIRST_PRODUCER = 5_000
TIMEOUT_MS = 60_000


class Coordinating:
    """A broker that leads the only partition of `__transaction_state`, and its coordinator."""

    def __init__(self, broker: Broker, limits: TransactionLimits) -> None:
        self.broker = broker
        self._limits = limits
        self._ids = count(FIRST_PRODUCER)
        # What is to get markers: the entry, the coordinator epoch, and the decision.
        self.decided: list[tuple[CoordinatedTransaction, int, StoredTransaction]] = []
        self.coordinator = self.another()

    def another(self) -> TransactionCoordinator:
        """Make a coordinator that knows nothing yet."""
        coordinator = TransactionCoordinator(
            lambda: self._limits,
            self.broker.services.partitions,
            lambda: 1,
            lambda: next(self._ids),
            lambda: NOW_MS + self.broker.now_ms,
        )
        coordinator.send_markers = lambda entry: self.decided.append(
            (entry, entry.shard.epoch, entry.transaction.stored)
        )
        return coordinator

    def lead(self, epoch: int = 0, **role: Any) -> None:
        """Lead in an epoch, and load what the log has."""
        self.broker.lead(TRANSACTION_STATE, epoch=epoch, **role)
        self.coordinator.shards.became_leader(0, epoch)
        self.coordinator.work.run_due()

    def fail_over(self, epoch: int) -> None:
        """Have another coordinator take over, with nothing but the log."""
        self.decided.clear()
        self.coordinator = self.another()
        self.lead(epoch)

    def init(self, producer_id: int = -1, epoch: int = -1, transactional_id: str = ID) -> InitializedProducer:
        """Send InitProducerId; the answer must be there."""
        answers: list[InitializedProducer] = []
        self.coordinator.init_producer(transactional_id, producer_id, epoch, TIMEOUT_MS, answers.append)
        (answer,) = answers
        return answer

    def producer(self) -> tuple[int, int]:
        """Return the id and epoch of a new producer."""
        answer = self.init()
        assert answer.error is ErrorCode.NONE
        return answer.producer_id, answer.producer_epoch

    def add(self, producer: tuple[int, int], *partitions: TopicPartition) -> ErrorCode:
        """Send AddPartitionsToTxn."""
        return self._answer(lambda done: self.coordinator.add_partitions(ID, *producer, set(partitions), done))

    def end(self, producer: tuple[int, int], *, commit: bool = True) -> ErrorCode:
        """Send EndTxn."""
        return self._answer(lambda done: self.coordinator.end(ID, *producer, done, commit=commit))

    def mark(self, *partitions: TopicPartition) -> None:
        """Write the markers of the last transaction that was decided."""
        for partition in partitions:
            self.coordinator.marked(*self.decided[-1], partition)

    def state(self) -> TransactionState:
        """Return the state of the transactional id."""
        entry = self.coordinator.find(ID)
        assert entry is not None
        return entry.transaction.state

    def _answer(self, ask: Callable[[Callable[[ErrorCode], None]], None]) -> ErrorCode:
        answers: list[ErrorCode] = []
        ask(answers.append)
        (answer,) = answers
        return answer


@contextmanager
def coordinating(directory: Path, limits: TransactionLimits | None = None) -> Iterator[Coordinating]:
    """Run a coordinator over a directory."""
    with running_broker(directory, {TRANSACTION_STATE: {"cleanup.policy": "compact"}}) as broker:
        yield Coordinating(broker, limits or TransactionLimits())
