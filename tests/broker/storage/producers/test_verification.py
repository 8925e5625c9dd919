"""The first batch of a transaction: appended only if the coordinator said yes, and nothing came in between."""

from __future__ import annotations

import pytest
from tests.broker.storage.producers.producer_batches import data, end

from ottla.broker.storage.producers.producers import AppendOrigin, Producers
from ottla.broker.storage.producers.verification import VerificationGuard
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import RecordBatch

PRODUCER = 7


def first(sequence: int = 0, *, epoch: int = 1) -> RecordBatch:
    """Return a batch of a transaction."""
    return data(sequence, producer_id=PRODUCER, epoch=epoch, transactional=True)


def ended(control_type: ControlType) -> RecordBatch:
    """Return the marker of the producer."""
    return end(control_type, producer_id=PRODUCER, epoch=1)


def refused(producers: Producers, attempt: RecordBatch, guard: VerificationGuard | None) -> ErrorCode:
    """Return the error that a batch is refused with."""
    with pytest.raises(KafkaError) as error:
        producers.check(attempt, AppendOrigin(must_be_verified=True, guard=guard))
    return error.value.code


def guard_of(producers: Producers, attempt: RecordBatch) -> VerificationGuard:
    """Begin to verify a batch that needs it."""
    guard = producers.begin_verification(attempt, 0)
    assert guard is not None
    return guard


def test_a_batch_that_begins_a_transaction_needs_the_guard_in_force() -> None:
    """None, or one of another attempt, is as good as a no."""
    producers = Producers()
    old = guard_of(producers, first(epoch=1))
    guard = guard_of(producers, first(epoch=2))

    assert refused(producers, first(epoch=2), None) is ErrorCode.INVALID_TXN_STATE
    assert refused(producers, first(epoch=2), old) is ErrorCode.INVALID_TXN_STATE
    assert producers.check(first(epoch=2), AppendOrigin(must_be_verified=True, guard=guard)) is None


def test_batches_that_wait_together_share_a_guard() -> None:
    """The first of them must be appended first."""
    producers = Producers()
    guard = guard_of(producers, first(5))
    assert guard_of(producers, first(3)) is guard
    assert guard_of(producers, first(9)) is guard

    assert refused(producers, first(5), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(first(3), AppendOrigin(must_be_verified=True, guard=guard)) is None


@pytest.mark.parametrize("control_type", list(ControlType)[:2])
def test_a_yes_from_before_the_end_of_a_transaction_is_worth_nothing_after_it(control_type: ControlType) -> None:
    """The batch that waited for it comes too late."""
    producers = Producers()
    guard = guard_of(producers, first())
    producers.update(ended(control_type), 0)

    assert refused(producers, first(), guard) is ErrorCode.INVALID_TXN_STATE


def test_further_batches_of_an_open_transaction_need_none() -> None:
    """Only those of another epoch do, and those of the next transaction."""
    producers = Producers()
    producers.update(first(0), 0)

    assert producers.begin_verification(first(1), 0) is None
    assert producers.check(first(1), AppendOrigin(must_be_verified=True)) is None
    assert refused(producers, first(0, epoch=2), None) is ErrorCode.INVALID_TXN_STATE
    producers.update(ended(ControlType.COMMIT), 1)
    assert refused(producers, first(1), None) is ErrorCode.INVALID_TXN_STATE


def test_a_batch_that_the_log_has_is_acknowledged_again_without_asking() -> None:
    """Also after the end of its transaction: only the answer was lost."""
    producers = Producers()
    producers.update(first(0), 0)
    producers.update(ended(ControlType.COMMIT), 1)

    assert producers.begin_verification(first(0), 0) is None
    known = producers.check(first(0), AppendOrigin(must_be_verified=True))
    assert known is not None
    assert known.base_offset == 0


def test_what_is_no_transaction_needs_no_guard() -> None:
    """And where nobody verifies, nothing does."""
    producers = Producers()

    assert producers.check(data(0, producer_id=PRODUCER), AppendOrigin(must_be_verified=True)) is None
    assert producers.check(first()) is None


def test_a_guard_whose_batch_never_comes_expires() -> None:
    """With the producers; it holds a few bytes only."""
    producers = Producers()
    producers.begin_verification(first(), 1_000)
    producers.expire(1_000 + 59, 60)
    assert len(producers.verifications) == 1

    producers.expire(1_000 + 60, 60)
    assert len(producers.verifications) == 0


def test_a_log_that_begins_anew_has_verified_nothing() -> None:
    """Its producers are unknown, too."""
    producers = Producers()
    guard = guard_of(producers, first())
    producers.reset()

    assert refused(producers, first(), guard) is ErrorCode.INVALID_TXN_STATE


def other(sequence: int) -> RecordBatch:
    """Return a batch of a transaction with other records."""
    return data(sequence, producer_id=PRODUCER, epoch=1, transactional=True, timestamp=6)


@pytest.mark.parametrize("control_type", list(ControlType)[:2])
def test_a_batch_with_the_sequences_of_an_ended_transaction_is_not_taken_for_that_one(
    control_type: ControlType,
) -> None:
    """librdkafka uses the sequences of a batch again that it has purged, although it was written.

    An answer that the batch is known already would lose its records without a word.
    """
    producers = Producers()
    producers.update(first(0), 0)
    producers.update(ended(control_type), 1)

    guard = guard_of(producers, other(0))
    with pytest.raises(KafkaError) as error:
        producers.check(other(0), AppendOrigin(must_be_verified=True, guard=guard))
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    producers.update(other(1), 2)
    assert refused(producers, other(0), None) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    known = producers.check(other(1), AppendOrigin(must_be_verified=True))
    assert known is not None
    assert known.base_offset == 2
