"""Old segments go, by age, size and log start; none because an index is wrong, and also on a full disk."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.storage.logs import (
    NOW,
    append,
    fill,
    make_batch,
    make_log,
    names,
    offsets,
    path_of,
    topic_config,
)
from tests.kit.clock import FakeClock

from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.retention import Candidate, Reason, delete_old_segments, expired, remove_doomed
from ottla.broker.storage.recovery.recovery import close_log
from ottla.broker.storage.segment import Segment

SIZE = len(make_batch())
PER_SEGMENT = 1000 // SIZE
DAY_MS = 86_400_000


def reasons(log: Log) -> list[Reason]:
    return [reason for _, reason in delete_old_segments(log)]


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# The decision


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    retention_bytes=st.integers(-1, 300),
    retention_ms=st.integers(-1, 50),
    log_start=st.integers(0, 60),
    high_watermark=st.integers(0, 60),
    policy=st.sampled_from(["delete", "compact", "compact,delete"]),
    ages=st.lists(st.integers(-10, 60), min_size=6, max_size=6),
)
def test_what_goes_is_a_run_of_segments_that_each_have_a_reason(
    sizes: list[int],
    retention_bytes: int,
    retention_ms: int,
    log_start: int,
    high_watermark: int,
    policy: str,
    ages: list[int],
) -> None:
    """And what stays has none, or stands behind one that stays."""
    config = topic_config(retention_bytes=retention_bytes, retention_ms=retention_ms, cleanup_policy=policy)
    candidates = [
        Candidate(10 * (number + 1), size, NOW - age, number + 1 == len(sizes))
        for number, (size, age) in enumerate(zip(sizes, ages, strict=False))
    ]
    gone = expired(candidates, config, sum(sizes), log_start, high_watermark, NOW)
    left = sum(sizes)
    for candidate, age, reason in zip(candidates, ages, [*gone, *[None] * len(sizes)], strict=False):
        may_go = candidate.next_offset <= high_watermark
        by_start = candidate.next_offset <= log_start and not candidate.is_active
        by_size = "delete" in policy and retention_bytes >= 0 and left - retention_bytes >= candidate.size
        by_time = "delete" in policy and 0 <= retention_ms < age
        assert (reason is not None) == (may_go and (by_start or by_size or by_time))
        if reason is None:
            break
        left -= candidate.size


def test_an_empty_active_segment_stays() -> None:
    """There is nothing to delete in it."""
    config = topic_config(retention_ms=0)

    assert expired([Candidate(0, 0, 0, True)], config, 0, 0, 0, NOW) == []


# The deletion


def test_segments_below_the_log_start_go(tmp_path: Path) -> None:
    """Also of a topic that is only compacted."""
    log = make_log(tmp_path, cleanup_policy="compact")
    fill(log, 30)
    log.advance_log_start(2 * PER_SEGMENT + 1)

    assert reasons(log) == [Reason.LOG_START] * 2
    assert names(tmp_path, ".log") == [2 * PER_SEGMENT]
    assert log.log_start_offset == 2 * PER_SEGMENT + 1


def test_old_segments_go_after_their_time(tmp_path: Path) -> None:
    """The newest record of a segment decides, and all may go: then the active one is rolled."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=1000)
    fill(log, 30)
    clock.now = NOW + 1000 + PER_SEGMENT - 1
    assert reasons(log) == []
    clock.now += 1
    assert reasons(log) == [Reason.TIME]
    assert offsets(log) == list(range(PER_SEGMENT, 30))
    clock.now += DAY_MS
    assert len(reasons(log)) == 2
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (30, 30, [])
    assert reasons(log) == []
    fill(log, 1)
    assert offsets(log) == [30]


def test_a_log_too_large_loses_its_oldest_segments(tmp_path: Path) -> None:
    """As long as what is left is large enough."""
    log = make_log(tmp_path, retention_bytes=1000)
    fill(log, 4 * PER_SEGMENT)

    assert reasons(log) == [Reason.SIZE] * 2
    assert log.size == 2 * PER_SEGMENT * SIZE


def test_records_that_are_not_replicated_stay(tmp_path: Path) -> None:
    """Followers still want them."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=1000)
    fill(log, 30)
    log.advance_high_watermark(PER_SEGMENT)
    clock.now += DAY_MS

    assert reasons(log) == [Reason.TIME]


def test_files_are_renamed_first_and_removed_later(tmp_path: Path) -> None:
    """Whoever has a slice of them reads on, before and after."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_bytes=1000, file_delete_delay_ms=60_000)
    fill(log, 30)
    piece = log.read(0, 10_000)
    assert piece is not None
    data = piece.read()
    delete_old_segments(log)

    assert names(tmp_path, ".log.deleted") == names(tmp_path, ".index.deleted") == [0]
    assert (remove_doomed(log), piece.read()) == (0, data)
    clock.now += 60_000
    assert (remove_doomed(log), piece.read(), names(tmp_path, ".log.deleted")) == (3, data, [])


