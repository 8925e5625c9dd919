"""What a transactional producer asks of brokers, and in which order; and what its caller may do when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.producer.scripted_producing import producing
from tests.client.producer.scripted_transactions import PRODUCER_ID, TRANSACTIONAL_ID, Coordinating, transacting
from tests.kit.coroutines import BOTH_LOOPS
from tests.kit.waiting import until_async

from ottla.client.errors import IllegalStateError, KafkaError, ProducerFencedError, TransactionAbortedError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.producer.prepared_transaction import PreparedTransaction, end_prepared
from ottla.client.producer.producer import Producer
from ottla.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

pytestmark = BOTH_LOOPS

FIND, INIT, ADD, PRODUCE = Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE
GROUP, OFFSETS, END = Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN
ONE = TopicPartition("t", 1)


def partitions_added(brokers: Coordinating) -> list[list[tuple[str, list[int]]]]:
    """The partitions of each AddPartitionsToTxn request."""
    return [
        [(topic.name, topic.partitions) for topic in request.v3_and_below_topics] for request in brokers.requests(ADD)
    ]


async def test_a_producer_takes_its_id_over_when_it_starts() -> None:
    """It finds the coordinator of the id, and gets a producer id and epoch from that broker."""
    brokers = Coordinating()
    async with producing(brokers, transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=12_345):
        (find, found), (init, asked) = brokers.asked
    assert (find, found.key_type, found.coordinator_keys) == (FIND, 1, [TRANSACTIONAL_ID])
    assert (init, asked.transactional_id, asked.transaction_timeout_ms) == (INIT, TRANSACTIONAL_ID, 12_345)
    assert (asked.producer_id, asked.producer_epoch) == (-1, -1)
    assert brokers.versions[INIT] == 5


async def test_a_transaction_adds_its_partitions_writes_and_ends() -> None:
    """In this order; batches have the transactional bit, requests the id, and acks are those of all replicas."""
    brokers = Coordinating()
    async with transacting(brokers) as producer, producer.transaction():
        metadata = await producer.send_and_wait("t", b"a", partition=1)
    assert brokers.order == [ADD, PRODUCE, END]
    assert metadata.offset == 0
    assert brokers.log[ONE] == [b"a"]
    assert brokers.acks == {-1}
    (batch,) = [batch for _, batch in brokers.batches]
    assert (batch.is_transactional, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        True,
        PRODUCER_ID,
        0,
        0,
    )
    (added,), (written,), (ended,) = (brokers.requests(api) for api in (ADD, PRODUCE, END))
    assert (added.v3_and_below_transactional_id, added.v3_and_below_producer_id) == (TRANSACTIONAL_ID, PRODUCER_ID)
    assert written.transactional_id == TRANSACTIONAL_ID
    assert (ended.transactional_id, ended.producer_id, ended.producer_epoch) == (TRANSACTIONAL_ID, PRODUCER_ID, 0)
    assert ended.committed
    assert (brokers.versions[ADD], brokers.versions[END], brokers.versions[PRODUCE]) == (3, 4, 11)


async def test_partitions_that_wait_together_are_added_together_and_once() -> None:
    """A partition that comes later is added with a request of its own, before the first batch for it."""
    brokers = Coordinating()
    async with transacting(brokers) as producer, producer.transaction():
        first = [await producer.send("t", b"", partition=number) for number in (0, 2)]
        await asyncio.gather(*first)
        for number in (0, 1, 2):
            await producer.send_and_wait("t", b"", partition=number)
    assert partitions_added(brokers) == [[("t", [0, 2])], [("t", [1])]]
    second_add = brokers.order.index(ADD, brokers.order.index(ADD) + 1)
    written = [(partition.partition, batch.base_sequence) for partition, batch in brokers.batches]
    assert (1, 0) not in written[: brokers.order[:second_add].count(PRODUCE)]
    assert sorted(written) == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]


async def test_each_transaction_adds_its_partitions_again_and_goes_on_with_the_sequences() -> None:
    """Under the same epoch: nothing was lost."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        for _ in range(3):
            async with producer.transaction():
                await producer.send("t", b"", partition=1)
    assert brokers.order == [ADD, PRODUCE, END] * 3
    assert [(batch.producer_epoch, batch.base_sequence) for _, batch in brokers.batches] == [(0, 0), (0, 1), (0, 2)]


async def test_a_commit_waits_for_all_records() -> None:
    """Also for those that linger."""
    brokers = Coordinating()
    async with transacting(brokers, linger_ms=60_000) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"", partition=1)
        await producer.commit_transaction()
        assert (await delivery).offset == 0
    assert brokers.order == [ADD, PRODUCE, END]


