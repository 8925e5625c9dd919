"""A transactional id, cell by cell: each request in each state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.broker.transactions.transaction import (
    NO_START_MS,
    PRODUCER_EPOCH_MAX,
    Change,
    StoredTransaction,
    Transaction,
    TransactionState,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

ID = "payments"
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
PRODUCER, EPOCH, OTHER_PRODUCER = 7, 3, 1000
TIMEOUT_MS = 60_000
THEN_MS, NOW_MS = 1_000, 5_000

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
AT_REST = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
WRITTEN = (*AT_REST, ONGOING, *PREPARED)


def in_state(state: TransactionState, *, epoch: int = EPOCH) -> Transaction:
    """Return an id in a state, as it is loaded from the log."""
    has_partitions = not state.is_at_rest
    stored = StoredTransaction(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=frozenset({A}) if has_partitions else frozenset(),
        last_update_ms=THEN_MS,
        start_ms=NO_START_MS if state is EMPTY else THEN_MS,
    )
    return Transaction.loaded(ID, stored)


def init(
    transaction: Transaction, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
) -> StoredTransaction:
    """Begin InitProducerId; return what is written."""
    change = transaction.init_producer(producer_id, producer_epoch, 2 * TIMEOUT_MS, NOW_MS, lambda: OTHER_PRODUCER)
    assert change.target is not None
    return change.target


def refused(call: Callable[[], object]) -> ErrorCode:
    """Return the error of a call."""
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


# InitProducerId


@pytest.mark.parametrize("state", AT_REST)
def test_another_producer_gets_the_next_epoch(state: TransactionState) -> None:
    """Its transaction begins with nothing, and has its own timeout."""
    transaction = in_state(state)

    target = init(transaction)
    transaction.written()

    assert target == StoredTransaction(PRODUCER, EPOCH + 1, 2 * TIMEOUT_MS, EMPTY, frozenset(), NOW_MS, NO_START_MS)
    assert transaction.stored == target
    assert transaction.previous_producer_epoch == NO_PRODUCER_EPOCH


@pytest.mark.parametrize("state", AT_REST)
def test_the_same_producer_goes_on_after_an_error(state: TransactionState) -> None:
    """It names its id and epoch, and gets the next one."""
    transaction = in_state(state)

    assert init(transaction, PRODUCER, EPOCH).producer_epoch == EPOCH + 1
    transaction.written()

    assert transaction.previous_producer_epoch == EPOCH


@pytest.mark.parametrize("state", AT_REST)
def test_a_producer_that_did_not_hear_the_answer_gets_the_same_one(state: TransactionState) -> None:
    """It asks again with the epoch before; nobody else has asked in between."""
    transaction = in_state(state)
    init(transaction, PRODUCER, EPOCH)
    transaction.written()

    assert init(transaction, PRODUCER, EPOCH).producer_epoch == EPOCH + 1
    transaction.written()
    assert init(transaction, PRODUCER, EPOCH).producer_epoch == EPOCH + 1


def test_a_producer_that_was_replaced_is_fenced() -> None:
    """Whoever comes without an id takes over, and the one before cannot repeat its request."""
    transaction = in_state(EMPTY)
    init(transaction, PRODUCER, EPOCH)
    transaction.written()
    init(transaction)
    transaction.written()

    assert refused(lambda: init(transaction, PRODUCER, EPOCH)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: init(transaction, PRODUCER, EPOCH + 1)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", WRITTEN)
def test_an_unknown_producer_is_fenced(state: TransactionState) -> None:
    """In every state."""
    assert refused(lambda: init(in_state(state), 99, EPOCH)) is ErrorCode.PRODUCER_FENCED


def test_a_new_id_takes_any_producer() -> None:
    """The coordinator has forgotten it, perhaps; the producer gets a new producer id and epoch 0."""
    for producer in ((NO_PRODUCER_ID, NO_PRODUCER_EPOCH), (99, 12)):
        transaction = Transaction.new(ID, PRODUCER, THEN_MS)
        target = init(transaction, *producer)
        assert (target.producer_id, target.producer_epoch, target.state) == (PRODUCER, 0, EMPTY)


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("producer", [(NO_PRODUCER_ID, NO_PRODUCER_EPOCH), (PRODUCER, EPOCH)])
def test_nobody_begins_while_markers_are_written(state: TransactionState, producer: tuple[int, int]) -> None:
    """The client tries again."""
    assert refused(lambda: init(in_state(state), *producer)) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("producer", [(NO_PRODUCER_ID, NO_PRODUCER_EPOCH), (PRODUCER, EPOCH)])
def test_an_open_transaction_is_aborted_with_the_next_epoch(producer: tuple[int, int]) -> None:
    """The markers carry it, so that the partitions refuse the old producer, too."""
    transaction = in_state(ONGOING)

    target = init(transaction, *producer)
    transaction.written()

    assert (target.state, target.producer_epoch, target.partitions) == (PREPARE_ABORT, EPOCH + 1, frozenset({A}))
    assert transaction.unmarked == {A}
    assert refused(lambda: transaction.end(PRODUCER, EPOCH, NOW_MS, commit=True)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("is_same", [False, True])
def test_a_producer_whose_epochs_are_used_up_gets_another_id(state: TransactionState, is_same: bool) -> None:
    """Epoch 32767 is for a fence alone. The old producer may repeat its request, one that was replaced may not."""
    transaction = in_state(state, epoch=PRODUCER_EPOCH_MAX)
    producer = (PRODUCER, PRODUCER_EPOCH_MAX) if is_same else (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    target = init(transaction, *producer)
    transaction.written()

    assert (target.producer_id, target.producer_epoch) == (OTHER_PRODUCER, 0)
    if is_same:
        again = init(transaction, PRODUCER, PRODUCER_EPOCH_MAX)
        assert (again.producer_id, again.producer_epoch) == (OTHER_PRODUCER, 0)
    else:
        assert refused(lambda: init(transaction, PRODUCER, PRODUCER_EPOCH_MAX)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_in_another_epoch_than_the_last_one_is_fenced() -> None:
    """Where Kafka fails with an internal error."""
    transaction = in_state(EMPTY, epoch=PRODUCER_EPOCH_MAX)

    assert refused(lambda: init(transaction, PRODUCER, PRODUCER_EPOCH_MAX - 5)) is ErrorCode.PRODUCER_FENCED


def test_the_last_fence_has_the_last_epoch() -> None:
    """A producer with epoch 32766 is fenced with 32767, and the next one gets another producer id."""
    transaction = in_state(ONGOING, epoch=PRODUCER_EPOCH_MAX)
    assert init(transaction).producer_epoch == PRODUCER_EPOCH_MAX + 1
    transaction.written()
    transaction.marked(A)
    transaction.complete(NOW_MS)
    transaction.written()

    target = init(transaction)

    assert (target.producer_id, target.producer_epoch) == (OTHER_PRODUCER, 0)


# AddPartitionsToTxn


@pytest.mark.parametrize("state", AT_REST)
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    """Its clock starts there."""
    transaction = in_state(state)

    change = transaction.add_partitions(PRODUCER, EPOCH, {A, B}, NOW_MS)
    transaction.written()

    assert change is not None
    assert transaction.stored == StoredTransaction(
        PRODUCER, EPOCH, TIMEOUT_MS, ONGOING, frozenset({A, B}), NOW_MS, NOW_MS
    )


def test_further_partitions_join_it() -> None:
    """Those that it has need no write."""
    transaction = in_state(ONGOING)

    assert transaction.add_partitions(PRODUCER, EPOCH, {A}, NOW_MS) is None
    transaction.add_partitions(PRODUCER, EPOCH, {A, B}, NOW_MS)
    transaction.written()

    assert transaction.stored.partitions == {A, B}
    assert transaction.stored.start_ms == THEN_MS


@pytest.mark.parametrize("state", PREPARED)
def test_the_next_transaction_waits_for_the_end_of_the_last(state: TransactionState) -> None:
    """The client tries again soon."""
    transaction = in_state(state)

    assert refused(lambda: transaction.add_partitions(PRODUCER, EPOCH, {A}, NOW_MS)) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )


# Verification


@pytest.mark.parametrize("state", [*AT_REST, ONGOING])
def test_a_broker_learns_which_partitions_are_in_the_transaction(state: TransactionState) -> None:
    """Only those that are written; nothing changes."""
    transaction = in_state(state)
    expected = ErrorCode.NONE if state is ONGOING else ErrorCode.TRANSACTION_ABORTABLE

    assert transaction.verify(PRODUCER, EPOCH, [A, B]) == {A: expected, B: ErrorCode.TRANSACTION_ABORTABLE}
    assert transaction == in_state(state)


def test_verification_looks_past_what_is_not_written_yet() -> None:
    """A partition that is being added may be in the log of the coordinator or not."""
    transaction = in_state(ONGOING)
    transaction.add_partitions(PRODUCER, EPOCH, {B}, NOW_MS)

    assert transaction.verify(PRODUCER, EPOCH, [A, B]) == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("state", PREPARED)
def test_nothing_is_verified_once_the_outcome_is_decided(state: TransactionState) -> None:
    """The record would come after the marker."""
    assert refused(lambda: in_state(state).verify(PRODUCER, EPOCH, [A])) is ErrorCode.CONCURRENT_TRANSACTIONS


# EndTxn


@pytest.mark.parametrize(
    ("state", "commit", "outcome"),
    [
        (ONGOING, True, PREPARE_COMMIT),
        (ONGOING, False, PREPARE_ABORT),
        (PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (COMPLETE_COMMIT, True, None),
        (COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_ABORT, False, None),
        (EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (EMPTY, False, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_transaction_ends_once(
    state: TransactionState, commit: bool, outcome: TransactionState | ErrorCode | None
) -> None:
    """A repeated request gets the same answer, the opposite one is refused."""
    transaction = in_state(state)

    def end() -> Change | None:
        return transaction.end(PRODUCER, EPOCH, NOW_MS, commit=commit)

    if isinstance(outcome, ErrorCode):
        assert refused(end) is outcome
    elif outcome is None:
        assert end() is None
    else:
        end()
        transaction.written()
        assert transaction.stored == replace(in_state(ONGOING).stored, state=outcome, last_update_ms=NOW_MS)
        assert transaction.unmarked == {A}


@pytest.mark.parametrize(
    ("commit", "complete"), [(True, COMPLETE_COMMIT), (False, COMPLETE_ABORT)], ids=["commit", "abort"]
)
def test_a_transaction_is_complete_when_every_partition_has_its_marker(
    commit: bool, complete: TransactionState
) -> None:
    """Then it has no partitions."""
    transaction = in_state(EMPTY)
    transaction.add_partitions(PRODUCER, EPOCH, {A, B}, THEN_MS)
    transaction.written()
    transaction.end(PRODUCER, EPOCH, NOW_MS, commit=commit)
    transaction.written()

    assert not transaction.marked(B)
    assert transaction.marked(A)
    transaction.complete(NOW_MS)
    transaction.written()

    assert (transaction.state, transaction.stored.partitions) == (complete, frozenset())
    assert transaction.stored.start_ms == THEN_MS


@pytest.mark.parametrize("state", PREPARED)
def test_all_markers_are_written_again_after_a_failover(state: TransactionState) -> None:
    """Which of them were written is not in the log."""
    assert in_state(state).unmarked == {A}


# Fencing, of every request of a producer


@pytest.mark.parametrize("state", WRITTEN)
@pytest.mark.parametrize(
    ("producer", "code"),
    [
        ((99, EPOCH), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((PRODUCER, EPOCH - 1), ErrorCode.PRODUCER_FENCED),
        ((PRODUCER, EPOCH + 1), ErrorCode.PRODUCER_FENCED),
    ],
    ids=["another producer", "an old epoch", "an epoch of nobody"],
)
def test_only_the_present_producer_is_served(
    state: TransactionState, producer: tuple[int, int], code: ErrorCode
) -> None:
    """Whatever it asks for."""
    transaction = in_state(state)

    assert refused(lambda: transaction.add_partitions(*producer, {A}, NOW_MS)) is code
    assert refused(lambda: transaction.verify(*producer, [A])) is code
    assert refused(lambda: transaction.end(*producer, NOW_MS, commit=True)) is code


# Pending changes


@pytest.mark.parametrize("state", [*AT_REST, ONGOING])
def test_one_change_at_a_time(state: TransactionState) -> None:
    """Until it is written, everybody else is to try again, and nothing happens by itself."""
    transaction = in_state(state)
    transaction.add_partitions(PRODUCER, EPOCH, {B}, NOW_MS)

    assert refused(lambda: init(transaction)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(lambda: transaction.add_partitions(PRODUCER, EPOCH, {A}, NOW_MS)) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    assert refused(lambda: transaction.end(PRODUCER, EPOCH, NOW_MS, commit=True)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.time_out(2**60) is None
    assert transaction.expire(2**60, 0) is None


@pytest.mark.parametrize("state", [*AT_REST, ONGOING])
def test_a_write_that_fails_changes_nothing(state: TransactionState) -> None:
    """Memory never runs ahead of the log."""
    transaction = in_state(state)
    transaction.add_partitions(PRODUCER, EPOCH, {B}, NOW_MS)
    transaction.failed()

    assert transaction == in_state(state)


def test_a_fence_that_cannot_be_written_uses_one_epoch() -> None:
    """The old producer stays fenced, and an outage does not use up the epochs."""
    transaction = in_state(ONGOING)
    for _ in range(3):
        assert init(transaction).producer_epoch == EPOCH + 1
        transaction.failed()
    assert refused(lambda: transaction.end(PRODUCER, EPOCH, NOW_MS, commit=True)) is ErrorCode.PRODUCER_FENCED

    init(transaction)
    transaction.written()
    transaction.marked(A)
    transaction.complete(NOW_MS)
    transaction.written()
    assert init(transaction).producer_epoch == EPOCH + 2
    transaction.written()
    transaction.add_partitions(PRODUCER, EPOCH + 2, {A}, NOW_MS)
    transaction.written()
    assert init(transaction).producer_epoch == EPOCH + 3


# Time


@pytest.mark.parametrize("state", WRITTEN)
def test_an_open_transaction_is_aborted_after_its_timeout(state: TransactionState) -> None:
    """With another epoch; what is decided already is only completed."""
    transaction = in_state(state)
    assert transaction.time_out(THEN_MS + TIMEOUT_MS) is None

    change = transaction.time_out(THEN_MS + TIMEOUT_MS + 1)

    if state is not ONGOING:
        assert change is None
    else:
        assert change is not None
        assert change.target is not None
        assert (change.target.state, change.target.producer_epoch) == (PREPARE_ABORT, EPOCH + 1)


@pytest.mark.parametrize("state", WRITTEN)
def test_an_id_that_nobody_uses_expires(state: TransactionState) -> None:
    """Unless it has a transaction. Who still has it in hand is told to try again."""
    transaction = in_state(state)
    assert transaction.expire(THEN_MS + 99, 100) is None

    change = transaction.expire(THEN_MS + 100, 100)

    if not state.is_at_rest:
        assert change is None
        return
    assert change == Change(None)
    transaction.written()
    assert transaction.state is TransactionState.DEAD
    assert refused(lambda: init(transaction)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(lambda: transaction.add_partitions(PRODUCER, EPOCH, {A}, NOW_MS)) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )


def test_an_expiry_that_cannot_be_written_keeps_the_id() -> None:
    """It is tried again an hour later."""
    transaction = in_state(EMPTY)
    transaction.expire(2**60, 100)
    transaction.failed()

    assert transaction == in_state(EMPTY)


@pytest.mark.parametrize(
    ("state", "title"),
    [(EMPTY, "Empty"), (PREPARE_COMMIT, "PrepareCommit"), (COMPLETE_ABORT, "CompleteAbort"), (ONGOING, "Ongoing")],
)
def test_states_are_named_as_in_kafkas_tools(state: TransactionState, title: str) -> None:
    """`kafka-transactions.sh list` filters by them."""
    assert state.title == title


# Any order

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["init", "init as before", "add", "commit", "abort", "mark", "complete", "time out"]),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_comes_in_whatever_order_epochs_rise_and_decisions_stay(steps: list[tuple[str, bool]]) -> None:
    """No producer gets an epoch that another one had; what is decided is completed as it was decided."""
    transaction = Transaction.new(ID, PRODUCER, 0)
    ids = count(OTHER_PRODUCER)
    clock = 0
    given_out: list[tuple[int, int]] = []
    decided: TransactionState | None = None
    for name, is_written in steps:
        clock += TIMEOUT_MS
        before = transaction.stored
        try:
            change = _take(transaction, name, clock, lambda: next(ids))
        except KafkaError:
            assert transaction.stored == before
            continue
        if change is None:
            continue
        assert transaction.stored == before
        if not is_written:
            transaction.failed()
            assert replace(transaction.stored, producer_epoch=before.producer_epoch) == before
            continue
        transaction.written()
        after = transaction.stored
        if before.state.is_prepared:
            assert decided is not None
            assert after.state.title.removeprefix("Complete") == decided.title.removeprefix("Prepare")
        decided = after.state if after.state.is_prepared else None
        if (after.producer_id, after.producer_epoch) != (before.producer_id, before.producer_epoch):
            assert (after.producer_id, after.producer_epoch) > max(given_out, default=(-1, -1))
            given_out.append((after.producer_id, after.producer_epoch))


def _take(transaction: Transaction, name: str, now_ms: int, new_id: Callable[[], int]) -> Change | None:
    stored = transaction.stored
    match name:
        case "init":
            return transaction.init_producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, TIMEOUT_MS, now_ms, new_id)
        case "init as before":
            return transaction.init_producer(stored.producer_id, stored.producer_epoch, TIMEOUT_MS, now_ms, new_id)
        case "add":
            return transaction.add_partitions(stored.producer_id, stored.producer_epoch, {A, B}, now_ms)
        case "commit" | "abort":
            return transaction.end(stored.producer_id, stored.producer_epoch, now_ms, commit=name == "commit")
        case "mark":
            for partition in (A, B):
                transaction.marked(partition)
            return None
        case "complete":
            is_due = stored.state.is_prepared and not transaction.unmarked
            return transaction.complete(now_ms) if is_due else None
        case _:
            return transaction.time_out(now_ms)
