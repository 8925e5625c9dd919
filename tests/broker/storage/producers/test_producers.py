"""Producers decide about sequences and transactions as a search of the whole log would."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.storage.producers.producer_batches import data, end
from tests.kit.examples import examples

from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry
from ottla.broker.storage.producers.producer_snapshot import StoredProducer, StoredProducers
from ottla.broker.storage.producers.producers import (
    FROM_CLIENT,
    FROM_COORDINATOR,
    AppendOrigin,
    BatchMetadata,
    Producers,
)
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import CONTROL_BIT, RecordBatch

SEQUENCES = 2**31
DAY_MS = 86_400_000
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def refusal(producers: Producers, batch: RecordBatch, origin: AppendOrigin = FROM_CLIENT) -> KafkaError:
    """The error that a batch is refused with."""
    with pytest.raises(KafkaError) as refused:
        producers.check(batch, origin)
    return refused.value


def appended(*batches: RecordBatch) -> Producers:
    """Producers that have seen batches appended one after another from offset 0."""
    producers = Producers()
    offset = 0
    for batch in batches:
        producers.update(batch, offset)
        offset += batch.last_offset_delta + 1
    return producers


@dataclass
class Written:
    """A batch in the model's log."""

    producer_id: int
    epoch: int
    sequence: int
    count: int
    base_offset: int

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) % SEQUENCES


attempts = st.lists(
    st.tuples(
        st.integers(1, 2),  # producer
        st.sampled_from(["next", "next", "again", "shifted", "bumped", "old epoch"]),
        st.integers(0, 6),  # which one, or by how much
        st.integers(1, 3),  # records
    ),
    max_size=40,
)


def attempt_of(own: list[Written], kind: str, number: int, count: int, start: int) -> tuple[int, int, int]:
    """Choose epoch, sequence and count of the next attempt."""
    if not own:
        return 1, start, count
    last = own[-1]
    if kind == "again":
        chosen = own[-1 - number % len(own)]
        return chosen.epoch, chosen.sequence, chosen.count
    if kind == "shifted":
        return last.epoch, (last.next_sequence + number - 3) % SEQUENCES, count
    if kind == "bumped":
        return last.epoch + 1, number // 4, count
    if kind == "old epoch":
        return last.epoch - 1, last.next_sequence, count
    return last.epoch, last.next_sequence, count


def verdict_of(own: list[Written], epoch: int, sequence: int, count: int) -> Written | ErrorCode | None:
    """The rules over everything that this producer has in the log."""
    if not own:
        return None
    known_epoch = own[-1].epoch
    in_epoch: list[Written] = []
    for written in own:
        in_epoch = [*in_epoch, written] if in_epoch and in_epoch[-1].epoch == written.epoch else [written]
    if epoch == known_epoch:
        for written in in_epoch[-5:]:
            if (written.sequence, written.count) == (sequence, count):
                return written
    if epoch < known_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    expected = 0 if epoch > known_epoch else own[-1].next_sequence
    return None if sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@examples(200)
@given(attempts=attempts, start=st.sampled_from([0, 5, SEQUENCES - 4, SEQUENCES - 1]))
def test_sequences_are_judged_as_by_the_whole_log(attempts: list[tuple[int, str, int, int]], start: int) -> None:
    """Next, duplicate, gap, older and newer epoch, also across the wrap of sequences."""
    producers = Producers()
    log: list[Written] = []
    offset = 0
    for producer_id, kind, number, count in attempts:
        own = [written for written in log if written.producer_id == producer_id]
        epoch, sequence, count = attempt_of(own, kind, number, count, start)
        batch = data(sequence, count, producer_id=producer_id, epoch=epoch)
        verdict = verdict_of(own, epoch, sequence, count)
        if isinstance(verdict, ErrorCode):
            assert verdict is refusal(producers, batch).code
        elif isinstance(verdict, Written):
            last_sequence = (sequence + count - 1) % SEQUENCES
            last_offset = verdict.base_offset + count - 1
            expected = BatchMetadata(sequence, last_sequence, verdict.base_offset, last_offset, 5, batch.crc)
            assert expected == producers.check(batch)
        else:
            assert producers.check(batch) is None
            producers.update(batch, offset)
            log.append(Written(producer_id, epoch, sequence, count, offset))
            offset += count


@dataclass
class Event:
    """One offset of the model's log: a transactional batch, or the marker that ends a transaction."""

    producer_id: int
    ends: ControlType | None

    def batch(self) -> RecordBatch:
        if self.ends is None:
            return data(-1, producer_id=self.producer_id, transactional=True)
        return end(self.ends, producer_id=self.producer_id)