@pytest.mark.parametrize("ending", [Producer.commit_transaction, Producer.abort_transaction])
async def test_an_empty_transaction_ends_without_a_request(ending: Any) -> None:
    """The coordinator has not heard of it."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        await ending(producer)
        await producer.begin_transaction()
        await ending(producer)
        assert brokers.asked == []


async def test_an_abort_gives_up_what_is_not_sent() -> None:
    """What was written is aborted with it, and the producer goes on under the same epoch."""
    brokers = Coordinating()
    async with transacting(brokers, linger_ms=60_000) as producer:
        await producer.begin_transaction()
        written = await producer.send("t", b"written", partition=1)
        await producer.flush()
        waiting = await producer.send("t", b"waiting", partition=1)
        await producer.abort_transaction()
        assert (await written).offset == 0
        with pytest.raises(TransactionAbortedError, match="was aborted"):
            await waiting
        async with producer.transaction():
            await producer.send("t", b"next", partition=1)
    assert brokers.order == [ADD, PRODUCE, END, ADD, PRODUCE, END]
    assert [request.committed for request in brokers.requests(END)] == [False, True]
    assert brokers.log[ONE] == [b"written", b"next"]
    assert [(batch.producer_epoch, batch.base_sequence) for _, batch in brokers.batches] == [(0, 0), (0, 1)]


async def test_an_abort_waits_for_the_answer_to_what_is_in_flight() -> None:
    """A batch that came after the abort would belong to no transaction. Its record has failed already."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"", partition=1)
        brokers.gate.clear()
        await until_async(lambda: PRODUCE in brokers.order, "the batch is sent")
        aborting = asyncio.create_task(producer.abort_transaction())
        with pytest.raises(TransactionAbortedError):
            await delivery
        assert END not in brokers.order
        brokers.gate.set()
        await aborting
    assert brokers.order == [ADD, PRODUCE, END]


async def test_a_block_that_raises_is_aborted() -> None:
    """And the error comes out as it is."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:

        async def fail() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"", partition=1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
    assert brokers.order == [ADD, PRODUCE, END]
    assert not brokers.requests(END)[0].committed


async def test_a_cancelled_block_is_aborted() -> None:
    """As Ctrl-C does."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:

        async def hang() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"", partition=1)
                await asyncio.Event().wait()

        hanging = asyncio.create_task(hang())
        await until_async(lambda: brokers.log[ONE], "the record is written")
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert not brokers.requests(END)[0].committed
        async with producer.transaction():
            await producer.send("t", b"", partition=1)


async def test_stopping_aborts_what_is_open() -> None:
    """So that readers of committed records do not wait for its timeout."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"", partition=1)
    assert [request.committed for request in brokers.requests(END)] == [False]


async def test_offsets_are_committed_with_the_transaction() -> None:
    """The group is added once, and each commit goes to the coordinator of the group."""
    brokers = Coordinating()
    async with transacting(brokers) as producer, producer.transaction():
        await producer.send_offsets_to_transaction({ONE: 5}, "group")
        await producer.send_offsets_to_transaction({ONE: OffsetAndMetadata(6, "six", 3)}, "group")
        await producer.send_offsets_to_transaction({}, "group")
    assert brokers.order == [GROUP, FIND, OFFSETS, OFFSETS, END]
    (added,) = brokers.requests(GROUP)
    assert (added.transactional_id, added.producer_id, added.group_id) == (TRANSACTIONAL_ID, PRODUCER_ID, "group")
    assert (brokers.requests(FIND)[0].key_type, brokers.requests(FIND)[0].coordinator_keys) == (0, ["group"])
    first, second = brokers.requests(OFFSETS)
    assert (first.generation_id, first.member_id, first.group_instance_id) == (-1, "", None)
    (row,) = second.topics[0].partitions
    assert (row.partition_index, row.committed_offset, row.committed_leader_epoch, row.committed_metadata) == (
        1,
        6,
        3,
        "six",
    )
    assert (brokers.versions[GROUP], brokers.versions[OFFSETS]) == (4, 4)


async def test_offsets_may_name_the_member_that_read_the_records() -> None:
    """So that the group refuses them from one that it has fenced."""
    brokers = Coordinating()
    async with transacting(brokers) as producer, producer.transaction():
        member = ConsumerGroupMetadata("group", 4, "member-1", "instance-1")
        await producer.send_offsets_to_transaction({ONE: 5}, member)
    (request,) = brokers.requests(OFFSETS)
    assert (request.group_id, request.generation_id) == ("group", 4)
    assert (request.member_id, request.group_instance_id) == ("member-1", "instance-1")


async def test_calls_in_the_wrong_state_say_what_to_do() -> None:
    """They change nothing."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        calls: list[Any] = [
            lambda: producer.send("t", b"", partition=1),
            lambda: producer.send_batch(filled(producer), "t", partition=1),
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets_to_transaction({ONE: 1}, "group"),
        ]
        for call in calls:
            with pytest.raises(IllegalStateError, match=r"no transaction: call begin_transaction\(\) first"):
                await call()
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="is open: commit or abort it first"):
            await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="needs the id of a group"):
            await producer.send_offsets_to_transaction({ONE: 1}, "")
        await producer.send_batch(filled(producer), "t", partition=1)
        await producer.commit_transaction()
        with pytest.raises(IllegalStateError):
            await producer.send("t", b"", partition=1)
    assert brokers.order == [ADD, PRODUCE, END]
    async with producing(Coordinating()) as plain:
        with pytest.raises(IllegalStateError, match="transactions need transactional_id"):
            await plain.begin_transaction()
    with pytest.raises(KafkaError, match="not running"):
        await producer.begin_transaction()


