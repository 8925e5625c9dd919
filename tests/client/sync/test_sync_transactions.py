"""Transactions of the synchronous producer, against a scripted broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.producer.scripted_transactions import TRANSACTIONAL_ID, Coordinating, error
from tests.client.scripted_broker import scripted_broker

from ottla.client.errors import (
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
)
from ottla.client.types import TopicPartition
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.sync import Producer

ADD, PRODUCE, END = Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN
GROUP, OFFSETS = Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT
ONE = TopicPartition("t", 1)


async def working(brokers: Coordinating, work: Callable[[Producer], None], **options: Any) -> None:
    """Run a broker here, and a producer with what is done with it on another thread."""

    def run(bootstrap: str) -> None:
        with Producer(
            bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID, retry_backoff_ms=1, **options
        ) as producer:
            brokers.asked.clear()
            work(producer)

    async with scripted_broker(brokers.answer) as broker:
        brokers.broker = broker
        await asyncio.to_thread(run, str(broker.address))


def ends(brokers: Coordinating) -> list[bool]:
    """Whether each end of a transaction was a commit."""
    return [request.committed for request in brokers.requests(END)]


async def test_a_block_commits_all_that_was_sent_in_it() -> None:
    """Although nobody waits for the futures."""
    brokers = Coordinating()

    def work(producer: Producer) -> None:
        for _ in range(2):
            with producer.transaction():
                for number in range(500):
                    producer.send("t", b"%d" % number, partition=1)

    await working(brokers, work)
    assert len(brokers.log[ONE]) == 1000
    assert brokers.order[-1] == END
    assert ends(brokers) == [True, True]


async def test_a_block_that_raises_is_aborted() -> None:
    """Ctrl-C included."""
    brokers = Coordinating()

    def work(producer: Producer) -> None:
        def interrupted() -> None:
            with producer.transaction():
                producer.send_and_wait("t", b"", partition=1)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with producer.transaction():
            producer.send("t", b"", partition=1)

    await working(brokers, work)
    assert ends(brokers) == [False, True]


async def test_calls_instead_of_a_block() -> None:
    """Begin, offsets of a group, commit; begin, abort."""
    brokers = Coordinating()

    def work(producer: Producer) -> None:
        producer.begin_transaction()
        future = producer.send("t", b"", partition=1)
        producer.send_offsets_to_transaction({ONE: 1}, "group")
        producer.commit_transaction()
        assert future.result(0).offset == 0
        producer.begin_transaction()
        producer.send_and_wait("t", b"", partition=1)
        producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="no transaction"):
            producer.send_and_wait("t", b"", partition=1)

    await working(brokers, work)
    assert ends(brokers) == [True, False]
    assert brokers.order.count(OFFSETS) == brokers.order.count(GROUP) == 1


@pytest.mark.parametrize(
    ("value", "expected"), [(bytes(2_000_000), MessageSizeTooLargeError), ("text", KafkaError)], ids=["large", "text"]
)
async def test_a_record_that_cannot_be_sent_fails_the_commit(value: Any, expected: type[KafkaError]) -> None:
    """Its future has the error, at which nobody may look."""
    brokers = Coordinating()

    def work(producer: Producer) -> None:
        def write() -> None:
            with producer.transaction():
                producer.send("t", b"fine", partition=1)
                producer.send("t", value, partition=1)

        with pytest.raises(expected, match="Abort the transaction"):
            write()
        with producer.transaction():
            producer.send("t", b"next", partition=1)

    await working(brokers, work)
    assert ends(brokers)[-1]
    assert ends(brokers).count(True) == 1


async def test_errors_are_those_of_the_asynchronous_producer() -> None:
    """Abortable ones, after which the producer goes on, and fatal ones."""
    brokers = Coordinating()

    def work(producer: Producer) -> None:
        def write() -> None:
            with producer.transaction():
                producer.send("t", b"", partition=1)

        brokers.script[ADD] = error(ErrorCode.TRANSACTION_ABORTABLE)
        with pytest.raises(TransactionAbortableError):
            write()
        write()
        brokers.script[END] = error(ErrorCode.PRODUCER_FENCED)
        with pytest.raises(ProducerFencedError):
            write()
        with pytest.raises(ProducerFencedError):
            producer.begin_transaction()

    await working(brokers, work)


async def test_closing_aborts_what_is_open() -> None:
    """As the asynchronous producer does."""
    brokers = Coordinating()

    def work(producer: Producer) -> None:
        producer.begin_transaction()
        producer.send_and_wait("t", b"", partition=1)

    await working(brokers, work)
    assert ends(brokers) == [False]