def unstable(log: list[Event]) -> tuple[list[int], list[tuple[int, int]]]:
    """First offsets of the ongoing, and (first offset, marker offset) of the ended transactions of a log."""
    ongoing: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    for offset, event in enumerate(log):
        if event.ends is None:
            ongoing.setdefault(event.producer_id, offset)
        elif event.producer_id in ongoing:
            ended.append((ongoing.pop(event.producer_id), offset))
    return list(ongoing.values()), ended


steps = st.lists(
    st.tuples(
        st.sampled_from(["append"] * 9 + ["high watermark"] * 2 + ["snapshot", "truncate"]),
        st.integers(1, 4),  # which producer, or how far
        st.sampled_from([None, COMMIT, ABORT]),
    ),
    min_size=15,
    max_size=50,
)


@examples(200)
@given(steps=steps)
def test_the_last_stable_offset_is_that_of_the_whole_log(steps: list[tuple[str, int, ControlType | None]]) -> None:
    """Whatever is appended, replicated, restored from snapshots and replayed."""
    producers = Producers()
    log: list[Event] = []
    snapshots = {0: StoredProducers(0, [])}
    high_watermark = 0
    for step, number, choice in steps:
        if step == "append":
            log.append(Event(number, choice))
            aborted = producers.update(log[-1].batch(), len(log) - 1)
            assert aborted_by_the_last(log) == aborted
        elif step == "high watermark":
            high_watermark = min(high_watermark + number, len(log))
            if choice is None:
                producers.on_high_watermark(high_watermark)
        elif step == "snapshot":
            snapshots[len(log)] = StoredProducers(len(log), producers.entries())
        else:
            del log[max(len(log) - number, 0) :]
            high_watermark = min(high_watermark, len(log))
            snapshots = {offset: snapshot for offset, snapshot in snapshots.items() if offset <= len(log)}
            newest = max(snapshots)
            producers.restore(snapshots[newest])
            for offset in range(newest, len(log)):
                producers.update(log[offset].batch(), offset)
            assert sorted(appended(*(event.batch() for event in log)).entries()) == sorted(producers.entries())

        ongoing, ended = unstable(log)
        waiting = [first_offset for first_offset, marker_offset in ended if marker_offset >= high_watermark]
        assert min([high_watermark, *ongoing, *waiting]) == producers.last_stable_offset(high_watermark)