def filled(producer: Producer) -> Any:
    """Return a batch with a record."""
    batch = producer.create_batch()
    batch.append(value=b"")
    return batch


async def test_a_send_that_waited_beyond_the_end_of_the_transaction_is_refused() -> None:
    """It must not become part of the next one."""
    brokers = Coordinating()
    brokers.gate.clear()
    options = {"max_batch_size": 1000, "max_request_size": 1000, "buffer_memory": 1000}
    async with transacting(brokers, **options) as producer:
        await producer.begin_transaction()
        await producer.send("t", bytes(900), partition=1)
        late = asyncio.create_task(producer.send("t", bytes(900), partition=1))
        await until_async(lambda: PRODUCE in brokers.order, "the first batch is sent")
        aborting = asyncio.create_task(producer.abort_transaction())
        await asyncio.sleep(0)
        brokers.gate.set()
        await aborting
        with pytest.raises(IllegalStateError):
            await late
        async with producer.transaction():
            await producer.send("t", b"next", partition=1)
    assert [value for value in brokers.log[ONE] if value == b"next"] == [b"next"]
    assert len(brokers.batches) == 2


async def test_a_commit_goes_on_if_its_caller_stops_waiting() -> None:
    """It can be waited for again, and nothing else can be done meanwhile."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"", partition=1)
        brokers.may_end.clear()
        committing = asyncio.create_task(producer.commit_transaction())
        await until_async(lambda: END in brokers.order, "the end is asked for")
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError, match="is being committed"):
                await call()
        again = asyncio.create_task(producer.commit_transaction())
        brokers.may_end.set()
        await again
        await producer.begin_transaction()
    assert brokers.order == [ADD, PRODUCE, END]


async def test_many_batches_of_many_partitions() -> None:
    """Several in flight; the sequences of each partition are whole over transactions."""
    brokers = Coordinating()
    async with transacting(brokers, max_batch_size=300) as producer:
        for _ in range(3):
            async with producer.transaction():
                for number in range(300):
                    await producer.send("t", b"%d" % number, partition=number % 3)
    for partition in range(3):
        expected = 0
        for _, batch in [found for found in brokers.batches if found[0].partition == partition]:
            assert batch.base_sequence == expected
            expected += batch.record_count
        assert expected == 300


async def test_a_transaction_that_is_handed_over_is_ended_by_another_client() -> None:
    """Its producer leaves it open when it stops, and does nothing more; a coordinator that has moved is asked again."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=1)
        prepared = await producer.prepare_transaction()
        with pytest.raises(IllegalStateError, match="handed over"):
            await producer.send("t", b"b", partition=1)
        with pytest.raises(IllegalStateError, match="handed over"):
            await producer.commit_transaction()
        await producer.stop()
        assert brokers.order == [ADD, PRODUCE]

        brokers.script[END].append(ErrorCode.NOT_COORDINATOR)
        cluster = ClusterClient(producer.settings)
        await cluster.start()
        await end_prepared(cluster, prepared, committed=True)
        await cluster.close()

    assert prepared == (TRANSACTIONAL_ID, PRODUCER_ID, 0)
    assert brokers.order == [ADD, PRODUCE, FIND, END, FIND, END]
    assert [(each.transactional_id, each.producer_epoch, each.committed) for each in brokers.requests(END)] == [
        (TRANSACTIONAL_ID, 0, True)
    ] * 2


async def test_a_transaction_without_records_cannot_be_handed_over() -> None:
    """The coordinator has not heard of it, so nobody could end it."""
    brokers = Coordinating()
    async with transacting(brokers) as producer:
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="no records"):
            await producer.prepare_transaction()
        await producer.abort_transaction()


async def test_a_prepared_transaction_that_was_fenced_is_not_committed() -> None:
    """The error says so, and whose transaction it was."""
    brokers = Coordinating()
    brokers.script[END].append(ErrorCode.PRODUCER_FENCED)
    async with transacting(brokers) as producer:
        cluster = ClusterClient(producer.settings)
        await cluster.start()
        with pytest.raises(ProducerFencedError, match="orders-1 could not be committed"):
            await end_prepared(cluster, PreparedTransaction(TRANSACTIONAL_ID, PRODUCER_ID, 0), committed=True)
        await cluster.close()
