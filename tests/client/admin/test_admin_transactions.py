"""Admin's calls about transactions, on two scripted brokers: whom it asks, what it tries again, and what it returns."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.client.scripted_broker import Reply
from tests.client.transaction_brokers import (
    FIRST,
    LONG_AGO_MS,
    SECOND,
    Cluster,
    Duo,
    administrating,
    describing,
    listing,
    producers,
    producing,
)
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.admin.transaction_results import (
    ActiveProducer,
    FencedProducer,
    OpenTransaction,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.errors import (
    InvalidProducerEpochError,
    InvalidRequestError,
    KafkaError,
    NotLeaderForPartitionError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Versions
from ottla.protocol.messages import describe_transactions as described
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

pytestmark = BOTH_LOOPS


def marked(code: int) -> Reply:
    """Answer WriteTxnMarkers for the first partition."""
    rows = [WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)]
    topics = [WritableTxnMarkerTopicResult(name="t", partitions=rows)]
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=topics)])


async def test_every_broker_lists_its_transactions() -> None:
    """All filters are sent; the results are sorted by id."""
    rows = {1: [("b", 7, "Ongoing")], 2: [("c", 9, "Empty"), ("a", 8, "Ongoing")]}
    duo = Duo({Api.LIST_TRANSACTIONS: lambda node, number, request: listing(*rows[node])})

    async with administrating(duo) as admin:
        found = await admin.list_transactions(["Ongoing", "Empty"], [7, 8, 9], 5_000)
        assert found == (
            TransactionListing("a", 8, "Ongoing", 2),
            TransactionListing("b", 7, "Ongoing", 1),
            TransactionListing("c", 9, "Empty", 2),
        )
        request = duo.request(Api.LIST_TRANSACTIONS)
        assert request.state_filters == ["Ongoing", "Empty"]
        assert (request.producer_id_filters, request.duration_filter) == ([7, 8, 9], 5_000)
        await admin.list_transactions()
        assert duo.request(Api.LIST_TRANSACTIONS).duration_filter == -1


async def test_a_coordinator_that_still_loads_is_asked_again() -> None:
    """A list without its ids would not be complete."""

    def answer(node: int, number: int, request: Any) -> Reply:
        return listing(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if number <= 2 else listing((f"{node}", 7, "Empty"))

    async with administrating(Duo({Api.LIST_TRANSACTIONS: answer})) as admin:
        assert [each.transactional_id for each in await admin.list_transactions()] == ["1", "2"]


async def test_a_state_that_does_not_exist_is_an_error() -> None:
    """Brokers leave it out of their filter, which would list the ids of all other states."""
    duo = Duo({Api.LIST_TRANSACTIONS: lambda node, number, request: listing(unknown=["Open"])})
    async with administrating(duo) as admin:
        with pytest.raises(InvalidRequestError, match="transactions have no state Open"):
            await admin.list_transactions(["Open"])


async def test_a_broker_that_knows_no_durations_is_not_asked_for_them() -> None:
    """It would list all transactions; without the filter it is asked."""
    duo = Duo({Api.LIST_TRANSACTIONS: lambda node, number, request: listing(("a", 7, "Ongoing"))})
    async with administrating(duo, {Api.LIST_TRANSACTIONS: Versions(0, 0)}) as admin:
        with pytest.raises(UnsupportedVersionError):
            await admin.list_transactions(duration_ms=1)
        assert len(await admin.list_transactions()) == 2


async def test_a_transaction_is_described_by_its_coordinator() -> None:
    """Which is looked up again where it has moved."""

    def answer(node: int, number: int, request: Any) -> Reply:
        return describing("a", code=ErrorCode.NOT_COORDINATOR if number == 1 else 0)

    duo = Duo({Api.DESCRIBE_TRANSACTIONS: answer})
    async with administrating(duo) as admin:
        found = await admin.describe_transactions(["a"])
        assert found == (TransactionDescription("a", "Ongoing", 7, 3, 60_000, 5, 1, (FIRST, SECOND)),)
        assert duo.times(Api.FIND_COORDINATOR) == 2
        assert found[0].to_dict()["partitions"][0] == {"topic": "t", "partition": 0}


async def test_an_id_that_never_began_a_transaction_has_no_start() -> None:
    """Brokers say -1."""
    duo = Duo(
        {Api.DESCRIBE_TRANSACTIONS: lambda *_: describing("a", state="Empty", start_ms=-1, partitions=())},
    )
    async with administrating(duo) as admin:
        (found,) = await admin.describe_transactions(["a"])
        assert (found.start_time_ms, found.partitions) == (None, ())


async def test_errors_of_one_transactional_id_are_raised_or_told() -> None:
    """The others are described all the same; an id without an answer has an error, too."""
    codes = {"a": 0, "b": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "c": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

    def answer(node: int, number: int, request: Any) -> Reply:
        (name,) = request.transactional_ids
        if name in codes:
            return describing(name, code=codes[name])
        return described.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[])

    async with administrating(Duo({Api.DESCRIBE_TRANSACTIONS: answer})) as admin:
        found = await admin.describe_transactions(["a", "b", "c", "d"], raise_errors=False)
        assert [type(each.error) for each in found[:3]] == [
            type(None),
            TransactionalIdNotFoundError,
            TransactionalIdAuthorizationFailedError,
        ]
        assert "did not answer for transactional id 'd'" in str(found[3].error)
        with pytest.raises(TransactionalIdNotFoundError, match="there is no transactional id 'b'"):
            await admin.describe_transactions(["a", "b"])


async def test_producers_are_described_by_the_leaders() -> None:
    """One that has moved is asked for anew."""

    def answer(node: int, number: int, request: Any) -> Reply:
        if number == 1:
            return producers(request, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return producers(request, producing(8, 17), producing(7))

    duo = Duo({Api.DESCRIBE_PRODUCERS: answer})
    async with administrating(duo) as admin:
        first, second = await admin.describe_producers([FIRST, SECOND])
        idle = ActiveProducer(7, 3, 9, LONG_AGO_MS, None, None)
        assert first == PartitionProducers("t", 0, (idle, ActiveProducer(8, 3, 9, LONG_AGO_MS, None, 17)))
        assert (second.partition, second.producers) == (1, first.producers)
        assert (sorted({*duo.nodes(Api.DESCRIBE_PRODUCERS)}), duo.times(Api.DESCRIBE_PRODUCERS)) == ([1, 2], 3)
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.describe_producers([TopicPartition("missing", 0)])


async def test_a_broker_that_is_asked_for_its_replicas_has_the_last_word() -> None:
    """That it has none is not tried again, as it would be with a leader."""
    duo = Duo(
        {
            Api.DESCRIBE_PRODUCERS: lambda node, number, request: producers(
                request, producing(7), code=ErrorCode.NONE if number == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        }
    )
    async with administrating(duo) as admin:
        (found,) = await admin.describe_producers([FIRST], broker_id=2)
        assert [each.producer_id for each in found.producers] == [7]
        with pytest.raises(NotLeaderForPartitionError):
            await admin.describe_producers([FIRST], broker_id=2)
        assert duo.nodes(Api.DESCRIBE_PRODUCERS) == [2, 2]


async def test_an_abort_is_a_marker_for_the_leader() -> None:
    """Tried again where the leader has moved; a coordinator's epoch that is not known is 0, as in Kafka's tool."""

    def answer(node: int, number: int, request: Any) -> Reply:
        return marked(ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 1 else 0)

    duo = Duo({Api.WRITE_TXN_MARKERS: answer})
    async with administrating(duo) as admin:
        outcome = await admin.abort_transaction(FIRST, 7, 3)
        assert (outcome.topic, outcome.partition, outcome.error) == ("t", 0, None)
        assert duo.nodes(Api.WRITE_TXN_MARKERS) == [1, 1]
        (marker,) = duo.request(Api.WRITE_TXN_MARKERS).markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
        assert (marker.transaction_result, marker.topics[0].partition_indexes) == (False, [0])
        await admin.abort_transaction(FIRST, 7, 3, 12)
        assert duo.request(Api.WRITE_TXN_MARKERS).markers[0].coordinator_epoch == 12


async def test_an_abort_that_is_refused_is_raised_or_told() -> None:
    """With the producer in the text."""
    duo = Duo({Api.WRITE_TXN_MARKERS: lambda *_: marked(ErrorCode.INVALID_PRODUCER_EPOCH)})
    async with administrating(duo) as admin:
        with pytest.raises(InvalidProducerEpochError, match="t-0, producer 7 of epoch 3"):
            await admin.abort_transaction(FIRST, 7, 3, 1)
        outcome = await admin.abort_transaction(FIRST, 7, 3, 1, raise_errors=False)
        assert isinstance(outcome.error, InvalidProducerEpochError)


async def test_a_fence_waits_for_the_end_of_the_open_transaction() -> None:
    """CONCURRENT_TRANSACTIONS means that it is being aborted; the same coordinator is asked again."""

    def answer(node: int, number: int, request: Any) -> Reply:
        code = ErrorCode.CONCURRENT_TRANSACTIONS if number < 3 else 0
        return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=7, producer_epoch=4)

    duo = Duo({Api.INIT_PRODUCER_ID: answer})
    async with administrating(duo) as admin:
        assert await admin.fence_producers(["a"]) == (FencedProducer("a", 7, 4),)
        request = duo.request(Api.INIT_PRODUCER_ID)
        assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("a", -1, -1)
        assert (duo.times(Api.INIT_PRODUCER_ID), duo.times(Api.FIND_COORDINATOR)) == (3, 1)


async def test_a_fence_that_is_refused_is_raised_or_told() -> None:
    """As other errors of one of several."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    refusal = InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=-1)
    duo = Duo({Api.INIT_PRODUCER_ID: lambda *_: refusal})
    async with administrating(duo) as admin:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            await admin.fence_producers(["a"])
        (found,) = await admin.fence_producers(["a"], raise_errors=False)
        assert isinstance(found.error, TransactionalIdAuthorizationFailedError)


