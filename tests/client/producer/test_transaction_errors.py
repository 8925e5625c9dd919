"""What each error means for a transaction: it is retried, ends the transaction, or ends the producer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.client.producer.scripted_producing import producing
from tests.client.producer.scripted_transactions import PRODUCER_ID, TRANSACTIONAL_ID, Coordinating, error, transacting
from tests.client.scripted_broker import HANGUP, SILENCE, Reply
from tests.kit.coroutines import BOTH_LOOPS
from tests.kit.waiting import until_async

from ottla.client.errors import (
    IllegalStateError,
    InvalidTransactionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    error_for,
)
from ottla.client.producer.producer import Producer
from ottla.client.types import ConsumerGroupMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

pytestmark = BOTH_LOOPS

FIND, INIT, ADD, PRODUCE = Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE
GROUP, OFFSETS, END = Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)

RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
FATAL = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
)
ABORTABLE = (
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


def named(code: object) -> str | None:
    """Return the name of a code, for the names of tests."""
    return code.name if isinstance(code, ErrorCode | Api) else None


async def write(producer: Producer, value: bytes = b"a", partition: int = 1) -> None:
    """Write a record."""
    await producer.send_and_wait("t", value, partition=partition)


async def offsets(producer: Producer) -> None:
    """Commit an offset with the transaction."""
    await producer.send_offsets_to_transaction({ONE: 1}, ConsumerGroupMetadata("group", 1, "member"))


# What makes the producer send a request of each API.
WORK: dict[Api, Callable[[Producer], Awaitable[None]]] = {ADD: write, GROUP: offsets, OFFSETS: offsets, END: write}


async def in_transaction(producer: Producer, api: Api) -> None:
    """Do in a transaction what makes the producer send a request of an API."""
    async with producer.transaction():
        await WORK[api](producer)


async def work_and_commit(producer: Producer, api: Api) -> None:
    """Do the same in the transaction that is open, and leave an abort to the caller."""
    await WORK[api](producer)
    await producer.commit_transaction()


def is_committed(brokers: Coordinating) -> list[bool]:
    """Whether each end of a transaction was a commit."""
    return [request.committed for request in brokers.requests(END)]


# Retriable errors.


@pytest.mark.parametrize("code", RETRIABLE, ids=named)
async def test_a_start_waits_for_the_coordinator(code: ErrorCode) -> None:
    """It asks again, and for the coordinator, too, where that may be another broker now."""
    brokers = Coordinating()
    brokers.script[INIT] = deque([int(code)] * 3)
    async with producing(brokers, transactional_id=TRANSACTIONAL_ID):
        pass
    lost = code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    assert brokers.order == [FIND, INIT] * 4 if lost else [FIND, INIT, INIT, INIT, INIT]


@pytest.mark.parametrize("code", RETRIABLE, ids=named)
@pytest.mark.parametrize("api", WORK, ids=named)
async def test_requests_of_a_transaction_are_retried(api: Api, code: ErrorCode) -> None:
    """The caller notices nothing."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.script[api] = deque([int(code)] * 2)
        await in_transaction(producer, api)
    assert brokers.order.count(api) == 3
    assert set(is_committed(brokers)) == {True}


@pytest.mark.parametrize("api", WORK, ids=named)
async def test_a_lost_answer_is_asked_for_again(api: Api) -> None:
    """Brokers know a request again that they have already carried out."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.script[api] = deque([HANGUP])
        await in_transaction(producer, api)
    assert brokers.order.count(api) == 2
    assert set(is_committed(brokers)) == {True}


async def test_a_partition_that_brokers_do_not_know_yet_is_added_again() -> None:
    """The others of the request were not attempted, and are part of the next one."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.partition_codes = {
            ZERO: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ONE: int(ErrorCode.OPERATION_NOT_ATTEMPTED),
        }
        await producer.begin_transaction()
        for number in (0, 1):
            await producer.send("t", b"", partition=number)
        await until_async(lambda: brokers.order.count(ADD) > 1, "it was asked again")
        brokers.partition_codes = {}
        await producer.commit_transaction()
    assert {tuple(request.v3_and_below_topics[0].partitions) for request in brokers.requests(ADD)} == {(0, 1)}


