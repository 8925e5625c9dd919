"""MirrorAppend: batches of another cluster keep their offsets, and no request takes effect twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.broker.handlers.test_delete_records import follow, lead

from ottla.broker.storage.log import Log
from ottla.protocol.api import Api
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.mirror_append import MirrorAppendPartition, MirrorAppendRequest, MirrorAppendTopic
from ottla.protocol.records import RecordBatch, batches

THERE_EPOCH = 7


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return broker 1, which leads `t` alone."""
    with running_broker(tmp_path, {}) as broker:
        broker.lead("t")
        yield broker


def at(base_offset: int, *values: bytes, **options: Any) -> bytes:
    """Return a batch as the other cluster has it, at an offset and in an epoch of that cluster."""
    found = RecordBatch(bytearray(batch(*values, **options)))
    found.patch(base_offset, THERE_EPOCH)
    return bytes(found.view)


def transactional(base_offset: int, producer_id: int) -> bytes:
    """Return a batch of a transaction in the other cluster."""
    return at(base_offset, b"open", producer_id=producer_id, producer_epoch=0, base_sequence=5, transactional=True)


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    """Return the marker that ends the transaction there."""
    ended = EndTransactionMarker(kind, 0)
    return bytes(
        build_marker_batch(
            ended,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=1,
            base_offset=base_offset,
            partition_leader_epoch=THERE_EPOCH,
        )
    )


def append(broker: Broker, end: int, *sent: bytes, start: int = 0, topic: str = "t") -> Any:
    """Append batches where the log ends; return (code, end) of the only partition, or a list that will have it."""
    row = MirrorAppendPartition(
        partition_index=0, log_end_offset=end, log_start_offset=start, records=b"".join(sent) or None
    )
    body = MirrorAppendRequest(timeout_ms=60_000, topics=[MirrorAppendTopic(name=topic, partitions=[row])])
    answer = broker.ask(Api.MIRROR_APPEND, 0, body)
    return answer if isinstance(answer, list) else result(answer)


def result(answer: Any) -> tuple[ErrorCode, int]:
    """Return the code of the only partition, and where its log ends."""
    (row,) = answer.topics[0].partitions
    return ErrorCode.of(row.error_code), row.log_end_offset


def log_of(broker: Broker) -> Log:
    """Return the log of `t`."""
    return broker.services.partitions.get(TopicPartition("t", 0)).log


def stored(broker: Broker) -> list[RecordBatch]:
    """Return the batches of the log."""
    log, found = log_of(broker), []
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 20)) is not None:
        found += [RecordBatch(bytes(each.view)) for each in batches(piece.read())]
        offset = found[-1].next_offset
    return found


def test_batches_keep_their_offsets_and_holes(broker: Broker) -> None:
    """Only the leader epoch is ours: the other cluster counts its own."""
    sent = [at(0, b"a", b"b"), at(10, b"c"), at(12, b"d")]

    assert append(broker, 0, *sent) == (ErrorCode.NONE, 13)

    found = stored(broker)
    assert [(each.base_offset, each.last_offset) for each in found] == [(0, 1), (10, 10), (12, 12)]
    assert [bytes(each.view[16:]) for each in found] == [each[16:] for each in sent]
    assert {each.partition_leader_epoch for each in found} == {0}
    assert log_of(broker).high_watermark == 13


def test_a_request_that_comes_twice_or_late_changes_nothing(broker: Broker) -> None:
    """The answer says where the log ends, so the mirror can go on there."""
    first = at(0, b"a", b"b")
    assert append(broker, 0, first) == (ErrorCode.NONE, 2)

    assert append(broker, 0, first) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
    assert append(broker, 5, at(5, b"too early")) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)

    assert append(broker, 2, at(2, b"c")) == (ErrorCode.NONE, 3)
    assert len(stored(broker)) == 2


def test_a_log_begins_where_that_of_the_other_cluster_does(broker: Broker) -> None:
    """Also where the other cluster has no record left."""
    assert append(broker, 0, start=1000) == (ErrorCode.NONE, 1000)
    assert (log_of(broker).log_start_offset, log_of(broker).log_end_offset) == (1000, 1000)

    assert append(broker, 1000, at(1000, b"a"), start=1000) == (ErrorCode.NONE, 1001)
    # What is deleted there, is deleted here. The mirror was away while records came and went.
    assert append(broker, 1001, at(1050, b"b"), start=1050) == (ErrorCode.NONE, 1051)

    assert log_of(broker).log_start_offset == 1050
    assert [each.base_offset for each in stored(broker)] == [1050]


def test_a_log_may_start_within_a_batch(broker: Broker) -> None:
    """The batch is copied whole."""
    assert append(broker, 0, at(7, b"a", b"b", b"c"), start=8) == (ErrorCode.NONE, 10)

    assert log_of(broker).log_start_offset == 8
    assert [each.base_offset for each in stored(broker)] == [7]


def test_an_open_transaction_holds_back_readers_of_committed_records_until_its_marker_comes(broker: Broker) -> None:
    """And an aborted one is indexed, so that they skip it."""
    append(broker, 0, at(0, b"a"), transactional(1, 42))
    assert log_of(broker).last_stable_offset == 1

    append(broker, 2, marker(2, 42, ControlType.ABORT))

    assert log_of(broker).last_stable_offset == 3
    assert log_of(broker).aborted_transactions(0, 3) == [(42, 1)]


def test_damaged_batches_and_those_that_go_back_are_refused(broker: Broker) -> None:
    """Nothing of the request is appended."""
    damaged = bytearray(at(1, b"b"))
    damaged[-1] ^= 1

    assert append(broker, 0, at(0, b"a"), bytes(damaged))[0] is ErrorCode.CORRUPT_MESSAGE
    assert append(broker, 0, at(3, b"a"), at(2, b"b"))[0] is ErrorCode.CORRUPT_MESSAGE
    assert append(broker, 0, at(0, b"a")[:-1])[0] is ErrorCode.CORRUPT_MESSAGE
    assert append(broker, 0, at(0, b"a"), topic="__consumer_offsets")[0] is ErrorCode.INVALID_TOPIC_EXCEPTION

    assert log_of(broker).log_end_offset == 0


def test_the_answer_waits_for_the_replicas(tmp_path: Path) -> None:
    """As with acks=all."""
    with running_broker(tmp_path, {}) as broker:
        broker.racks = {1: None, 2: None, 3: None}
        lead(broker)
        follow(broker, 2, 0)

        answers = append(broker, 0, at(0, b"a"))

        assert answers == []
        follow(broker, 2, 1)
        assert [result(each) for each in answers] == [(ErrorCode.NONE, 1)]


def test_the_log_is_the_same_after_a_crash(tmp_path: Path) -> None:
    """Recovery takes the holes as they are, and the log starts where it did."""
    with running_broker(tmp_path, {}) as broker:
        broker.lead("t")
        append(broker, 0, at(100, b"a"), at(105, b"b"), start=100)
        before = [bytes(each.view) for each in stored(broker)]
    for path in tmp_path.rglob(".kafka_cleanshutdown"):
        path.unlink()
    with running_broker(tmp_path, {}) as broker:
        broker.lead("t", epoch=1)
        assert [bytes(each.view) for each in stored(broker)] == before
        assert append(broker, 106, at(110, b"c"), start=100) == (ErrorCode.NONE, 111)
