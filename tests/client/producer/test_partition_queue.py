"""Sequences, retries and epochs of one partition, against a model of the broker and any run of faults."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.producer.partition_queue import EPOCH_MAX, BatchVerdict, PartitionQueue, ProducerIdentity
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.protocol.compression import Codec
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

PARTITION = TopicPartition("t", 0)
PATIENCE = 10
CACHED_BATCHES = 5


class Log:
    """What a broker does with the batches of one producer, as far as sequences go."""

    def __init__(self) -> None:
        self.orders: list[int] = []
        self._epoch: int | None = None
        self._cached: deque[tuple[int, int]] = deque(maxlen=CACHED_BATCHES)

    def append(self, order: int, batch: RecordBatch) -> bool:
        """Write a batch, or know it again; return whether its numbers were right."""
        span = batch.base_sequence, batch.last_sequence
        if batch.producer_epoch == self._epoch and span in self._cached:
            return True
        if self._epoch is not None and batch.producer_epoch < self._epoch:
            return False
        expected = 0
        if batch.producer_epoch == self._epoch and self._cached:
            expected = (self._cached[-1][1] + 1) % (1 << 31)
        if self._epoch is not None and batch.base_sequence != expected:
            return False
        if batch.producer_epoch != self._epoch:
            self._cached.clear()
        self._epoch = batch.producer_epoch
        self._cached.append(span)
        self.orders.append(order)
        return True


class Simulation:
    """A queue, the connection that it sends by, and the log at the other end."""

    def __init__(self, in_flight_max: int, loop: asyncio.AbstractEventLoop, epoch: int = 0) -> None:
        self.queue = PartitionQueue(PARTITION, in_flight_max)
        self.queue.identity = ProducerIdentity(7, epoch)
        self.log = Log()
        self.now = 0
        self.acknowledged: list[int] = []
        self.given_up: set[int] = set()
        self.made: list[int] = []
        self._loop = loop
        self._connection = object()
        self._wire: dict[int, RecordBatch] = {}

    def make(self, records: int) -> None:
        """Put a batch into the queue."""
        builder = RecordBatchBuilder()
        for _ in range(records):
            builder.append(0, None, b"")
        order = self.queue.next_order()
        batch = ProducerBatch(
            PARTITION, builder, future=self._loop.create_future(), order=order, deadline=self.now + PATIENCE
        )
        self.queue.waiting.append(batch)
        self.made.append(order)

    def send(self) -> None:
        """Send all that may be sent."""
        while self.queue.can_send(self._connection, self.now):
            batch = self.queue.take(self._connection, idempotent=True)
            # Given up in flight, a batch lets go of its bytes; those on the wire still arrive.
            self._wire[batch.order] = RecordBatch(batch.encode(Codec.NONE))
            assert len(self.queue.in_flight) <= CACHED_BATCHES

    def answer(self, outcome: str) -> None:
        """Have the broker act on the oldest request, and answer it."""
        if not self.queue.in_flight:
            return
        batch = self.queue.in_flight[0]
        if outcome == "unavailable":
            self.fail(batch, BatchVerdict.RETRY)
        elif outcome == "refused":
            self.fail(batch, BatchVerdict.REFUSED)
        elif not self.write(batch):
            self.fail(batch, BatchVerdict.GAP)
        elif outcome == "timed out":
            self.fail(batch, BatchVerdict.RETRY)
        else:
            self.queue.written(batch)
            if not batch.future.done():
                self.acknowledged.append(batch.order)
                batch.succeed(0)

    def break_connection(self, reached: int) -> None:
        """Lose all answers; the broker acts on the first few requests."""
        lost = list(self.queue.in_flight)
        for batch in lost[:reached]:
            self.write(batch)
        self._connection = object()
        for batch in lost:
            self.fail(batch, BatchVerdict.RETRY)

    def wait(self, time: int) -> None:
        """Let time pass, and give up what is too old."""
        self.now += time
        for batch in list(self.queue.expired(self.now)):
            self.give_up(batch)

    def write(self, batch: ProducerBatch) -> bool:
        """Have the broker act on a request."""
        return self.log.append(batch.order, self._wire[batch.order])

    def fail(self, batch: ProducerBatch, verdict: BatchVerdict) -> None:
        """Report that a batch is not known to be written."""
        self.queue.failed(batch, verdict)
        if verdict is BatchVerdict.REFUSED:
            self.give_up(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        """Tell the caller."""
        if not batch.future.done():
            self.given_up.add(batch.order)
            batch.fail(TimeoutError())
            batch.future.exception()

    def finish(self) -> None:
        """Answer everything well from now on."""
        for _ in range(10 * len(self.made) + 10):
            self.send()
            self.answer("written")
        assert not self.queue.waiting
        assert not self.queue.in_flight


class Transactional(Simulation):
    """The same under the epochs of a transactional producer, which only the coordinator gives."""

    def __init__(self, in_flight_max: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(in_flight_max, loop)
        self.is_epoch_spent = False

    def fail(self, batch: ProducerBatch, verdict: BatchVerdict) -> None:
        """Retry a gap that an earlier batch explains; another one costs the epoch."""
        if verdict is BatchVerdict.GAP:
            is_explained = self.queue.has_earlier(batch)
            self.is_epoch_spent = self.is_epoch_spent or not is_explained
            verdict = BatchVerdict.RETRY if is_explained else BatchVerdict.REFUSED
        super().fail(batch, verdict)

    def abort(self, outcome: str) -> None:
        """Give up everything, wait for what is in flight, and get a new epoch if it is needed."""
        for batch in (*self.queue.drop_waiting(), *self.queue.in_flight):
            self.give_up(batch)
        while self.queue.in_flight:
            self.answer(outcome)
        assert not self.queue.waiting
        if self.is_epoch_spent or self.queue.is_in_doubt:
            assert self.queue.identity is not None
            self.queue.adopt(ProducerIdentity(7, self.queue.identity.producer_epoch + 1))
            self.is_epoch_spent = False


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that futures can belong to."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


STEPS = st.one_of(
    st.tuples(st.just("make"), st.integers(1, 3)),
    st.tuples(st.just("send"), st.just(0)),
    st.tuples(st.sampled_from(("written", "written", "unavailable", "timed out", "refused")), st.just(0)),
    st.tuples(st.just("break"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(1, PATIENCE)),
)


@examples(300)
@given(steps=st.lists(STEPS, max_size=60), in_flight_max=st.sampled_from((1, 2, 5)))
def test_nothing_is_written_twice_or_out_of_order_and_no_gap_stays(
    loop: asyncio.AbstractEventLoop, steps: list[tuple[str, int]], in_flight_max: int
) -> None:
    """Whatever is lost, refused or given up: what is acknowledged is in the log, and later batches go through."""
    simulation = Simulation(in_flight_max, loop)
    for step, argument in steps:
        match step:
            case "make":
                simulation.make(argument)
            case "send":
                simulation.send()
            case "break":
                simulation.break_connection(argument)
            case "wait":
                simulation.wait(argument)
            case _:
                simulation.answer(step)
    simulation.make(1)
    simulation.finish()

    orders = simulation.log.orders
    assert orders == sorted(set(orders))
    assert set(simulation.acknowledged) <= set(orders)
    assert set(simulation.acknowledged) | simulation.given_up == set(simulation.made)
    assert simulation.made[-1] in simulation.acknowledged


OUTCOMES = ("written", "unavailable", "timed out", "refused")


@examples(300)
@given(
    transactions=st.lists(st.tuples(st.lists(STEPS, max_size=30), st.sampled_from(OUTCOMES)), min_size=1, max_size=4),
    in_flight_max=st.sampled_from((1, 2, 5)),
)
def test_a_transaction_after_an_abort_is_written_whole(
    loop: asyncio.AbstractEventLoop, transactions: list[tuple[list[tuple[str, int]], str]], in_flight_max: int
) -> None:
    """Whatever was in flight, lost or given up before: a new epoch is taken whenever sequences are in doubt."""
    simulation = Transactional(in_flight_max, loop)
    for steps, outcome in transactions:
        for step, argument in steps:
            match step:
                case "make":
                    simulation.make(argument)
                case "send":
                    simulation.send()
                case "break":
                    simulation.break_connection(argument)
                case "wait":
                    simulation.wait(argument)
                case _:
                    simulation.answer(step)
        simulation.abort(outcome)
        before = len(simulation.made)
        for _ in range(3):
            simulation.make(2)
        simulation.finish()
        assert simulation.made[before:] == [order for order in simulation.acknowledged if order > before]

    orders = simulation.log.orders
    assert orders == sorted(set(orders))
    assert set(simulation.acknowledged) <= set(orders)


def test_sequences_are_not_in_doubt_where_everything_is_known(loop: asyncio.AbstractEventLoop) -> None:
    """An abort needs no new epoch if what was in flight turns out to be written."""
    simulation = Transactional(5, loop)
    for _ in range(3):
        simulation.make(1)
    simulation.send()
    simulation.abort("written")

    assert not simulation.queue.is_in_doubt
    assert simulation.queue.identity == ProducerIdentity(7, 0)


@pytest.mark.parametrize("outcome", ["unavailable", "timed out"])
def test_sequences_are_in_doubt_after_a_batch_with_an_unknown_outcome(
    loop: asyncio.AbstractEventLoop, outcome: str
) -> None:
    """Whether it is in the log or not."""
    simulation = Transactional(5, loop)
    simulation.make(1)
    simulation.send()
    simulation.abort(outcome)

    assert simulation.queue.identity == ProducerIdentity(7, 1)


def test_a_batch_given_up_costs_the_next_ones_no_failure(loop: asyncio.AbstractEventLoop) -> None:
    """The broker misses its numbers, so the rest goes under a new epoch from 0."""
    simulation = Simulation(5, loop)
    for _ in range(4):
        simulation.make(2)
    simulation.send()
    simulation.answer("written")
    simulation.send()
    simulation.answer("refused")
    simulation.finish()

    assert simulation.acknowledged == [1, 3, 4]
    assert simulation.queue.identity == ProducerIdentity(7, 1)


def test_a_refused_batch_with_none_behind_it_leaves_no_gap(loop: asyncio.AbstractEventLoop) -> None:
    """Its numbers are used again."""
    simulation = Simulation(5, loop)
    simulation.make(2)
    simulation.send()
    simulation.answer("refused")
    simulation.make(1)
    simulation.finish()

    assert simulation.acknowledged == [2]
    assert simulation.queue.identity == ProducerIdentity(7, 0)


def test_the_numbers_of_a_batch_that_may_be_written_are_not_used_again(loop: asyncio.AbstractEventLoop) -> None:
    """The broker would take the next batch for that one, and drop it."""
    simulation = Simulation(5, loop)
    simulation.make(1)
    simulation.send()
    simulation.break_connection(1)
    simulation.send()
    simulation.answer("refused")
    simulation.make(1)
    simulation.finish()

    assert simulation.log.orders == [1, 2]
    assert simulation.acknowledged == [2]


def test_a_batch_that_was_written_though_nobody_said_so_is_not_written_again(loop: asyncio.AbstractEventLoop) -> None:
    """It keeps its numbers, by which the broker knows it."""
    simulation = Simulation(5, loop)
    for _ in range(6):
        simulation.make(1)
    simulation.send()
    simulation.answer("written")
    simulation.send()
    simulation.break_connection(5)
    simulation.finish()

    assert simulation.log.orders == [1, 2, 3, 4, 5, 6]
    assert simulation.acknowledged == [1, 2, 3, 4, 5, 6]


def test_one_batch_goes_first_to_a_broker_that_does_not_know_the_producer(loop: asyncio.AbstractEventLoop) -> None:
    """It would take the second one, whatever became of the first."""
    simulation = Simulation(5, loop)
    for _ in range(3):
        simulation.make(1)
    simulation.send()

    assert len(simulation.queue.in_flight) == 1
    simulation.answer("written")
    simulation.send()
    assert len(simulation.queue.in_flight) == 2


def test_nothing_goes_to_a_new_leader_while_the_old_one_owes_answers(loop: asyncio.AbstractEventLoop) -> None:
    """Both might write it."""
    simulation = Simulation(5, loop)
    simulation.make(1)
    simulation.send()
    simulation.make(1)

    assert not simulation.queue.can_send(object(), simulation.now)


def test_sequences_wrap_around(loop: asyncio.AbstractEventLoop) -> None:
    """From 2**31 - 1 to 0."""
    simulation = Simulation(5, loop)
    simulation.queue._next_sequence = (1 << 31) - 2
    simulation.log._epoch = 0
    simulation.log._cached.append(((1 << 31) - 3, (1 << 31) - 3))
    for _ in range(3):
        simulation.make(3)
    simulation.finish()

    assert simulation.acknowledged == [1, 2, 3]
    assert simulation.queue.identity == ProducerIdentity(7, 0)


def test_a_producer_whose_epochs_are_used_up_needs_a_new_id(loop: asyncio.AbstractEventLoop) -> None:
    """The last epoch is followed by none."""
    simulation = Simulation(5, loop, epoch=EPOCH_MAX)
    for _ in range(4):
        simulation.make(1)
    simulation.send()
    simulation.answer("written")
    simulation.send()
    simulation.answer("refused")
    simulation.answer("written")
    simulation.answer("written")

    assert simulation.queue.identity is None
    assert simulation.queue.spent_id == 7
    assert not any(batch.has_sequence for batch in simulation.queue.waiting)
