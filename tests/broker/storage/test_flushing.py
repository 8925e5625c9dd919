"""A flush moves the recovery point over what is on disk, and over nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.storage.logs import NOW, append, fill, make_batch, make_log
from tests.kit.clock import FakeClock

from ottla.broker.storage.errors import FlushError
from ottla.broker.storage.open_files import sync_path
from ottla.broker.storage.recovery.recovery import close_log

SIZE = len(make_batch())
PER_SEGMENT = 1000 // SIZE


class Synced:
    """Remembers what was forced to disk, and may do something meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(os, "fdatasync", self._sync)
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, fd: int) -> None:
        self.names.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()

    def take(self) -> list[str]:
        taken, self.names = self.names, []
        return taken


def test_the_recovery_point_moves_to_the_end(tmp_path: Path) -> None:
    """And the time of the flush is noted."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock)
    fill(log, 5)
    clock.now += 7

    assert (log.recovery_point, log.flush(), log.recovery_point, log.last_flush_ms) == (0, 5, 5, NOW + 7)


def test_closed_segments_are_flushed_with_their_indexes_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: the next flush only touches what was written since, and a third one nothing."""
    synced = Synced(monkeypatch)
    log = make_log(tmp_path / "log")
    fill(log, PER_SEGMENT + 1)
    synced.take()
    log.flush()
    first, second = f"{0:020d}", f"{PER_SEGMENT:020d}"

    assert sorted(synced.take()) == sorted(
        [f"{first}.log", f"{first}.index", f"{first}.timeindex", f"{second}.log", "log"]
    )
    fill(log, 1)
    log.flush()
    assert synced.take() == [f"{second}.log"]
    log.flush()
    assert synced.take() == []


def test_a_segment_that_was_flushed_before_it_was_rolled_is_flushed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was trimmed since, and its indexes written: a start would believe them."""
    log = make_log(tmp_path / "log")
    fill(log, 5)
    log.flush()
    log.roll()
    synced = Synced(monkeypatch)
    log.flush()

    assert {f"{0:020d}.log", f"{0:020d}.timeindex"} <= set(synced.take())
    assert log.recovery_point == 5


def test_what_is_rolled_during_a_flush_is_flushed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the indexes that it got meanwhile."""
    log = make_log(tmp_path / "log")
    fill(log, 5)
    synced = Synced(monkeypatch)
    synced.meanwhile = log.roll
    log.flush()
    synced.take()
    log.flush()

    assert {f"{0:020d}.log", f"{0:020d}.index"} <= set(synced.take())


def test_what_is_appended_during_a_flush_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have come too late."""
    log = make_log(tmp_path / "log")
    fill(log, 5)
    synced = Synced(monkeypatch)
    synced.meanwhile = lambda: fill(log, 3)

    assert (log.flush(), log.recovery_point) == (5, 5)
    assert (log.flush(), log.recovery_point) == (8, 8)


def test_what_comes_after_a_cut_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same offsets, and other records."""
    log = make_log(tmp_path / "log")
    fill(log, 5)
    synced = Synced(monkeypatch)

    def replace() -> None:
        log.truncate_to(2)
        fill(log, 5)

    synced.meanwhile = replace
    log.flush()

    assert log.recovery_point == 0
    assert (log.flush(), log.recovery_point) == (7, 7)


def test_a_disk_that_does_not_take_it_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery point stays."""
    log = make_log(tmp_path)
    fill(log, 5)

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(FlushError, match="Input/output"):
            log.flush()
    assert log.recovery_point == 0


def test_without_fdatasync_there_is_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "fdatasync")
    log = make_log(tmp_path)
    fill(log, 5)

    assert log.flush() == 5


def test_a_segment_that_is_deleted_meanwhile_is_no_failure(tmp_path: Path) -> None:
    """Its indexes need not be on disk any more."""
    sync_path(tmp_path / "gone.index")


@pytest.mark.parametrize(
    ("options", "count", "elapsed_ms", "is_due"),
    [
        ({"flush_messages": 3}, 2, 0, False),
        ({"flush_messages": 3}, 3, 0, True),
        ({"flush_ms": 1000}, 1, 999, False),
        ({"flush_ms": 1000}, 1, 1000, True),
        ({"flush_ms": 1000}, 0, 5000, False),
        ({}, PER_SEGMENT, 0, False),
        ({}, PER_SEGMENT + 1, 0, True),
    ],
)
def test_a_flush_is_due_by_count_by_time_and_after_a_roll(
    tmp_path: Path, options: dict[str, int], count: int, elapsed_ms: int, is_due: bool
) -> None:
    """And never without anything to flush."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, None, recovery_point=0, was_clean=False, **dict[str, object](options))  # type: ignore[arg-type]
    fill(log, count)
    clock.now += elapsed_ms

    assert log.is_flush_due(clock()) is is_due


def test_closing_forces_everything_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The indexes of the last segment too: a clean start believes them."""
    log = make_log(tmp_path / "log")
    append(log, make_batch())
    log.flush()
    synced = Synced(monkeypatch)
    close_log(log)

    assert {f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"} <= set(synced.take())
