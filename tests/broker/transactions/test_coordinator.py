"""The transaction coordinator on a real log: what is written before whom is answered, and what a failover finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.transactions.coordinating import (
    FIRST_PRODUCER,
    ID,
    TIMEOUT_MS,
    A,
    B,
    Coordinating,
    coordinating,
)

from ottla.broker.coordination.placement import TRANSACTION_STATE
from ottla.broker.transactions.coordinator import InitializedProducer, TransactionLimits
from ottla.broker.transactions.loading import load_transactions
from ottla.broker.transactions.transaction import StoredTransaction, TransactionState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

ONGOING = TransactionState.ONGOING
PREPARE_COMMIT, COMPLETE_COMMIT = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
PREPARE_ABORT, COMPLETE_ABORT = TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT


@pytest.fixture
def led(tmp_path: Path) -> Iterator[Coordinating]:
    """A coordinator that has loaded its only partition."""
    with coordinating(tmp_path) as found:
        found.lead()
        yield found


def written(led: Coordinating) -> StoredTransaction | None:
    """Return what the log has of the id."""
    partition = led.broker.services.partitions.find(TopicPartition(TRANSACTION_STATE, 0))
    assert partition is not None
    loaded = load_transactions(partition.log, 1024 * 1024, lambda: True)
    assert loaded is not None
    return loaded.entries.get(ID)


def test_a_transaction_from_its_first_partition_to_its_last_marker(led: Coordinating) -> None:
    """Each step is in the log when its answer is there."""
    producer = led.producer()
    assert producer == (FIRST_PRODUCER, 0)
    both = frozenset({A, B})
    assert led.add(producer, A, B) is ErrorCode.NONE
    found = written(led)
    assert found is not None
    assert (found.state, found.partitions) == (ONGOING, both)
    assert led.end(producer) is ErrorCode.NONE
    found = written(led)
    assert found is not None
    assert (found.state, found.partitions) == (PREPARE_COMMIT, both)

    led.mark(A)
    assert led.state() is PREPARE_COMMIT
    led.mark(B)

    found = written(led)
    assert found is not None
    assert (found.state, found.partitions, led.state()) == (COMPLETE_COMMIT, frozenset(), COMPLETE_COMMIT)
    assert led.end(producer) is ErrorCode.NONE


def test_nobody_is_answered_before_all_replicas_in_sync_have_it(tmp_path: Path) -> None:
    """And memory has not changed either; verification sees only what is written."""
    with coordinating(tmp_path) as led:
        led.lead()
        producer = led.producer()
        led.lead(epoch=1, isr=(1, 2))
        answers: list[ErrorCode] = []
        led.coordinator.add_partitions(ID, *producer, {A}, answers.append)

        assert answers == []
        assert led.state() is TransactionState.EMPTY
        assert led.coordinator.verify(ID, *producer, [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}
        assert led.add(producer, B) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_write_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """The client is told to try again, and finds the same state."""
    with coordinating(tmp_path) as led:
        led.lead()
        producer = led.producer()
        led.lead(epoch=1, isr=(1, 2))
        answers: list[ErrorCode] = []
        led.coordinator.add_partitions(ID, *producer, {A}, answers.append)
        led.broker.services.partitions.waits.produces.expire(float("inf"))

        assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert led.state() is TransactionState.EMPTY
        led.lead(epoch=2)
        assert led.add(producer, A) is ErrorCode.NONE


def test_a_new_coordinator_knows_what_was_written(led: Coordinating) -> None:
    """And goes on from there."""
    producer = led.producer()
    led.add(producer, A)
    led.fail_over(epoch=1)

    assert led.state() is ONGOING
    assert led.coordinator.verify(ID, *producer, [A]) == {A: ErrorCode.NONE}
    assert led.end(producer, commit=False) is ErrorCode.NONE
    led.mark(A)
    assert led.state() is COMPLETE_ABORT


def test_a_new_coordinator_sends_the_markers_of_a_decision_again(led: Coordinating) -> None:
    """With its own epoch; what its predecessor still hears does not count."""
    producer = led.producer()
    led.add(producer, A)
    led.end(producer)
    (before,) = led.decided
    predecessor = led.coordinator
    led.fail_over(epoch=3)

    ((again, new_epoch, _),) = led.decided
    assert (again.transaction.transactional_id, new_epoch) == (ID, 3)
    predecessor.shards.resigned(0, 3)
    predecessor.marked(*before, A)
    assert led.state() is PREPARE_COMMIT
    led.mark(A)
    assert led.state() is COMPLETE_COMMIT


def test_a_marker_of_an_earlier_epoch_of_this_coordinator_does_not_count(led: Coordinating) -> None:
    """The partition may have fenced it. The markers are sent again in the new epoch."""
    producer = led.producer()
    led.add(producer, A)
    led.end(producer)
    led.coordinator.shards.became_leader(0, 5)

    before, after = led.decided
    assert (before[1], after[1]) == (0, 5)
    led.coordinator.marked(*before, A)
    assert led.state() is PREPARE_COMMIT
    led.coordinator.marked(*after, A)
    assert led.state() is COMPLETE_COMMIT


def test_a_late_answer_about_one_transaction_does_not_end_the_next(led: Coordinating) -> None:
    """Both have the same producer, epoch and partition."""
    producer = led.producer()
    for _ in range(2):
        led.add(producer, A)
        led.end(producer)
        if len(led.decided) == 1:
            led.mark(A)
    first, second = led.decided

    led.coordinator.marked(*first, A)
    assert led.state() is PREPARE_COMMIT
    led.coordinator.marked(*second, A)
    assert led.state() is COMPLETE_COMMIT


def test_the_end_is_written_when_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All markers are there; only the log of the coordinator lacks replicas for a while."""
    monkeypatch.setattr("ottla.broker.transactions.coordinator._RETRY_SECONDS", 0.0)
    with coordinating(tmp_path) as led:
        led.lead()
        producer = led.producer()
        led.add(producer, A)
        led.end(producer)
        led.lead(epoch=1, isr=(1, 2))
        led.mark(A)
        led.broker.services.partitions.waits.produces.expire(float("inf"))
        assert led.state() is PREPARE_COMMIT

        led.lead(epoch=2)
        assert led.state() is COMPLETE_COMMIT


