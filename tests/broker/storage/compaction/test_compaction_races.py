"""What happens to a log while it is compacted: reads, appends, deletions and cuts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.storage.compaction.compacting import DAY_MS, LIMITS, NOW, Bench, check_nothing_is_lost, records_of
from tests.kit.waiting import until

from ottla.broker.storage.compaction.compaction import CompactionOutcome, CompactionReport, compact
from ottla.broker.storage.maintenance.retention import Reason, delete_old_segments, remove_doomed
from ottla.protocol.compression import Codec
from ottla.protocol.record import Record
from ottla.protocol.records import batches


def filled(directory: Path, **overrides: object) -> Bench:
    """Forty batches in five segments; keys of the last ten appear nowhere before."""
    bench = Bench(directory, segment_bytes=850, **overrides)
    for number in range(40):
        key = b"key-%d" % (number % 7) if number < 30 else b"late-%d" % (number % 3)
        bench.append([(key, b"%03d" % number * 10)])
        bench.clock.now += 10
    bench.roll()
    assert [segment.base_offset for segment in bench.log.segments] == [0, 8, 16, 24, 32, 40]
    return bench


def compact_and(bench: Bench, number: int, happen: Callable[[], object]) -> CompactionReport:
    """Let something happen to the log when the cleaner is at its batch of that number, over both passes."""
    asked = 0

    def is_stopped() -> bool:
        nonlocal asked
        if asked == number:
            happen()
        asked += 1
        return False

    return compact(bench.log, None, LIMITS, is_stopped=is_stopped)


def check_reopened(bench: Bench) -> None:
    """A fresh start finds the same log."""
    before = records_of(bench.log)
    bench.reopen()
    assert records_of(bench.log) == before
    bench.check_reads()


# Of the eighty batches that are read in all: first and last, and around the first exchange.
MOMENTS = [0, 20, 40, 47, 48, 60, 79]


@pytest.mark.parametrize("moment", MOMENTS)
def test_retention_wins_over_compaction(tmp_path: Path, moment: int) -> None:
    """A segment that is deleted while it is cleaned stays deleted, and nothing else is lost."""
    bench = filled(tmp_path, cleanup_policy="compact,delete")
    expected = {offset: record for offset, record in bench.appended.items() if offset >= 8}

    def delete() -> None:
        bench.log.advance_log_start(13)
        assert [reason for _, reason in delete_old_segments(bench.log)] == [Reason.LOG_START]
        remove_doomed(bench.log)

    report = compact_and(bench, moment, delete)

    assert report.outcome is (CompactionOutcome.CHANGED if moment < 48 else CompactionOutcome.COMPLETE)
    assert bench.log.log_start_offset == 13
    assert bench.log.segments[0].base_offset == 8
    check_nothing_is_lost(bench.log, expected)
    assert not list(tmp_path.glob("*.cleaned")) + list(tmp_path.glob("*.swap"))
    report = bench.compact()
    assert report.outcome is CompactionOutcome.COMPLETE
    check_nothing_is_lost(bench.log, expected)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_cut_during_compaction_is_noticed(tmp_path: Path, moment: int) -> None:
    """Even if what was cut is replaced by as many batches of the same size."""
    bench = filled(tmp_path)

    def cut() -> None:
        assert bench.log.truncate_to(30)
        bench.appended = {offset: record for offset, record in bench.appended.items() if offset < 30}
        for number in range(10):
            bench.append([(b"late-%d" % (number % 3), b"new" * 10)])
        bench.roll()

    report = compact_and(bench, moment, cut)

    assert (report.outcome, report.cleaned_up_to) == (CompactionOutcome.CHANGED, 0)
    assert [record for record in records_of(bench.log) if record.offset >= 30] == [
        bench.appended[offset] for offset in range(30, 40)
    ]
    check_nothing_is_lost(bench.log, bench.appended)
    assert not list(tmp_path.glob("*.cleaned")) + list(tmp_path.glob("*.swap"))
    check_reopened(bench)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_log_that_begins_anew_during_compaction_stays_empty(tmp_path: Path, moment: int) -> None:
    """Nothing of the old one comes back."""
    bench = filled(tmp_path)
    report = compact_and(bench, moment, lambda: bench.log.truncate_fully_and_start_at(1000))

    assert report.outcome is CompactionOutcome.CHANGED
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (1000, 1000)
    check_reopened(bench)
    assert bench.log.log_start_offset == 1000


@pytest.mark.parametrize("moment", MOMENTS)
def test_appends_and_rolls_go_on_during_compaction(tmp_path: Path, moment: int) -> None:
    """They are above what is compacted, and wait for the next time."""
    bench = filled(tmp_path)

    def append() -> None:
        for _ in range(10):
            bench.append([(b"key-1", b"while it runs")], Codec.LZ4)

    report = compact_and(bench, moment, append)

    assert (report.outcome, report.cleaned_up_to) == (CompactionOutcome.COMPLETE, 40)
    assert bench.pairs()[-10:] == [(b"key-1", b"while it runs")] * 10
    check_nothing_is_lost(bench.log, bench.appended)
    check_reopened(bench)


def test_a_slice_that_was_read_before_stays_as_it_was(tmp_path: Path) -> None:
    """A slow consumer gets the bytes that it was promised, though the file is gone."""
    bench = filled(tmp_path)
    slices = [bench.log.read(offset, 1 << 20) for offset in range(40)]
    before = [place.read() for place in slices if place is not None]
    bench.compact()
    remove_doomed(bench.log)

    assert [place.read() for place in slices if place is not None] == before


def test_compaction_and_retention_take_turns_on_one_log(tmp_path: Path) -> None:
    """With `compact,delete` old keys go by age, whether they were compacted or not."""
    bench = filled(tmp_path, cleanup_policy="compact,delete", retention_ms=DAY_MS)
    for segment in bench.log.segments:
        # What is left empty goes by the time at which it was written.
        os.utime(segment.path, ns=(NOW * 1_000_000, NOW * 1_000_000))
    bench.compact()
    assert delete_old_segments(bench.log) == []
    bench.clock.now = NOW + DAY_MS // 2
    bench.append([(b"young", b"1")])
    bench.roll()
    bench.clock.now = NOW + DAY_MS + 1000
    gone = delete_old_segments(bench.log)

    assert {reason for _, reason in gone} == {Reason.TIME}
    assert bench.pairs() == [(b"young", b"1")]
    # The checkpoint may lie below the log now.
    bench.checkpoint = 3
    report = bench.compact()
    assert (report.first_dirty_offset, report.cleaned_up_to) == (bench.log.log_start_offset, 41)
    assert bench.pairs() == [(b"young", b"1")]
    check_reopened(bench)


def test_readers_and_writers_never_see_a_compaction(tmp_path: Path) -> None:
    """Each pass over the log finds records in order, unchanged, and of every key the value that it must find."""
    bench = Bench(tmp_path, segment_bytes=2000, file_delete_delay_ms=0)
    for number in range(30):
        bench.append([(b"stable-%d" % number, b"1")])
    is_done = threading.Event()
    problems: list[BaseException] = []
    rounds = 0

    def await_rounds(count: int) -> None:
        until(lambda: rounds >= count or is_done.is_set(), "the log was compacted")

    def write() -> None:
        for number in range(1500):
            if number in (700, 1400):
                # A busy machine may append all before the compaction comes to it.
                await_rounds(number // 700)
            bench.append([(b"key-%d" % (number % 10), b"%d" % number)], Codec(number % len(Codec)))
        is_done.set()

    def read() -> None:
        last_pass = False
        while not last_pass:
            last_pass = is_done.is_set()
            seen = _pass_over(bench)
            assert [record.offset for record in seen] == sorted({record.offset for record in seen})
            assert all(bench.appended.get(record.offset, record) == record for record in seen)
            assert {b"stable-%d" % number for number in range(30)} <= {record.key for record in seen}
        assert {record.key: record.value for record in seen if record.key in (b"key-3", b"key-9")} == {
            b"key-3": b"1493",
            b"key-9": b"1499",
        }

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)
            is_done.set()

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    while not is_done.is_set():
        rounds += bench.compact().segments_before > 0
        remove_doomed(bench.log)
    for thread in threads:
        thread.join()

    assert problems == []
    assert rounds >= 2
    check_nothing_is_lost(bench.log, bench.appended)


def _pass_over(bench: Bench) -> list[Record]:
    """Read as a consumer does: from where the last batch ended."""
    seen: list[Record] = []
    offset, end = 0, bench.log.log_end_offset
    while offset < end and (place := bench.log.read(offset, 700)) is not None:
        for batch in batches(place.read(), strict=True):
            seen += (record for record in batch.records() if record.offset >= offset)
            offset = batch.next_offset
    return seen
