"""`flush.messages`: the append that reaches it is acknowledged when everything up to it is on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.broker.handlers.test_fetch_from_leader import partition_of
from tests.broker.handlers.test_produce_and_fetch import produce
from tests.kit.waiting import until

from ottla.broker.coordination.appends import Append
from ottla.broker.coordination.stored_records import StoredRecord
from ottla.protocol.compression import Codec
from ottla.protocol.errors import ErrorCode


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that leads a topic for each number of records after which it is flushed."""
    with running_broker(tmp_path, {"one": {"flush.messages": "1"}, "three": {"flush.messages": "3"}}) as broker:
        for topic in ("one", "three", "never"):
            broker.lead(topic)
        yield broker


def flushed(broker: Broker, topic: str, acks: int) -> int:
    """Produce a record; how far the log was on disk when that was acknowledged."""
    answer: Any = produce(broker, batch(b"v"), topic=topic, acks=acks)
    if isinstance(answer, list):
        until(lambda: answer, "an acknowledgement")
        answer = answer[0].responses[0].partition_responses[0]
    assert answer.error_code == 0
    return partition_of(broker, topic).log.recovery_point


@pytest.mark.parametrize("acks", [1, -1])
def test_an_append_that_reaches_the_number_is_acknowledged_from_the_disk(broker: Broker, acks: int) -> None:
    """With 1 that is every record, with 3 the last one of three, and the others are not waited for."""
    assert [flushed(broker, "one", acks) for _ in range(3)] == [1, 2, 3]
    assert [flushed(broker, "three", acks) for _ in range(6)] == [0, 0, 3, 3, 3, 6]
    assert [flushed(broker, "never", acks) for _ in range(3)] == [0, 0, 0]


def test_what_nobody_waits_for_is_flushed_at_once_all_the_same(broker: Broker) -> None:
    """Not when somebody looks after a second: there is nobody here who looks."""
    assert produce(broker, batch(b"v"), topic="one", acks=0) is None

    until(lambda: partition_of(broker, "one").log.recovery_point == 1, "the record is on disk")


def test_what_groups_store_waits_for_the_disk_too(broker: Broker) -> None:
    """An offset that was committed is a record like any other."""
    partition = partition_of(broker, "one")
    ended: list[tuple[ErrorCode, int]] = []
    append = Append(partition, [StoredRecord(b"key", b"value")], 0, Codec.NONE)
    append.then(60_000, lambda error: ended.append((error, partition.log.recovery_point)))

    until(lambda: ended, "the append has ended")
    assert ended == [(ErrorCode.NONE, 1)]
