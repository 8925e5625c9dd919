"""A consumer of committed records learns which transactions were aborted among what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.handlers.data_path import NOW_MS, Broker, batch, running_broker
from tests.broker.handlers.test_fetch_from_leader import partition_of
from tests.broker.handlers.test_produce_and_fetch import fetch

from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.records import RecordBatch, batches

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return the leader of `t`, whose segments hold about ten small batches."""
    options = {"transaction.partition.verification.enable": "false"}
    with running_broker(tmp_path, {"t": {"segment.bytes": "1000", "index.interval.bytes": "150"}}, options) as broker:
        broker.lead("t")
        yield broker


def write(broker: Broker, producer: int, sequence: int = 0) -> None:
    """Write a record in a producer's transaction."""
    records = batch(b"v", transactional=True, producer_id=producer, producer_epoch=0, base_sequence=sequence)
    partition_of(broker).append_batch(RecordBatch(records))


def end(broker: Broker, producer: int, how: ControlType) -> None:
    """End the transaction of a producer."""
    marker = build_marker_batch(EndTransactionMarker(how, 0), producer_id=producer, producer_epoch=0, timestamp=NOW_MS)
    partition_of(broker).append_batch(RecordBatch(marker))


def aborted(broker: Broker, offset: int, max_bytes: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The base offsets that a fetch gives, and (producer id, first offset) of what it says was aborted."""
    answer = fetch(broker, offset, isolation_level=1, partition_max_bytes=max_bytes)
    offsets = [found.base_offset for found in batches(answer.records or b"", strict=True)]
    return offsets, [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()]


def test_a_fetch_tells_of_the_aborted_transactions_in_what_it_returns_and_of_no_others(broker: Broker) -> None:
    """One batch of the first of thirty transactions comes with one entry, whatever was aborted since."""
    for producer in range(30):
        write(broker, producer)
        end(broker, producer, ABORT)
    log = partition_of(broker).log
    assert len(log.segments) > 3

    for offset in range(0, 60, 2):
        assert aborted(broker, offset, 1) == ([offset], [(offset // 2, offset)])
    offsets, entries = aborted(broker, 0, 1 << 20)
    assert entries == [(offset // 2, offset) for offset in offsets[::2]]
    assert len(entries) < 10


@pytest.mark.parametrize("max_bytes", [1, 200, 400, 600, 1 << 20])
def test_every_aborted_transaction_with_a_record_in_the_answer_is_told_of(broker: Broker, max_bytes: int) -> None:
    """Also one that ends far behind; in the order in which they began."""
    write(broker, 1)
    write(broker, 2)
    write(broker, 3)
    end(broker, 2, ABORT)
    end(broker, 3, COMMIT)
    for sequence in range(1, 9):
        write(broker, 1, sequence)
    end(broker, 1, ABORT)
    partition_of(broker).log.roll()
    for offset in range(14):
        offsets, entries = aborted(broker, offset, max_bytes)
        has_second = offset <= 3 and offsets[-1] >= 1

        assert entries == ([(1, 0), (2, 1)] if has_second else [(1, 0)])