def test_an_end_that_is_written_when_another_epoch_has_begun_counts(tmp_path: Path) -> None:
    """This broker has led without a break. Its memory must not stay behind what the log has."""
    with coordinating(tmp_path) as led:
        led.lead()
        producer = led.producer()
        led.add(producer, A)
        led.end(producer)
        led.lead(epoch=1, isr=(1, 2))
        led.mark(A)
        assert led.state() is PREPARE_COMMIT

        led.coordinator.shards.became_leader(0, 2)
        led.broker.lead(TRANSACTION_STATE, epoch=2)
        assert led.state() is COMPLETE_COMMIT
        found = written(led)
        assert found is not None
        assert found.state is COMPLETE_COMMIT


def test_an_end_that_a_leader_in_doubt_cannot_write_is_tried_again(
    led: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session with ZooKeeper is not sure for a while, and nobody else takes over."""
    monkeypatch.setattr("ottla.broker.transactions.coordinator._RETRY_SECONDS", 0.0)
    producer = led.producer()
    led.add(producer, A)
    led.end(producer)
    monkeypatch.setattr(led.broker.services.zookeeper, "is_session_sure", False)
    led.mark(A)
    assert led.state() is PREPARE_COMMIT

    monkeypatch.setattr(led.broker.services.zookeeper, "is_session_sure", True)
    led.coordinator.work.run_due()
    assert led.state() is COMPLETE_COMMIT


def test_a_second_producer_aborts_what_the_first_has_begun(led: Coordinating) -> None:
    """It tries again until that is done, and gets the epoch after the fence."""
    first = led.producer()
    led.add(first, A)

    assert led.init() == InitializedProducer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert led.state() is PREPARE_ABORT
    assert led.end(first) is ErrorCode.PRODUCER_FENCED
    assert led.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    led.mark(A)

    assert led.init() == InitializedProducer(ErrorCode.NONE, FIRST_PRODUCER, 2)


def test_a_transaction_that_takes_too_long_is_aborted(led: Coordinating) -> None:
    """Its producer is fenced."""
    producer = led.producer()
    led.add(producer, A)
    led.broker.now_ms += TIMEOUT_MS
    led.coordinator.abort_late()
    assert led.state() is ONGOING

    led.broker.now_ms += 1
    led.coordinator.abort_late()

    assert led.state() is PREPARE_ABORT
    led.mark(A)
    assert led.state() is COMPLETE_ABORT
    assert led.add(producer, A) is ErrorCode.PRODUCER_FENCED


def test_a_clock_that_jumps_makes_a_timeout_early_or_late_and_does_nothing_else(led: Coordinating) -> None:
    """A transaction over which the clock is set back is not aborted, and ends as ever; set forward, it is."""
    producer = led.producer()
    led.add(producer, A)
    led.broker.now_ms -= 3_600_000
    led.coordinator.abort_late()
    led.coordinator.expire()
    assert led.end(producer) is ErrorCode.NONE
    led.mark(A)
    assert led.add(producer, A) is ErrorCode.NONE

    led.broker.now_ms += 3_600_000
    led.coordinator.abort_late()
    led.mark(A)

    assert led.state() is COMPLETE_ABORT
    assert led.init() == InitializedProducer(ErrorCode.NONE, FIRST_PRODUCER, 2)


def test_an_id_that_nobody_uses_is_forgotten(tmp_path: Path) -> None:
    """In memory and in the log. Later requests know nothing of it, and a new producer begins anew."""
    with coordinating(tmp_path, TransactionLimits(expiration_ms=1000)) as led:
        led.lead()
        producer = led.producer()
        led.coordinator.expire()
        assert led.coordinator.find(ID) is not None

        led.broker.now_ms += 1000
        led.coordinator.expire()

        assert led.coordinator.find(ID) is None
        assert written(led) is None
        assert led.add(producer, A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert led.init(*producer) == InitializedProducer(ErrorCode.NONE, FIRST_PRODUCER + 1, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 15 * 60_000 + 1])
def test_a_timeout_must_make_sense(led: Coordinating, timeout_ms: int) -> None:
    """An endless transaction would hold up readers for ever."""
    answers: list[InitializedProducer] = []
    led.coordinator.init_producer(ID, -1, -1, timeout_ms, answers.append)

    assert answers == [InitializedProducer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)]
    assert led.coordinator.find(ID) is None


def test_requests_before_the_end_of_loading_and_after_the_end_of_leadership_go_elsewhere(led: Coordinating) -> None:
    """With codes after which clients try again or look for the coordinator."""
    producer = led.producer()
    led.coordinator.shards.resigned(0, 1)
    assert led.init().error is ErrorCode.NOT_COORDINATOR
    assert led.add(producer, A) is ErrorCode.NOT_COORDINATOR

    led.coordinator.shards.became_leader(0, 2)
    assert led.coordinator.is_loading
    assert led.end(producer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    led.coordinator.work.run_due()
    assert [entry.transaction.transactional_id for entry in led.coordinator] == [ID]

    led.coordinator.stop()
    assert led.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_empty_id_is_no_id(led: Coordinating) -> None:
    """It is invalid in every request."""
    assert led.init(transactional_id="").error is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError) as refused:
        led.coordinator.verify("", 1, 1, [A])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_producer_ids_that_cannot_be_had_are_an_error_of_one_request(led: Coordinating) -> None:
    """ZooKeeper is away for a while; nothing is left behind."""

    def fail() -> int:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    led.coordinator._new_producer_id = fail

    assert led.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert led.coordinator.find(ID) is None
