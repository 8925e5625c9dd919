"""Transactions with confluent-kafka: producers that are ready for one, and all that a reader finds in a partition."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import confluent_kafka.admin
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from tests.interop.clients import confluent
from tests.kit.waiting import DEADLINE_S, until

# Its stubs do not know everything.
api: Any = confluent_kafka.admin

Isolation = Literal["read_committed", "read_uncommitted"]


@contextmanager
def producer(bootstrap: str, transactional_id: str, **options: Any) -> Iterator[Producer]:
    """Give a producer that may begin its first transaction; it fences an earlier one of the same id."""
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "linger.ms": 0,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    with closed(Producer(settings)) as client:
        client.init_transactions(DEADLINE_S)
        yield client


@contextmanager
def closed(client: Producer) -> Iterator[Producer]:
    """Close a producer in the end, which aborts an open transaction; one that was fenced says so once more."""
    try:
        yield client
    finally:
        with warnings.catch_warnings(), suppress(KafkaException):
            warnings.simplefilter("ignore", RuntimeWarning)
            client.purge()
            client.close()


def send(client: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Send values, and wait until the broker has them."""
    for value in values:
        client.produce(topic, value, partition=partition)
    assert client.flush(DEADLINE_S) == 0


def commit(client: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Commit a transaction with these values."""
    client.begin_transaction()
    send(client, topic, *values, partition=partition)
    client.commit_transaction(DEADLINE_S)


def abort(client: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Abort a transaction with these values."""
    client.begin_transaction()
    send(client, topic, *values, partition=partition)
    client.abort_transaction(DEADLINE_S)


def read(
    bootstrap: str,
    topic: str,
    isolation: Isolation = "read_committed",
    partition: int = 0,
    *,
    has_open_transactions: bool = False,
) -> list[bytes]:
    """Return the values of a partition, up to where a reader of this kind finds its end.

    A commit is acknowledged before its markers are written, so this waits for them unless some are not to come.
    """
    if not has_open_transactions:
        wait_for_markers(bootstrap, topic, partition)
    return [value for _, value in read_now(bootstrap, topic, isolation, partition)]


def read_now(bootstrap: str, topic: str, isolation: Isolation, partition: int) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a partition, up to where a reader of this kind finds its end at the moment."""
    records: list[tuple[bytes, bytes]] = []
    ended: list[KafkaError] = []
    options = {"isolation_level": isolation, "enable_partition_eof": True, "fetch_wait_max_ms": 10}
    with confluent.consumer(bootstrap, **options) as client:
        client.assign([TopicPartition(topic, partition, 0)])

        def poll() -> None:
            message = client.poll(1.0)
            if message is None:
                return
            error = message.error()
            if error is None:
                records.append((message.key(), message.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.append(error)

        until(lambda: ended, lambda: f"the end of {topic}, after {records}", meanwhile=poll)
    return records


def wait_for_markers(bootstrap: str, topic: str, partition: int = 0) -> None:
    """Wait until no transaction holds readers of a partition back."""
    with api.AdminClient({"bootstrap.servers": bootstrap}) as admin:

        def is_stable() -> bool:
            return _end(admin, topic, "read_committed", partition) == _end(admin, topic, "read_uncommitted", partition)

        until(is_stable, f"all transactions in {topic}-{partition} have ended")


def wait_for_end(bootstrap: str, topic: str, offset: int, partition: int = 0) -> None:
    """Wait until readers of committed records find the end of a partition at an offset."""
    with api.AdminClient({"bootstrap.servers": bootstrap}) as admin:
        until(
            lambda: _end(admin, topic, "read_committed", partition) == offset,
            f"the last stable offset of {topic}-{partition} is {offset}",
            # Of a broker that has just started, and does not know what it leads.
            not_yet=KafkaException,
        )


def end(bootstrap: str, topic: str, isolation: Isolation = "read_committed", partition: int = 0) -> int:
    """Return the offset at which a reader of this kind finds the end of a partition."""
    with api.AdminClient({"bootstrap.servers": bootstrap}) as admin:
        return _end(admin, topic, isolation, partition)


def _end(admin: Any, topic: str, isolation: Isolation, partition: int) -> int:
    wanted = TopicPartition(topic, partition)
    level = IsolationLevel[isolation.upper()]
    asked = admin.list_offsets({wanted: api.OffsetSpec.latest()}, isolation_level=level)
    offset: int = asked[wanted].result(DEADLINE_S).offset
    return offset


@contextmanager
def refused(*codes: int, is_fatal: bool = False, requires_abort: bool = False) -> Iterator[None]:
    """Expect that the client refuses what is done, with an error of this kind and one of these codes."""
    with pytest.raises(KafkaException) as raised:
        yield
    error: KafkaError = raised.value.args[0]
    assert error.code() in codes, error
    assert (error.fatal(), error.txn_requires_abort()) == (is_fatal, requires_abort), error