async def test_a_coordinator_that_never_answers_is_given_up_after_max_block_ms() -> None:
    """The start of a producer fails with the last reason."""
    brokers = Coordinating()
    brokers.script[INIT] = deque([int(ErrorCode.CONCURRENT_TRANSACTIONS)] * 10_000)

    async def start() -> None:
        async with producing(brokers, transactional_id=TRANSACTIONAL_ID, max_block_ms=1000):
            pass

    with pytest.raises(KafkaError, match="previous transaction of this producer is still being completed"):
        await start()


async def test_sequences_that_an_earlier_batch_explains_are_no_reason_to_fail() -> None:
    """A batch behind one that is retried is out of order for the broker, and is retried, too."""
    brokers = Coordinating()
    expected = seen = 0

    def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
        nonlocal expected, seen
        seen += 1
        if seen in (3, 4, 9):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if batch.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected += batch.record_count
        return None

    brokers.judge = judge
    async with transacting(brokers, max_batch_size=200) as producer, producer.transaction():
        for number in range(200):
            await producer.send("t", b"%d" % number, partition=1)
    assert brokers.log[ONE] == [b"%d" % number for number in range(200)]
    assert {batch.producer_epoch for _, batch in brokers.batches} == {0}
    assert is_committed(brokers) == [True]


# Fatal errors.


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionalIdAuthorizationFailedError),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, InvalidTransactionTimeoutError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
    ],
    ids=named,
)
async def test_a_start_that_is_refused_says_why(code: ErrorCode, expected: type[KafkaError]) -> None:
    """Nothing is left running."""
    brokers = Coordinating()
    brokers.script[INIT] = error(code)

    async def start() -> None:
        async with producing(brokers, transactional_id=TRANSACTIONAL_ID):
            pass

    with pytest.raises(expected, match=TRANSACTIONAL_ID):
        await start()


@pytest.mark.parametrize("code", FATAL, ids=named)
@pytest.mark.parametrize("api", WORK, ids=named)
async def test_a_fenced_producer_is_of_no_use_any_more(api: Api, code: ErrorCode) -> None:
    """Every call says so, and how to go on; nothing more is asked of the coordinator, not even to abort."""
    brokers = Coordinating()
    expected = ProducerFencedError if code is ErrorCode.INVALID_PRODUCER_EPOCH else type(error_for(code))
    async with transacting(brokers) as producer:
        brokers.script[api] = error(code)
        with pytest.raises(expected, match="close it and create a new one") as caught:
            await in_transaction(producer, api)
        assert (caught.value.fatal, caught.value.abortable, caught.value.retriable) == (True, False, False)
        ends = brokers.order.count(END)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send("t", b"", partition=1),
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: offsets(producer),
        ]
        for call in calls:
            with pytest.raises(expected, match="create a new one"):
                await call()
    assert brokers.order.count(END) == ends == (api is END)


