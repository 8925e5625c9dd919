"""Tombstones, markers and producers' last batches stay as long as somebody may need them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.storage.compaction.compacting import DELETE_RETENTION_MS, LIMITS, NOW, Bench, batches_of

from ottla.broker.storage.compaction.compaction import CompactionOutcome
from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def another_round(bench: Bench) -> None:
    """Compact once more; only a log with something dirty is."""
    bench.append([(b"tick", b"%d" % bench.log.log_end_offset)])
    bench.roll()
    assert bench.compact().outcome is CompactionOutcome.COMPLETE


def control_offsets(bench: Bench) -> list[int]:
    return [batch.base_offset for batch in batches_of(bench.log) if batch.is_control]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("log_append_time", [None, NOW + 77])
def test_a_tombstone_gets_its_horizon_once_and_goes_after_it(
    tmp_path: Path, codec: Codec, log_append_time: int | None
) -> None:
    """The horizon stands where the base timestamp was, and the record's own timestamp stays."""
    bench = Bench(tmp_path, segment_bytes=4000)
    bench.append([(b"a", b"1")])
    bench.append([(b"a", None), (b"b", b"2")], codec, log_append_time=log_append_time)
    bench.roll()
    bench.clock.now += 50
    bench.compact()
    batch = batches_of(bench.log)[0]

    assert batch.has_delete_horizon
    assert batch.base_timestamp == NOW + 50 + DELETE_RETENTION_MS
    assert list(batch.records()) == [bench.appended[1], bench.appended[2]]
    assert batch.max_timestamp == (log_append_time or NOW)

    bench.clock.now += DELETE_RETENTION_MS - 1
    another_round(bench)
    assert bytes(batches_of(bench.log)[0].view) == bytes(batch.view)

    bench.clock.now += 1
    another_round(bench)
    assert list(batches_of(bench.log)[0].records()) == [bench.appended[2]]
    bench.reopen()
    assert bench.pairs()[0] == (b"b", b"2")


def test_a_tombstone_above_what_was_mapped_gets_no_horizon_yet(tmp_path: Path) -> None:
    """The older value is still there for readers, so the time in which they must see the tombstone has not begun."""
    bench = Bench(tmp_path, segment_bytes=4000)
    bench.append([(b"a", b"1")])
    bench.append([(b"b", b"2"), (b"c", b"3"), (b"a", None)])
    bench.append([(b"b", None)])
    bench.roll()
    bench.compact(LIMITS._replace(map_bytes=3 * 24))

    assert bench.checkpoint == 2
    assert bench.pairs() == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"a", None), (b"b", None)]
    assert not any(batch.has_delete_horizon for batch in batches_of(bench.log))
    bench.compact()
    assert bench.pairs() == [(b"c", b"3"), (b"a", None), (b"b", None)]
    assert all(batch.has_delete_horizon for batch in batches_of(bench.log))


def test_tombstones_stay_where_the_horizon_is_beyond_all_time(tmp_path: Path) -> None:
    """A header holds 64 bits; the largest retention means for ever."""
    bench = Bench(tmp_path, delete_retention_ms=2**63 - 1)
    bench.append([(b"a", None)])
    bench.append([(b"b", None)], producer=1, transactional=True)
    bench.end_transaction(COMMIT, 1)
    bench.roll()
    bench.compact()
    another_round(bench)

    assert bench.pairs()[:2] == [(b"a", None), (b"b", None)]
    assert not any(batch.has_delete_horizon for batch in batches_of(bench.log))


def test_aborted_data_goes_at_once_and_committed_data_stays(tmp_path: Path) -> None:
    """An aborted record replaces nothing, though its offset is higher."""
    bench = Bench(tmp_path)
    bench.append([(b"a", b"kept")])
    bench.append([(b"a", b"aborted"), (b"b", b"aborted")], producer=1, transactional=True)
    bench.append([(b"c", b"committed")], producer=2, transactional=True)
    bench.end_transaction(ABORT, 1)
    bench.append([(b"d", b"again")], producer=1, sequence=2, transactional=True)
    bench.end_transaction(COMMIT, 2)
    bench.end_transaction(COMMIT, 1)
    bench.roll()
    bench.compact()

    assert bench.pairs() == [(b"a", b"kept"), (b"c", b"committed"), (b"d", b"again")]
    assert control_offsets(bench) == [4, 6, 7]
    bench.check_reads()


def test_a_transaction_over_many_segments_is_known_by_the_marker_behind_them(tmp_path: Path) -> None:
    """Its batches are judged before the marker is reached, even if that lies in the active segment."""
    bench = Bench(tmp_path, segment_bytes=200)
    for number in range(6):
        bench.append([(b"a", b"v" * 50)], producer=1, sequence=number, transactional=True)
        bench.append([(b"b", b"%d" % number)], producer=2, sequence=number, transactional=True)
    bench.roll()
    bench.end_transaction(ABORT, 1)
    bench.end_transaction(COMMIT, 2)
    bench.compact()

    assert bench.pairs() == [(b"b", b"5")]
    assert bench.log.aborted_transactions(0, bench.log.log_end_offset) == [(1, 0)]


def test_an_aborted_transaction_below_the_dirty_part_takes_no_later_one_with_it(tmp_path: Path) -> None:
    """Its marker is not read again when keys are mapped from within the segment on."""
    bench = Bench(tmp_path, segment_bytes=4000)
    bench.append([(b"a", b"old")])
    bench.append([(b"x", b"aborted")], producer=1, transactional=True)
    bench.end_transaction(ABORT, 1)
    bench.append([(b"b", b"1")])
    bench.append([(b"a", b"new")], producer=1, sequence=1, transactional=True)
    bench.end_transaction(COMMIT, 1)
    bench.roll()
    bench.checkpoint = 3
    bench.compact()

    assert bench.pairs() == [(b"b", b"1"), (b"a", b"new")]