def test_snapshots_and_epochs_of_what_is_gone_go_too(tmp_path: Path) -> None:
    """The epoch of the first record that is left begins with it."""
    log = make_log(tmp_path)
    for number in range(30):
        append(log, make_batch(), number // 10)
    log.advance_log_start(2 * PER_SEGMENT)
    delete_old_segments(log)

    assert names(tmp_path, ".snapshot") == [2 * PER_SEGMENT]
    assert log.leader_epochs.entries == [(2, 2 * PER_SEGMENT)]


def test_without_timestamps_the_age_of_the_file_counts(tmp_path: Path) -> None:
    """When it was last written."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=DAY_MS)
    append(log, make_batch(timestamps=[-1]))
    log.roll()
    os.utime(path_of(tmp_path, 0), ns=(0, (NOW - DAY_MS) * 1_000_000))
    assert reasons(log) == []
    clock.now += 1
    assert reasons(log) == [Reason.TIME]


# Wrong indexes


def test_a_time_index_that_lost_its_end_deletes_nothing(tmp_path: Path) -> None:
    """The largest timestamp it still knows is right, and long ago; the batches say that there is a later one."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock)
    for time in (NOW, NOW + DAY_MS, NOW + 1, NOW + 2, NOW + 3, NOW + 4):
        append(log, make_batch(timestamps=[time]))
    log.roll()
    close_log(log)
    index = path_of(tmp_path, 0, ".timeindex")
    index.write_bytes(struct.pack(">qi", NOW, 0))
    # The last batches must not say more than the index, or it would be noticed without reading the others.
    path_of(tmp_path, 0, ".index").write_bytes(struct.pack(">ii", 5, 5 * SIZE))
    log = make_log(tmp_path, clock, was_clean=True, recovery_point=6, retention_ms=DAY_MS // 2)
    clock.now += DAY_MS
    path = path_of(tmp_path, 0)
    path.write_bytes(path.read_bytes())

    assert reasons(log) == []
    assert len(offsets(log)) == 6


def test_a_damaged_segment_goes_with_its_time(tmp_path: Path) -> None:
    """It must not fill the disk for ever because it cannot be read."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=DAY_MS)
    fill(log, PER_SEGMENT + 1)
    close_log(log)
    path = path_of(tmp_path, 0)
    path.write_bytes(path.read_bytes()[: 3 * SIZE] + bytes(5 * SIZE))
    os.utime(path, ns=(0, NOW * 1_000_000))
    log = make_log(tmp_path, clock, was_clean=True, recovery_point=PER_SEGMENT + 1, retention_ms=DAY_MS)
    clock.now += DAY_MS
    assert reasons(log) == []
    clock.now += DAY_MS
    assert reasons(log)[0] is Reason.TIME


def test_the_active_segment_is_confirmed_too(tmp_path: Path) -> None:
    """Its index comes from the last run."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock)
    for time in (NOW, NOW + DAY_MS, NOW, NOW, NOW):
        append(log, make_batch(timestamps=[time]))
    close_log(log)
    path_of(tmp_path, 0, ".timeindex").write_bytes(struct.pack(">qi", NOW, 0))
    log = make_log(tmp_path, clock, was_clean=True, recovery_point=5, retention_ms=DAY_MS // 2)
    clock.now += DAY_MS

    assert reasons(log) == []


# Full disks


def test_a_full_disk_does_not_hinder_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old ones go; only rolling the active one needs room, and it goes the next time."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=1000)
    fill(log, 30)
    clock.now += DAY_MS
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_room)
        patched.setattr(os, "posix_fallocate", no_room)
        patched.setattr(Segment, "create", no_room)
        patched.setattr(log.leader_epochs.__class__, "truncate_from_start", no_room)
        assert len(reasons(log)) == 2

    assert (names(tmp_path, ".log"), offsets(log)) == ([2 * PER_SEGMENT], list(range(2 * PER_SEGMENT, 30)))
    assert len(reasons(log)) == 1


def test_a_directory_that_takes_no_longer_names_loses_the_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a rename may need room."""
    log = make_log(tmp_path, retention_bytes=1000)
    fill(log, 30)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", no_room)
        assert len(reasons(log)) == 1

    assert names(tmp_path, ".log") == [PER_SEGMENT, 2 * PER_SEGMENT]
    assert (names(tmp_path, ".log.deleted"), names(tmp_path, ".index")) == ([], [PER_SEGMENT, 2 * PER_SEGMENT])