async def test_records_that_wait_fail_with_the_producer() -> None:
    """Each with the reason."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.script[ADD] = error(ErrorCode.PRODUCER_FENCED)
        await producer.begin_transaction()
        deliveries = [await producer.send("t", b"", partition=number) for number in range(3)]
        for delivery in deliveries:
            with pytest.raises(ProducerFencedError):
                await delivery
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()


async def test_a_leader_may_end_the_producer_too() -> None:
    """If the producer may not use its id."""
    brokers = Coordinating()
    brokers.judge = lambda partition, batch: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        with pytest.raises(TransactionalIdAuthorizationFailedError, match="create a new one"):
            await write(producer)
        with pytest.raises(TransactionalIdAuthorizationFailedError, match="create a new one"):
            await producer.abort_transaction()


# Abortable errors.


@pytest.mark.parametrize("code", ABORTABLE, ids=named)
@pytest.mark.parametrize("api", WORK, ids=named)
async def test_after_an_abortable_error_the_transaction_can_only_be_aborted(api: Api, code: ErrorCode) -> None:
    """Every call says so until then; afterwards the producer goes on."""
    brokers = Coordinating()
    expected = type(error_for(code))
    async with transacting(brokers) as producer:
        brokers.script[api] = error(code)
        await producer.begin_transaction()
        with pytest.raises(expected, match="Abort the transaction; the producer can then begin another") as caught:
            await work_and_commit(producer, api)
        assert (caught.value.fatal, caught.value.abortable) == (False, True)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send("t", b"", partition=1),
            producer.begin_transaction,
            producer.commit_transaction,
            lambda: offsets(producer),
        ]
        for call in calls:
            with pytest.raises(expected, match="Abort the transaction"):
                await call()
        await producer.abort_transaction()
        async with producer.transaction():
            await write(producer)
    assert is_committed(brokers)[-2:] == [False, True]


@pytest.mark.parametrize("api", WORK, ids=named)
async def test_a_block_aborts_its_transaction_itself(api: Api) -> None:
    """Also where the commit at its end failed: the error comes out, and the next transaction can begin."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.script[api] = error(ErrorCode.TRANSACTION_ABORTABLE)
        with pytest.raises(TransactionAbortableError):
            await in_transaction(producer, api)
        await in_transaction(producer, api)
    assert is_committed(brokers)[-2:] == [False, True]


async def test_one_partition_that_may_not_be_written_is_named() -> None:
    """The others of the request were not attempted; that is not the reason to tell."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.partition_codes = {
            ZERO: int(ErrorCode.OPERATION_NOT_ATTEMPTED),
            ONE: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        }
        await producer.begin_transaction()
        deliveries = [await producer.send("t", b"", partition=number) for number in (0, 1)]
        with pytest.raises(TopicAuthorizationFailedError, match="t-1 is not in the transaction"):
            await producer.commit_transaction()
        for delivery in deliveries:
            with pytest.raises(TopicAuthorizationFailedError):
                await delivery
        await producer.abort_transaction()


async def test_a_request_that_began_nothing_is_aborted_all_the_same() -> None:
    """Its answer was lost, so the coordinator has to be asked; that it knows of no transaction is no error."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.script[ADD] = deque([SILENCE])
        await producer.begin_transaction()
        await producer.send("t", b"", partition=1)
        await until_async(lambda: ADD in brokers.order, "the partition was to be added")
        brokers.script[END] = error(ErrorCode.INVALID_TXN_STATE)
        aborting = asyncio.create_task(producer.abort_transaction())
        assert brokers.broker is not None
        brokers.broker.break_connections()
        await aborting
        async with producer.transaction():
            await write(producer)
    assert is_committed(brokers) == [False, True]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    ],
    ids=named,
)
async def test_a_record_that_is_refused_fails_its_transaction(code: ErrorCode) -> None:
    """Whatever the leader of its partition says: a coordinator knows better. The caller may catch it or not."""
    brokers = Coordinating()
    brokers.judge = lambda partition, batch: code
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        with pytest.raises(type(error_for(code)), match="Abort the transaction"):
            await write(producer)
        with pytest.raises(type(error_for(code)), match="Abort the transaction") as caught:
            await producer.commit_transaction()
        assert caught.value.abortable
        brokers.judge = lambda partition, batch: None
        await producer.abort_transaction()
        async with producer.transaction():
            await write(producer, b"next")
    assert is_committed(brokers) == [False, True]
    assert brokers.log[ONE] == [b"next"]


