"""A producer with a transactional id that says what it does in each transaction, and what became of it."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.faults.checker.history import (
    NO_OFFSET,
    BeginTransaction,
    EndTransaction,
    Fail,
    Info,
    Invoke,
    Ok,
    StageOffsets,
    TransactionEnded,
)
from tests.faults.workload.settings import REQUEST_TIMEOUT_MS, Settings

# Longer than a failover, and short enough that what a client left open ends within a test.
TRANSACTION_TIMEOUT_MS = 20_000
ATTEMPT_S = 5.0
# How long a request is repeated that librdkafka says can be.
RETRIES_S = 20.0
# Nothing that ends by itself takes longer.
STAGE_TIMEOUT_S = 10.0
# The cluster is well again when this ends; it is far longer than that takes.
OPEN_TIMEOUT_S = 120.0
BACKOFF_S = 0.2


class TransactionalProducer:
    """One transaction after the other. A client that broke is replaced by another one with the same id.

    All methods of a transaction raise KafkaException where it cannot go on; then `abort` is next. A worker that asks
    for a commit has the acknowledgements of all that it sent.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._client: Producer | None = None
        self._ops = count()
        self._number = -1
        # Of the sends of this transaction: under way, and not acknowledged for good.
        self._in_flight = 0
        self._failures = 0

    def open(self) -> None:
        """Have a client with the id; what earlier ones have left open is aborted by then. TimeoutError if none can."""
        if self._client is None:
            self._client = self._take_over()

    def begin(self, number: int) -> None:
        """Begin a transaction, once there is a client that has the id."""
        self._number = number
        self._in_flight = self._failures = 0
        self.open()
        self._settings.history.write(BeginTransaction(worker=self._name, transaction=number))
        self._opened.begin_transaction()

    def send(self, settings: Settings, partition: int, source: tuple[str, int] | None = None) -> None:
        """Send the next value to a partition; the answer is written down when it comes."""
        op = next(self._ops)
        value = f"{self._name}-{op}"
        self._settings.history.write(
            Invoke(
                worker=self._name,
                op=op,
                partition=settings.partition(partition),
                value=value,
                transaction=self._number,
                source=source,
            )
        )
        try:
            self._opened.produce(
                settings.topic,
                value.encode(),
                partition=partition,
                on_delivery=partial(self._on_delivery, self._number, op),
            )
        except (BufferError, KafkaException) as error:
            self._settings.history.write(Fail(worker=self._name, op=op, error=str(error)))
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from error
        self._in_flight += 1

    def flush(self) -> None:
        """Wait until all that was sent is acknowledged."""
        with _fatal_errors_as_such():
            self._opened.flush(TRANSACTION_TIMEOUT_MS / 1000)
        if self._in_flight or self._failures:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def stage(self, group: str, positions: Sequence[TopicPartition], member: Any) -> None:
        """Give the transaction positions of a group, as a member of it.

        librdkafka may wait for ever here, whatever the timeout, when the group's coordinator went away
        (confluentinc/librdkafka 5456 and 5511). Then the client is left to itself, and another one takes over its id.
        """
        offsets = tuple((f"{one.topic}-{one.partition}", int(one.offset)) for one in positions)
        self._settings.history.write(
            StageOffsets(worker=self._name, transaction=self._number, group=group, offsets=offsets)
        )
        send = self._opened.send_offsets_to_transaction
        try:
            _within(STAGE_TIMEOUT_S, lambda: _repeat(lambda timeout_s: send(list(positions), member, timeout_s)))
        except TimeoutError:
            self.crash()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def commit(self, patience_s: float = RETRIES_S) -> bool:
        """Ask for the commit; return whether it happened for certain, and within so many seconds."""
        self._settings.history.write(EndTransaction(worker=self._name, transaction=self._number, is_commit=True))
        try:
            _repeat(self._opened.commit_transaction, patience_s)
        except KafkaException as error:
            # Whatever librdkafka says, an earlier attempt of its own may have got through.
            self._ended("info", error)
            self._recover(error.args[0])
            return False
        self._ended("ok")
        return True

    def abort(self) -> None:
        """Ask for the abort. From here on, the transaction must not be committed, whatever comes of it."""
        self._settings.history.write(EndTransaction(worker=self._name, transaction=self._number, is_commit=False))
        if self._client is None:
            return
        try:
            _repeat(self._client.abort_transaction)
        except KafkaException as error:
            self._ended("info", error)
            self.crash()
        else:
            self._ended("ok")

    def crash(self) -> None:
        """Go away without a word; the next transaction is that of another client with the same id."""
        self._client = None

    def be_replaced(self) -> None:
        """Let another client take over the id, and only then ask for the commit, which must be refused."""
        self._settings.history.write(EndTransaction(worker=self._name, transaction=self._number, is_commit=False))
        zombie = self._opened
        self._client = self._take_over()
        try:
            with _fatal_errors_as_such():
                zombie.commit_transaction(ATTEMPT_S)
        except KafkaException as error:
            self._ended("fail", error)
        else:
            self._ended("ok")

    def close(self) -> None:
        """End what earlier clients may have left open, and go away."""
        self.open()
        self._client = None

    @property
    def _opened(self) -> Producer:
        assert self._client is not None, "no transaction was begun"
        return self._client

    def _take_over(self) -> Producer:
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        while True:
            client = Producer(
                {
                    **self._settings.client,
                    "transactional.id": f"{self._settings.topic}-{self._name}",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "request.timeout.ms": REQUEST_TIMEOUT_MS,
                    "linger.ms": 1,
                }
            )
            try:
                _repeat(client.init_transactions)
            except KafkaException as error:
                self._say(error.args[0])
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no client of {self._name} could take over its id") from error
                time.sleep(BACKOFF_S)
            else:
                return client

    def _recover(self, error: KafkaError) -> None:
        """Let the client go on where librdkafka says that it can, after an abort."""
        if error.txn_requires_abort() and self._client is not None:
            try:
                _repeat(self._client.abort_transaction)
            except KafkaException as again:
                self._say(again.args[0])
            else:
                return
        self.crash()

    def _on_delivery(self, number: int, op: int, error: KafkaError | None, message: Message) -> None:
        if number == self._number:
            self._in_flight -= 1
            self._failures += error is not None
        if error is None:
            offset = message.offset()
            known = NO_OFFSET if offset is None or offset < 0 else offset
            self._settings.history.write(Ok(worker=self._name, op=op, offset=known))
        else:
            # Also what librdkafka has purged from its queue: it may have been on its way before.
            self._settings.history.write(Info(worker=self._name, op=op, error=str(error)))

    def _ended(self, outcome: Literal["ok", "fail", "info"], error: KafkaException | None = None) -> None:
        told = "" if error is None else str(error.args[0])
        if error is not None:
            self._say(error.args[0])
        self._settings.history.write(
            TransactionEnded(worker=self._name, transaction=self._number, outcome=outcome, error=told)
        )

    def _say(self, error: KafkaError) -> None:
        sys.stderr.write(f"{self._name} {self._number}: {error}\n")


@contextmanager
def _fatal_errors_as_such() -> Iterator[None]:
    """Raise a fatal error of librdkafka as what it is.

    confluent-kafka raises it among the callbacks of a call. If another callback comes after it, Python finds an
    exception where none can be, and raises SystemError.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def _within(timeout_s: float, call: Callable[[], None]) -> None:
    """Make a call in a thread, which is left behind where it does not come back in time; TimeoutError then."""
    outcome: queue.SimpleQueue[KafkaException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call()
        except KafkaException as error:
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=run, daemon=True).start()
    try:
        error = outcome.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error


def _repeat(call: Callable[[float], Any], patience_s: float = RETRIES_S) -> None:
    """Make a call again as long as librdkafka says that it can be, up to a limit; raise what it raised last."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with _fatal_errors_as_such():
                call(min(ATTEMPT_S, patience_s))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return