async def test_open_transactions_come_with_what_their_coordinators_know() -> None:
    """A transaction hangs where no id has its producer id, and where the id's transaction lacks the partition."""
    duo = Cluster(producing(7, 17), producing(8, 18), producing(9))
    async with administrating(duo) as admin:
        found = await admin.list_open_transactions([FIRST, SECOND])
        assert found == (
            OpenTransaction("t", 0, 7, 3, None, 17, LONG_AGO_MS, False, "a", "Ongoing", 5, 60_000),
            OpenTransaction("t", 0, 8, 3, None, 18, LONG_AGO_MS, True),
            OpenTransaction("t", 1, 7, 3, None, 17, LONG_AGO_MS, True, "a", "Ongoing", 5, 60_000),
            OpenTransaction("t", 1, 8, 3, None, 18, LONG_AGO_MS, True),
        )
        assert duo.request(Api.LIST_TRANSACTIONS).producer_id_filters == [7, 8]


async def test_coordinators_are_not_asked_where_nothing_is_open() -> None:
    """An empty filter would list all transactional ids of the cluster."""
    duo = Cluster(producing(7))
    async with administrating(duo) as admin:
        assert await admin.list_open_transactions([FIRST, SECOND]) == ()
        assert await admin.find_hanging_transactions() == ()
        assert duo.times(Api.LIST_TRANSACTIONS) == 0