async def test_the_other_records_of_the_transaction_fail_with_a_refused_one() -> None:
    """They would be aborted anyway, so nobody waits for them: neither for one without a leader, nor for a retry."""
    brokers = Coordinating()
    verdicts = {ZERO: ErrorCode.NOT_ENOUGH_REPLICAS, ONE: ErrorCode.MESSAGE_TOO_LARGE}
    brokers.judge = lambda partition, batch: verdicts.get(partition)
    brokers.leaders = {"t": [1, 1], "u": [-1]}
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        leaderless = await producer.send("u", b"", partition=0)
        retried = await producer.send("t", b"", partition=0)
        with pytest.raises(MessageSizeTooLargeError):
            await write(producer)
        for other in (leaderless, retried):
            with pytest.raises(MessageSizeTooLargeError, match="Abort the transaction"):
                await other
        verdicts.clear()
        await producer.abort_transaction()
        async with producer.transaction():
            await write(producer, partition=0)
            await write(producer)
    assert is_committed(brokers) == [False, True]


async def test_a_record_that_is_not_delivered_in_time_fails_its_transaction() -> None:
    """Its sequence may be in the log, so the producer goes on with a new epoch, in which sequences begin at 0."""
    brokers = Coordinating()
    async with transacting(brokers, delivery_timeout_ms=200) as producer:
        async with producer.transaction():
            await write(producer, b"before")
        brokers.judge = lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        await producer.begin_transaction()
        with pytest.raises(KafkaTimeoutError, match=r"did not acknowledge.*Abort the transaction") as caught:
            await write(producer, b"late")
        assert caught.value.abortable
        brokers.asked.clear()
        # A last attempt may be under way. If it succeeded, the sequence would not be in doubt.
        await producer.abort_transaction()
        assert [api for api in brokers.order if api is not PRODUCE] == [END, INIT]
        brokers.judge = lambda partition, batch: None
        (asked,) = brokers.requests(INIT)
        assert (asked.producer_id, asked.producer_epoch) == (PRODUCER_ID, 0)
        brokers.batches.clear()
        async with producer.transaction():
            await write(producer, b"after")
            await write(producer, b"after", partition=2)
    assert [(batch.producer_epoch, batch.base_sequence) for _, batch in brokers.batches] == [(1, 0), (1, 0)]
    assert [request.producer_epoch for request in brokers.requests(END)] == [0, 1]


async def test_a_new_epoch_settles_the_doubts_about_the_one_before() -> None:
    """Also those about partitions that are not written to any more: later aborts need no further epoch."""
    brokers = Coordinating()
    brokers.judge = lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS if partition == ONE else None
    async with transacting(brokers, delivery_timeout_ms=200) as producer:
        with pytest.raises(KafkaTimeoutError):
            await in_transaction(producer, ADD)
        assert brokers.order.count(INIT) == 1
        for _ in range(3):
            await producer.begin_transaction()
            await write(producer, partition=2)
            await producer.abort_transaction()
    assert brokers.order.count(INIT) == 1
    assert {batch.producer_epoch for partition, batch in brokers.batches if partition != ONE} == {1}


async def test_a_refused_record_that_left_no_trace_needs_no_new_epoch() -> None:
    """The next record gets its sequence."""
    brokers = Coordinating()
    brokers.judge = lambda partition, batch: ErrorCode.MESSAGE_TOO_LARGE
    async with transacting(brokers) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await in_transaction(producer, ADD)
        brokers.judge = lambda partition, batch: None
        await in_transaction(producer, ADD)
    assert INIT not in brokers.order
    assert [(batch.producer_epoch, batch.base_sequence) for _, batch in brokers.batches] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("api", [ADD, GROUP, END], ids=named)