def aborted_by_the_last(log: list[Event]) -> AbortedIndexEntry | None:
    """The entry for the index that the last event of a log makes."""
    ongoing, ended = unstable(log)
    marker_offset = len(log) - 1
    if log[-1].ends is not ABORT or not ended or ended[-1][1] != marker_offset:
        return None
    last_stable_offset = min(ongoing, default=marker_offset + 1)
    return AbortedIndexEntry(log[-1].producer_id, ended[-1][0], marker_offset, last_stable_offset)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Its batches may all have been deleted, so nothing can be held against it."""
    assert Producers().check(data(9)) is None


def test_a_gap_says_what_was_expected() -> None:
    """The error tells the two sequences and the producer."""
    error = refusal(appended(data(0, 7)), data(9))

    assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error.detail == "expected sequence 7, got 9 from producer 12 epoch 0"


def test_a_duplicate_beyond_the_last_five_is_out_of_order() -> None:
    """Only five batches can be in flight, so only five are kept."""
    producers = appended(*(data(sequence) for sequence in range(6)))

    assert producers.check(data(1)) == BatchMetadata(1, 1, 1, 1, 5, data(1).crc)
    assert refusal(producers, data(0)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_for_clients_and_coordinators() -> None:
    """Both must be of the present epoch or a newer one."""
    producers = appended(data(0, epoch=3))

    for origin in (FROM_CLIENT, FROM_COORDINATOR):
        error = refusal(producers, data(1, epoch=2), origin)
        assert error.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert error.detail == "epoch 2 of producer 12 is older than 3"


def test_sequences_of_coordinators_are_not_looked_at() -> None:
    """Group coordinators write offsets into transactions without sequences."""
    producers = appended(data(-1, transactional=True))

    assert producers.check(data(-1, transactional=True), FROM_COORDINATOR) is None
    assert producers.check(data(-1, epoch=1, transactional=True), FROM_COORDINATOR) is None


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    """The producer lost track of its own transaction."""
    producers = appended(data(0, transactional=True))

    assert producers.has_open_transaction(12)
    error = refusal(producers, data(1))
    assert error.code is ErrorCode.INVALID_TXN_STATE
    assert "open since offset 0" in error.detail
    assert refusal(producers, data(1, epoch=1)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(data(1, transactional=True)) is None


def test_batches_without_a_producer_leave_no_trace() -> None:
    """Most producers of old have no id."""
    producers = appended(data(-1, producer_id=-1, epoch=-1))

    assert producers.check(data(-1, producer_id=-1, epoch=-1)) is None
    assert len(producers) == 0
    assert not producers.has_open_transaction(12)


def test_a_marker_of_a_newer_epoch_clears_the_batches() -> None:
    """After the coordinator fenced a producer, the next one begins with sequence 0."""
    producers = appended(data(0, 3, transactional=True), end(ABORT, epoch=1))

    assert refusal(producers, data(3, transactional=True)).code is ErrorCode.INVALID_PRODUCER_EPOCH
    error = refusal(producers, data(3, epoch=1))
    assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(data(0, epoch=1)) is None


def test_a_marker_of_the_same_epoch_keeps_the_sequence() -> None:
    """The next transaction goes on where the last one ended, and duplicates are still known."""
    producers = appended(data(0, 3, transactional=True), end(COMMIT))

    assert producers.check(data(3, transactional=True)) is None
    repeated = data(0, 3, transactional=True)
    assert producers.check(repeated) == BatchMetadata(0, 2, 0, 2, 5, repeated.crc)
    assert not producers.has_open_transaction(12)


def test_a_marker_without_data_changes_only_the_producer() -> None:
    """Nothing to index, nothing unstable; but the epochs are known from then on."""
    producers = Producers()

    assert producers.update(end(ABORT, epoch=4, coordinator_epoch=2), 0) is None
    assert producers.entries() == [StoredProducer(12, 4, -1, -1, 0, 6, 2, -1)]
    assert producers.last_stable_offset(0) == 0
    assert refusal(producers, end(ABORT, epoch=3, coordinator_epoch=2)).code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(producers, data(1, epoch=4)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    """Two coordinators may both believe in themselves for a while."""
    producers = appended(data(0, transactional=True), end(COMMIT, coordinator_epoch=5))

    error = refusal(producers, end(COMMIT, coordinator_epoch=4), FROM_COORDINATOR)
    assert error.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert error.detail == "coordinator epoch 4 for producer 12 is older than 5"
    assert producers.check(end(COMMIT, coordinator_epoch=5), FROM_COORDINATOR) is None
    assert producers.check(end(COMMIT, producer_id=13), FROM_COORDINATOR) is None


def test_a_marker_that_the_cleaner_emptied_changes_nothing() -> None:
    """All data of its transaction is gone already."""
    emptied = data(-1, transactional=True)
    emptied.attributes |= CONTROL_BIT
    emptied.record_count = 0
    producers = Producers()

    assert producers.check(emptied, FROM_COORDINATOR) is None
    assert producers.update(emptied, 0) is None
    assert len(producers) == 0


def test_producers_expire_unless_a_transaction_is_open() -> None:
    """An idle producer is forgotten, an open transaction never."""
    producers = appended(
        data(0, producer_id=1, timestamp=100),
        data(0, producer_id=2, timestamp=100, transactional=True),
        data(0, producer_id=3, timestamp=101),
    )

    assert producers.expire(99 + DAY_MS, DAY_MS) == 0
    assert producers.expire(100 + DAY_MS, DAY_MS) == 1
    assert sorted(entry.producer_id for entry in producers.entries()) == [2, 3]
    assert repr(producers) == "Producers(2 known, 1 in a transaction)"


def test_a_snapshot_keeps_the_last_batch_also_across_the_wrap() -> None:
    """The first sequence is found again from the last one and the offset delta."""
    producers = appended(data(SEQUENCES - 5, 3), data(SEQUENCES - 2, 4, timestamp=9))
    restored = Producers()
    restored.restore(StoredProducers(7, producers.entries()))

    assert producers.entries() == restored.entries() == [StoredProducer(12, 0, 1, 6, 3, 9, -1, -1)]
    assert restored.check(data(SEQUENCES - 2, 4)) == BatchMetadata(SEQUENCES - 2, 1, 3, 6, 9)
    assert restored.check(data(2)) is None
    assert refusal(restored, data(SEQUENCES - 5, 3)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_reset_forgets_everything() -> None:
    """A log that begins anew knows no producers and holds nothing back."""
    producers = appended(data(0, transactional=True), data(0, producer_id=2, transactional=True), end(COMMIT))
    producers.reset()

    assert producers.entries() == []
    assert producers.last_stable_offset(3) == 3
