"""Which log is compacted, from where to where, and how fast."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.storage.compaction.compacting import LIMITS, NOW, Bench, config_of, records_of
from tests.kit.clock import FakeClock

from ottla.broker.storage.compaction.cleanable import (
    Cleanable,
    ClosedSegment,
    cleanable,
    examine,
    filthiest,
    first_dirty_offset,
    groups,
    is_due,
    uncleanable_offset,
)
from ottla.broker.storage.compaction.cleaner_throttle import CleanerThrottle
from ottla.broker.storage.compaction.compaction import CompactionOutcome, CompactionReport, compact

LONG_MAX = 2**63 - 1


def segments_of(*sizes: int) -> list[ClosedSegment]:
    """Segments of ten offsets each, one second after another."""
    return [
        ClosedSegment(10 * number, 10 * number + 10, size, NOW + 1000 * number, NOW + 1000 * number + 999)
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 5), (4, 5), (5, 5), (7, 7), (20, 20), (21, 5)])
def test_a_checkpoint_outside_the_log_counts_for_nothing(checkpoint: int | None, expected: int) -> None:
    """It may be that of a log that was deleted, or cut."""
    assert first_dirty_offset(checkpoint, log_start_offset=5, log_end_offset=20) == expected


@pytest.mark.parametrize(
    ("stable_offset", "min_lag_ms", "now_ms", "expected"),
    [
        (100, 0, NOW, 30),
        (30, 0, NOW, 30),
        (29, 0, NOW, 20),
        (20, 0, NOW, 20),
        (0, 0, NOW, 0),
        (100, 1, NOW + 3000, 30),
        (100, 1001, NOW + 3000, 20),
        (100, 2001, NOW + 3000, 10),
        (100, 10_000, NOW + 3000, 0),
        (15, 2001, NOW + 3000, 10),
    ],
)
def test_a_segment_is_touched_only_when_all_of_it_may_be(
    stable_offset: int, min_lag_ms: int, now_ms: int, expected: int
) -> None:
    """Neither undecided nor young records, nor the segment that is written."""
    closed = segments_of(1, 1, 1)

    assert uncleanable_offset(closed, 30, stable_offset, min_lag_ms, now_ms) == expected


@pytest.mark.parametrize(
    ("first_dirty", "uncleanable", "clean_bytes", "dirty_bytes", "earliest"),
    [
        (0, 30, 0, 111, NOW),
        (10, 30, 1, 110, NOW + 1000),
        (15, 30, 1, 110, NOW + 1000),
        (20, 20, 11, 0, -1),
        (30, 10, 1, 0, -1),
        (0, 0, 0, 0, -1),
    ],
)
def test_bytes_are_clean_below_the_first_dirty_offset_and_dirty_above(
    first_dirty: int, uncleanable: int, clean_bytes: int, dirty_bytes: int, earliest: int
) -> None:
    """A segment that is dirty in part is read as a whole, and counts so."""
    state = cleanable(segments_of(1, 10, 100), first_dirty, uncleanable)

    assert (state.clean_bytes, state.dirty_bytes, state.earliest_timestamp) == (clean_bytes, dirty_bytes, earliest)


def test_a_log_is_due_for_its_dirt_or_for_a_record_that_has_waited() -> None:
    """The ratio must be passed, the lag too; and there must be something to do."""
    half = Cleanable(10, 30, clean_bytes=50, dirty_bytes=50, earliest_timestamp=NOW)
    clean = Cleanable(30, 30, clean_bytes=100, dirty_bytes=0)

    assert is_due(half, 0.49, LONG_MAX, NOW)
    assert not is_due(half, 0.5, LONG_MAX, NOW)
    assert is_due(half, 0.5, 1000, NOW + 1001)
    assert not is_due(half, 0.5, 1000, NOW + 1000)
    assert not is_due(half._replace(earliest_timestamp=-1), 0.5, 1000, NOW + 10**9)
    assert not is_due(clean, 0.0, 0, NOW)
    assert clean.dirty_ratio == Cleanable(0, 0, 0, 0).dirty_ratio == 0.0


def test_the_filthiest_log_comes_first() -> None:
    """By share, not by bytes."""
    logs = {"large": Cleanable(0, 9, 1000, 1001), "filthy": Cleanable(0, 9, 1, 9), "little": Cleanable(0, 9, 9, 1)}

    assert filthiest(logs) == "filthy"
    assert filthiest({}) is None


sizes = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 2**30)), max_size=30)


@given(sizes)
def test_groups_hold_all_segments_in_order_and_no_more_than_a_segment_may(sizes: list[tuple[int, int, int]]) -> None:
    """And two neighbours that fit together are together."""
    segments, base_offset = [], 0
    for size, _, span in sizes:
        segments.append(ClosedSegment(base_offset, base_offset + span, size))
        base_offset += span
    index_bytes = [index for _, index, _ in sizes]
    runs = groups(segments, index_bytes, segment_bytes=40, index_bytes_max=25)

    def fits(run: range) -> bool:
        chosen = segments[run.start : run.stop]
        return (
            sum(segment.size for segment in chosen) <= 40
            and sum(index_bytes[run.start : run.stop]) <= 25
            and chosen[-1].next_offset - 1 - chosen[0].base_offset <= 2**31 - 1
        )

    assert [number for run in runs for number in run] == list(range(len(segments)))
    assert all(fits(run) or len(run) == 1 for run in runs)
    assert not any(fits(range(run.start, run.stop + 1)) for run in runs if run.stop < len(segments))


def test_a_log_is_examined_by_its_own_options(tmp_path: Path) -> None:
    """Young segments, undecided ones and the active one are out; the oldest dirty record is known."""
    bench = Bench(tmp_path, segment_bytes=150, min_compaction_lag_ms=1000, max_compaction_lag_ms=5000)
    for _ in range(5):
        bench.append([(b"a", b"v" * 50)])
        bench.clock.now += 500
    state = examine(bench.log, checkpoint=1, now_ms=bench.clock.now)

    assert (state.first_dirty_offset, state.uncleanable_offset) == (1, 4)
    assert state.clean_bytes == bench.log.segments[0].size
    assert state.dirty_bytes == 3 * state.clean_bytes
    assert state.earliest_timestamp == NOW + 500
    bench.log.config = config_of()
    assert examine(bench.log, None, NOW) == Cleanable(0, 4, 0, 4 * state.clean_bytes)


def test_what_is_not_replicated_is_not_compacted(tmp_path: Path) -> None:
    """It may yet be cut."""
    bench = Bench(tmp_path, segment_bytes=150)
    for _ in range(5):
        bench.append([(b"a", b"v" * 50)])
    bench.log.advance_high_watermark(2)

    assert bench.compact().cleaned_up_to == 2
    assert [record.offset for record in records_of(bench.log)] == [1, 2, 3, 4]


def filled(tmp_path: Path) -> Bench:
    """A log of ten segments."""
    bench = Bench(tmp_path, segment_bytes=2000)
    for number in range(40):
        bench.append([(b"key-%d" % number, b"v" * 400)])
    bench.roll()
    return bench


def throttled(bench: Bench, bytes_per_second: float) -> tuple[CompactionReport, FakeClock[float]]:
    clock = FakeClock(100.0)
    throttle = CleanerThrottle(bytes_per_second, clock)
    return compact(bench.log, None, LIMITS, throttle=throttle, wait=clock.sleep), clock


def test_compaction_moves_no_more_bytes_in_a_second_than_it_may(tmp_path: Path) -> None:
    """Both passes and the writing count; a pause is short enough for a stop to be noticed."""
    bench = filled(tmp_path)
    report, clock = throttled(bench, 10_000)
    moved = report.bytes_mapped + report.bytes_read + report.bytes_written

    assert report.outcome is CompactionOutcome.COMPLETE
    assert clock.now - 100 == pytest.approx(moved / 10_000, rel=0.02)
    assert max(clock.slept) <= 0.1
    _, clock = throttled(bench, 1.7976931348623157e308)
    assert clock.slept == []


def test_idle_time_is_not_saved_up() -> None:
    """After an hour of rest the limit is what it was, and a limit of nothing is still a limit."""
    clock = FakeClock(100.0)
    throttle = CleanerThrottle(100, clock)
    clock.now += 3600

    assert throttle.pause_for(50) == 0.5
    assert throttle.pause_for(50) == 1.0
    throttle.bytes_per_second = 0
    assert throttle.pause_for(100) == 101.0


@pytest.mark.parametrize("asked", [0, 1, 15, 39, 40, 60, 79])
def test_a_stop_is_prompt_and_leaves_the_log_as_it_was(tmp_path: Path, asked: int) -> None:
    """It is asked for at every batch of both passes; what was exchanged before counts, and the checkpoint stays."""
    bench = filled(tmp_path)
    before = bench.pairs()
    answers = iter([False] * asked + [True])
    report = compact(bench.log, None, LIMITS, is_stopped=lambda: next(answers))

    assert (report.outcome, report.cleaned_up_to) == (CompactionOutcome.STOPPED, 0)
    assert list(answers) == []
    assert bench.pairs() == before
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_stop_during_a_pause_is_noticed(tmp_path: Path) -> None:
    """A slow cleaner does not sleep through it."""
    bench = filled(tmp_path)
    clock = FakeClock(100.0)
    throttle = CleanerThrottle(1, clock)
    report = compact(bench.log, None, LIMITS, throttle=throttle, wait=clock.sleep, is_stopped=lambda: clock.now > 105)

    assert report.outcome is CompactionOutcome.STOPPED
    assert clock.now < 105.2
