"""Compaction leaves the last record of each key, and changes nothing about what stays."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.storage.compaction.compacting import (
    DELETE_RETENTION_MS,
    LIMITS,
    NOW,
    Bench,
    Pair,
    batches_of,
    check_is_compaction_of,
    records_of,
)
from tests.kit.examples import examples

from ottla.broker.config import BrokerConfig
from ottla.broker.storage.compaction.compaction import CleanerLimits, CompactionOutcome, compact
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.maintenance.retention import remove_doomed
from ottla.broker.storage.offset_lookup import offset_for_timestamp
from ottla.broker.storage.producers.producer_snapshot import snapshot_offsets
from ottla.protocol.compression import Codec
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import TimestampType

pairs = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"d", b"e" * 60]),
    st.none() | st.binary(max_size=4) | st.just(b"v" * 80),
)
appends = st.lists(st.tuples(st.sampled_from(Codec), st.lists(pairs, min_size=1, max_size=6)), max_size=8)
Round = tuple[list[tuple[Codec, list[Pair]]], bool, int]
rounds = st.lists(st.tuples(appends, st.booleans(), st.sampled_from([0, 400, 2500])), min_size=1, max_size=4)


@examples(40)
@given(rounds)
def test_compaction_keeps_the_last_value_of_each_key(rounds: list[Round]) -> None:
    """Over several rounds and restarts; a tombstone stays for delete.retention.ms after it was compacted."""
    with TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        first_compacted: dict[int, int] = {}
        for round_appends, reopens, pause_ms in rounds:
            for codec, batch in round_appends:
                bench.append(batch, codec)
            bench.roll()
            report = bench.compact()

            assert report.outcome is CompactionOutcome.COMPLETE
            assert report.cleaned_up_to == bench.log.active.base_offset
            check_is_compaction_of(bench.log, bench.appended, report.cleaned_up_to)
            bench.check_reads()
            if report.segments_before:
                remaining = {record.offset for record in records_of(bench.log)}
                last_offsets = {record.key: offset for offset, record in sorted(bench.appended.items())}
                for offset in last_offsets.values():
                    if bench.appended[offset].value is None:
                        since = first_compacted.setdefault(offset, bench.clock.now)
                        assert (offset in remaining) is (bench.clock.now < since + DELETE_RETENTION_MS)
                bench.appended = {offset: bench.appended[offset] for offset in sorted(remaining)}
            if reopens:
                before = [bytes(batch.view) for batch in batches_of(bench.log)]
                bench.reopen()
                assert [bytes(batch.view) for batch in batches_of(bench.log)] == before
            bench.clock.now += pause_ms


@examples(30)
@given(appends, st.integers(2, 5))
def test_a_map_of_few_keys_compacts_in_several_rounds(appends: list[tuple[Codec, list[Pair]]], slots: int) -> None:
    """A round ends where the map is full, also within a batch, and the next one goes on there."""
    with TemporaryDirectory() as directory:
        bench = Bench(Path(directory), delete_retention_ms=0)
        for codec, batch in appends:
            bench.append(batch, codec)
        bench.roll()
        end = bench.log.active.base_offset
        limits = LIMITS._replace(map_bytes=24 * slots)
        cleaned_up_to = 0
        while cleaned_up_to < end:
            report = bench.compact(limits)
            assert report.first_dirty_offset == cleaned_up_to < report.cleaned_up_to
            assert report.map_entries <= slots
            cleaned_up_to = report.cleaned_up_to
            check_is_compaction_of(bench.log, bench.appended, cleaned_up_to)


def test_a_report_says_what_was_done(tmp_path: Path) -> None:
    """One line of it is all that an operator sees."""
    bench = Bench(tmp_path)
    for number in range(20):
        bench.append([(b"key", b"%03d" % number * 20)])
    bench.roll()
    size = sum(segment.size for segment in bench.log.segments)
    report = bench.compact()

    assert (report.outcome, report.first_dirty_offset, report.cleaned_up_to) == (CompactionOutcome.COMPLETE, 0, 20)
    assert (report.records_mapped, report.records_read, report.records_written) == (20, 20, 1)
    assert (report.bytes_mapped, report.bytes_read, report.bytes_written) == (size, size, bench.log.size)
    assert (report.map_entries, report.segments_before) == (1, 7)
    assert report.segments_after == len(bench.log.segments) - 1
    again = bench.compact()
    assert (again.first_dirty_offset, again.cleaned_up_to, again.bytes_read) == (20, 20, 0)


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(tmp_path: Path) -> None:
    """Also where its neighbours are rewritten, and whatever made its bytes."""
    bench = Bench(tmp_path, segment_bytes=4000)
    bench.append([(b"a", b"old")], Codec.ZSTD)
    bench.append([(b"b", b"1"), (b"c", b"2")], Codec.GZIP)
    bench.append([(b"a", b"new"), (b"d", b"3")], Codec.SNAPPY)
    bench.roll()
    before = [bytes(batch.view) for batch in batches_of(bench.log)]
    bench.compact()

    assert [bytes(batch.view) for batch in batches_of(bench.log)] == before[1:]


@pytest.mark.parametrize("codec", Codec)
def test_a_rewritten_batch_keeps_all_but_the_records(tmp_path: Path, codec: Codec) -> None:
    """Offsets, epochs, producer, codec and timestamp type."""
    bench = Bench(tmp_path, segment_bytes=4000)
    bench.append([(b"filler", b"0")])
    bench.append([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")], codec, producer=7, epoch=2, sequence=40)
    bench.append([(b"c", b"5")], log_append_time=NOW + 5)
    bench.roll()
    bench.compact()

    rewritten = batches_of(bench.log)[1]
    assert (rewritten.base_offset, rewritten.last_offset, rewritten.record_count) == (1, 4, 2)
    assert (rewritten.producer_id, rewritten.producer_epoch, rewritten.base_sequence) == (7, 2, 40)
    assert (rewritten.codec, rewritten.partition_leader_epoch) == (codec, 0)
    assert [(record.offset, record.key) for record in rewritten.records()] == [(2, b"b"), (3, b"a")]
    assert batches_of(bench.log)[2].timestamp_type is TimestampType.LOG_APPEND_TIME


def test_records_without_a_key_go(tmp_path: Path) -> None:
    """They may be there from the time before the topic was compacted; a batch of nothing else leaves a hole."""
    bench = Bench(tmp_path)
    bench.append([(None, b"1"), (b"a", b"2")])
    bench.append([(None, b"3")])
    bench.roll()
    bench.compact()

    assert bench.pairs() == [(b"a", b"2")]
    assert bench.log.log_end_offset == 3
    bench.check_reads()


def test_a_log_that_loses_everything_stays_a_log(tmp_path: Path) -> None:
    """Its one empty segment survives restarts, and the next records follow it."""
    bench = Bench(tmp_path, delete_retention_ms=0)
    bench.append([(b"a", b"1")])
    bench.append([(b"a", None)])
    bench.roll()
    bench.compact()
    bench.append([(b"b", b"2")])
    bench.roll()
    bench.checkpoint = 0
    bench.compact()

    assert bench.pairs() == [(b"b", b"2")]
    bench.append([(b"b", None)])
    bench.roll()
    bench.compact()
    bench.append([(b"c", b"3")])
    bench.roll()
    bench.compact()
    assert bench.pairs() == [(b"c", b"3")]
    bench.reopen()
    assert bench.pairs() == [(b"c", b"3")]
    bench.check_reads()


def test_small_segments_become_one_up_to_the_size_of_a_segment(tmp_path: Path) -> None:
    """It bears the name of the first and the age of the last; the files of the old ones are removed."""
    bench = Bench(tmp_path)
    for number in range(12):
        bench.append([(b"key-%d" % (number % 3), b"v" * 50)])
    bench.roll()
    modified_ns = bench.log.segments[-2].path.stat().st_mtime_ns - 5_000_000_000
    os.utime(bench.log.segments[-2].path, ns=(modified_ns, modified_ns))
    bench.compact()
    bench.append([(b"key-3", b"v")])
    bench.roll()
    report = bench.compact()
    remove_doomed(bench.log)

    assert report.segments_after < report.segments_before
    assert len(bench.log.segments) == 3
    assert all(segment.size <= bench.config.segment_bytes for segment in bench.log.segments)
    assert not {path.suffix for path in tmp_path.iterdir()} & {".cleaned", ".swap", ".deleted", ".txnindex"}
    assert sorted(int(path.stem) for path in tmp_path.glob("*.log")) == [
        segment.base_offset for segment in bench.log.segments
    ]
    assert set(snapshot_offsets(tmp_path)) <= {segment.base_offset for segment in bench.log.segments}
    bench.check_reads()


def test_the_indexes_of_a_compacted_segment_are_those_that_a_rebuild_makes(tmp_path: Path) -> None:
    """A search by offset or time needs nothing but the new files."""
    bench = Bench(tmp_path, segment_bytes=20_000)
    for number in range(200):
        bench.append([(b"key-%d" % (number % 70), b"v" * 20)])
        bench.clock.now += 10
    bench.roll()
    bench.compact()
    segment = bench.log.segments[0]
    written = [path.read_bytes() for path in segment.paths[1:3]]
    with bench.log.lock:
        segment.rebuild_indexes()

    assert len(written[0]) > 8 * 20
    assert [path.read_bytes() for path in segment.paths[1:3]] == written
    found = offset_for_timestamp(bench.log, NOW + 1500)
    assert found is not None
    assert found.offset == 150


def test_a_segment_that_is_clean_already_is_left_as_it_is(tmp_path: Path) -> None:
    """No file is exchanged for one that says the same."""
    bench = Bench(tmp_path, segment_bytes=150)
    for number in range(4):
        bench.append([(b"key-%d" % number, b"v" * 50)])
    bench.roll()
    inodes = [segment.path.stat().st_ino for segment in bench.log.segments]
    report = bench.compact()

    assert report.cleaned_up_to == 4
    assert [segment.path.stat().st_ino for segment in bench.log.segments] == inodes
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_damaged_batch_is_refused_and_the_log_left_alone(tmp_path: Path) -> None:
    """Writing it anew would give a right CRC to wrong bytes."""
    bench = Bench(tmp_path)
    for _ in range(10):
        bench.append([(b"a", b"v" * 50)])
    bench.roll()
    victim = bench.log.segments[1].path
    data = bytearray(victim.read_bytes())
    data[-10] ^= 1
    victim.write_bytes(data)

    with pytest.raises(CorruptBatchError, match="CRC"):
        bench.compact()
    assert victim.read_bytes() == data
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_batch_at_the_wrong_offset_is_refused(tmp_path: Path) -> None:
    """No CRC protects a base offset; that offsets rise does."""
    bench = Bench(tmp_path)
    for _ in range(10):
        bench.append([(b"a", b"v" * 50)])
    bench.roll()
    segment = bench.log.segments[1]
    data = bytearray(segment.path.read_bytes())
    data[:8] = (segment.base_offset + 1).to_bytes(8)
    segment.path.write_bytes(data)

    with pytest.raises(CorruptBatchError, match="out of order"):
        bench.compact()


def test_batches_larger_than_the_buffer_are_compacted(tmp_path: Path) -> None:
    """The buffer grows for one of them, and a file that ends within one is refused."""
    bench = Bench(tmp_path, segment_bytes=200_000)
    for number in range(4):
        bench.append([(b"a", b"%d" % number), (b"b-%d" % number, bytes(20_000))])
    bench.roll()
    bench.compact()

    assert [key for key, _ in bench.pairs()] == [b"b-0", b"b-1", b"b-2", b"a", b"b-3"]
    bench.append([(b"a", bytes(20_000))])
    bench.roll()
    segment = bench.log.segments[1]
    os.truncate(segment.path, 10_000)
    segment.size = 10_000
    with pytest.raises(CorruptBatchError, match="no batch at position 0"):
        bench.compact()


def test_memory_for_no_key_at_all_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    """Nothing was touched by then."""
    bench = Bench(tmp_path)
    bench.append([(b"a", b"1")])
    bench.roll()

    with pytest.raises(StorageError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        compact(bench.log, None, LIMITS._replace(map_bytes=24))
    assert bench.pairs() == [(b"a", b"1")]


def test_the_options_are_shared_among_the_threads() -> None:
    """Of the buffer one half is for reading."""
    config = BrokerConfig.of({"log.cleaner.threads": "2", "log.cleaner.io.buffer.load.factor": "0.7"})

    assert CleanerLimits.of(config) == (64 * 1024 * 1024, 0.7, 128 * 1024)