async def test_a_producer_that_the_coordinator_has_forgotten_asks_for_a_new_epoch(api: Api) -> None:
    """As happens to an id that was not used for days. There is nothing to abort then."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.script[api] = error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        await producer.begin_transaction()
        with pytest.raises(KafkaError, match="Abort the transaction"):
            await work_and_commit(producer, api)
        brokers.script[END] = error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        brokers.asked.clear()
        await producer.abort_transaction()
        assert brokers.order == [END, INIT]
        assert brokers.requests(INIT)[0].producer_id == PRODUCER_ID
        await in_transaction(producer, api)
    assert is_committed(brokers) == [False, True]


async def test_an_abort_may_find_out_that_the_producer_was_fenced() -> None:
    """As after a transaction that took too long: the leader's word is abortable, the coordinator's is not."""
    brokers = Coordinating()
    brokers.judge = lambda partition, batch: ErrorCode.INVALID_PRODUCER_EPOCH
    async with transacting(brokers) as producer:
        brokers.script[END] = error(ErrorCode.PRODUCER_FENCED)
        with pytest.raises(ProducerFencedError, match="create a new one"):
            await in_transaction(producer, ADD)
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction()


async def test_the_error_of_a_block_is_not_hidden_by_one_of_its_abort() -> None:
    """It gets a note; the producer tells the rest when it is used again."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        brokers.script[END] = error(ErrorCode.PRODUCER_FENCED)

        async def fail() -> None:
            async with producer.transaction():
                await write(producer)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await fail()
        assert "could not be aborted" in caught.value.__notes__[0]
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction()


@contextmanager
def impatient(producer: Producer) -> Iterator[None]:
    """Have the calls within give up soon; all others take as long as they need on a busy machine."""
    limit_ms = producer.settings.max_block_ms
    object.__setattr__(producer.settings, "max_block_ms", 50)
    try:
        yield
    finally:
        object.__setattr__(producer.settings, "max_block_ms", limit_ms)


async def test_an_abort_that_is_not_answered_may_be_tried_again() -> None:
    """The transaction stays as it was."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        await write(producer)
        brokers.script[END] = deque([int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 10_000)
        with (
            impatient(producer),
            pytest.raises(KafkaError, match=r"cannot abort the transaction of.*Abort the transaction") as caught,
        ):
            await producer.abort_transaction()
        assert caught.value.abortable
        with pytest.raises(KafkaError, match="Abort the transaction"):
            await producer.begin_transaction()
        brokers.script[END].clear()
        await producer.abort_transaction()
        await producer.begin_transaction()


async def test_a_commit_that_is_not_answered_can_only_be_asked_for_again() -> None:
    """Nobody knows its outcome; an abort could contradict it."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        await write(producer)
        brokers.script[END] = deque([int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 10_000)
        with (
            impatient(producer),
            pytest.raises(KafkaTimeoutError, match=r"not known.*call commit_transaction\(\) again") as caught,
        ):
            await producer.commit_transaction()
        assert (caught.value.abortable, caught.value.fatal, caught.value.retriable) == (False, False, True)
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError, match="being committed"):
                await call()
        brokers.script[END].clear()
        await producer.commit_transaction()
        await producer.begin_transaction()
    assert set(is_committed(brokers)) == {True}


async def test_offsets_are_not_forgotten_where_the_caller_stopped_waiting() -> None:
    """They fail the transaction if they were refused, whoever waited."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        brokers.script[OFFSETS] = deque([SILENCE])
        sending = asyncio.create_task(offsets(producer))
        await until_async(lambda: OFFSETS in brokers.order, "the offsets were sent")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        brokers.script[OFFSETS] = error(ErrorCode.ILLEGAL_GENERATION)
        assert brokers.broker is not None
        brokers.broker.break_connections()
        with pytest.raises(KafkaError, match="group group did not take the offset of t-1"):
            await producer.commit_transaction()
        await producer.abort_transaction()


async def test_a_refusal_of_several_offsets_tells_the_most_serious() -> None:
    """A fatal one before one that may be retried."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        brokers.partition_codes = {
            ZERO: int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ONE: int(ErrorCode.PRODUCER_FENCED),
        }
        with pytest.raises(ProducerFencedError, match="t-1"):
            await producer.send_offsets_to_transaction({ZERO: 1, ONE: 1}, "group")


async def test_given_up_records_say_that_their_transaction_was_aborted() -> None:
    """Not that a broker refused them."""
    brokers = Coordinating()
    brokers.leaders = {"t": [1, -1]}
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"", partition=1)
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await delivery