def test_undecided_data_is_not_touched(tmp_path: Path) -> None:
    """The segment in which the last stable offset lies, and all behind, wait for the marker."""
    bench = Bench(tmp_path, segment_bytes=200)
    for _ in range(4):
        bench.append([(b"a", b"v" * 50)])
    open_since = bench.append([(b"a", b"open")], producer=1, transactional=True)
    for _ in range(4):
        bench.append([(b"a", b"v" * 50)])
    bench.roll()
    report = bench.compact()

    assert report.cleaned_up_to <= open_since
    assert [batch.base_offset for batch in batches_of(bench.log)] == list(range(report.cleaned_up_to - 1, 9))
    bench.end_transaction(ABORT, 1)
    another_round(bench)
    assert bench.pairs() == [(b"a", b"v" * 50), (b"tick", b"10")]


@pytest.mark.parametrize("control_type", ControlType)
def test_a_marker_goes_late(tmp_path: Path, control_type: ControlType) -> None:
    """First the data; then, in a compaction that finds none, the marker gets a horizon; after that it goes."""
    bench = Bench(tmp_path)
    bench.append([(b"a", b"1")], producer=1, transactional=True)
    marker = bench.end_transaction(control_type, 1)
    bench.append([(b"a", b"2")])
    # The producer's last batch is another one, so that nothing holds this one.
    bench.append([(b"b", b"1")], producer=1, sequence=1)
    bench.roll()
    bench.compact()
    assert control_offsets(bench) == [marker]
    aborted = [AbortedIndexEntry(1, 0, 1, 2)] if control_type is ABORT else []
    assert list(bench.log.segments[0].aborted_transactions) == aborted

    bench.clock.now += 10 * DELETE_RETENTION_MS
    another_round(bench)
    spent = next(batch for batch in batches_of(bench.log) if batch.is_control)
    assert (spent.base_offset, spent.base_timestamp) == (marker, bench.clock.now + DELETE_RETENTION_MS)
    assert list(bench.log.segments[0].aborted_transactions) == []

    bench.clock.now += DELETE_RETENTION_MS - 1
    another_round(bench)
    assert control_offsets(bench) == [marker]
    bench.clock.now += 1
    another_round(bench)
    assert control_offsets(bench) == []
    assert bench.pairs()[:2] == [(b"a", b"2"), (b"b", b"1")]


def test_the_last_batch_of_a_producer_stays_without_its_records(tmp_path: Path) -> None:
    """A log that is read anew, without snapshots, still knows the next sequence."""
    bench = Bench(tmp_path)
    bench.append([(b"a", b"1"), (b"b", b"1")], Codec.LZ4, producer=5, sequence=0)
    bench.append([(b"a", b"2"), (b"b", b"2")], Codec.LZ4, producer=5, sequence=2)
    bench.append([(b"a", b"3"), (b"b", b"3")])
    bench.roll()
    bench.compact()
    another_round(bench)
    emptied = batches_of(bench.log)[0]

    assert (emptied.base_offset, emptied.last_offset, emptied.record_count) == (2, 3, 0)
    assert (emptied.producer_id, emptied.base_sequence, emptied.last_sequence) == (5, 2, 3)
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    bench.reopen()
    duplicate = RecordBatchBuilder()
    duplicate.append(NOW, b"a", b"2")
    duplicate.append(NOW, b"b", b"2")
    again = duplicate.build(producer_id=5, producer_epoch=0, base_sequence=2)
    assert bench.log.append_as_leader(RecordBatch(again), 0).is_duplicate
    with pytest.raises(KafkaError) as caught:
        bench.append([(b"a", b"4")], producer=5, sequence=9)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    bench.append([(b"a", b"4")], producer=5, sequence=4)


def test_an_emptied_batch_keeps_the_marker_of_its_transaction(tmp_path: Path) -> None:
    """Without it a restart would find a transaction that never ends, and readers would wait for it."""
    bench = Bench(tmp_path)
    bench.append([(b"a", b"1")], producer=1, transactional=True)
    bench.end_transaction(COMMIT, 1)
    bench.append([(b"a", b"2")], producer=2, transactional=True)
    bench.end_transaction(ABORT, 2)
    bench.append([(b"a", b"3")])
    bench.roll()
    for _ in range(4):
        another_round(bench)
        bench.clock.now += 10 * DELETE_RETENTION_MS
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    bench.reopen()

    assert control_offsets(bench) == [1, 3]
    assert bench.log.last_stable_offset == bench.log.log_end_offset

    with bench.log.lock:
        bench.log.producers.expire(bench.clock.now + 10**9, 1)
    for _ in range(4):
        another_round(bench)
        bench.clock.now += 10 * DELETE_RETENTION_MS
    assert control_offsets(bench) == []
    assert [batch.record_count for batch in batches_of(bench.log)] == [1, 1]


def test_the_only_trace_of_a_producer_s_epoch_stays(tmp_path: Path) -> None:
    """The coordinator fenced the producer with a marker of a new epoch: the old one must stay out after a restart."""
    bench = Bench(tmp_path)
    bench.append([(b"a", b"1")], producer=1, epoch=3, transactional=True)
    fence = bench.end_transaction(ABORT, 1, epoch=4)
    bench.append([(b"a", b"2")])
    bench.roll()
    for _ in range(4):
        another_round(bench)
        bench.clock.now += 10 * DELETE_RETENTION_MS
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    bench.reopen()

    assert control_offsets(bench) == [fence]
    with pytest.raises(KafkaError) as caught:
        bench.append([(b"a", b"old")], producer=1, epoch=3, sequence=1)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