async def test_what_ended_while_coordinators_were_asked_does_not_hang() -> None:
    """The coordinator no longer knew the partition, because its marker was written."""

    def answer(node: int, number: int, request: Any) -> Reply:
        return producers(request, producing(8, 17) if number <= 2 else producing(8))

    duo = Cluster(DESCRIBE_PRODUCERS=answer)
    async with administrating(duo) as admin:
        assert await admin.find_hanging_transactions(["t"]) == ()
        assert duo.times(Api.DESCRIBE_PRODUCERS) == 4


async def test_hanging_transactions_are_those_that_have_been_idle_for_too_long() -> None:
    """And that no coordinator ends; by default all topics are searched."""
    duo = Cluster(producing(7, 17), producing(8, 18, int(time.time() * 1000)))
    async with administrating(duo) as admin:
        (found,) = await admin.find_hanging_transactions()
        assert (found.topic, found.partition, found.producer_id, found.transactional_id) == ("t", 1, 7, "a")
        idle = await admin.find_hanging_transactions(["t"], max_transaction_timeout_ms=-60_000)
        assert [(each.partition, each.producer_id) for each in idle] == [(0, 8), (1, 7), (1, 8)]
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic 'missing'"):
            await admin.find_hanging_transactions(["t", "missing"])


async def test_one_broker_is_searched_for_hanging_transactions() -> None:
    """Its replicas are looked at; the leader must agree."""
    duo = Cluster(producing(8, 18))
    async with administrating(duo) as admin:
        (found,) = await admin.find_hanging_transactions(broker_id=2)
        assert (found.partition, found.producer_id) == (1, 8)
        assert duo.nodes(Api.DESCRIBE_PRODUCERS) == [2, 2]


async def test_partitions_that_cannot_be_searched_are_raised_or_told() -> None:
    """What was found elsewhere is returned with them."""

    def answer(node: int, number: int, request: Any) -> Reply:
        if node == 2:
            return producers(request, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return producers(request, producing(8, 18))

    async with administrating(Cluster(DESCRIBE_PRODUCERS=answer)) as admin:
        found, failed = await admin.find_hanging_transactions(raise_errors=False)
        assert (found.partition, found.is_hanging) == (0, True)
        assert (failed.partition, failed.is_hanging) == (1, False)
        assert isinstance(failed.error, KafkaError)
        with pytest.raises(KafkaError, match="t-1"):
            await admin.find_hanging_transactions()


async def test_an_id_that_expired_while_it_was_asked_for_is_none() -> None:
    """It was listed, and is not there any more. Another error is raised: it says nothing of the transaction."""
    duo = Cluster(
        producing(7, 17),
        DESCRIBE_TRANSACTIONS=lambda node, number, request: describing(
            "a",
            code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            if number == 1
            else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    )
    async with administrating(duo) as admin:
        (found,) = await admin.list_open_transactions([FIRST])
        assert (found.is_hanging, found.transactional_id) == (True, None)
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            await admin.list_open_transactions([FIRST])
