"""A log opens after any stop: at a batch boundary, with nothing that was flushed missing, or it says what is wrong."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from tests.broker.storage.logs import (
    LEADER_EPOCH,
    append,
    append_marker,
    fill,
    make_batch,
    make_log,
    make_marker,
    names,
    offsets,
    path_of,
    read_all,
)

from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.log import Log
from ottla.broker.storage.open_files import OpenFile, OpenFiles
from ottla.broker.storage.recovery.recovery import close_log
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import KafkaError

SIZE = len(make_batch())
PER_SEGMENT = 1000 // SIZE


def stopped(directory: Path, count: int = 30) -> Log:
    """A log of a few segments after a clean stop."""
    log = make_log(directory)
    fill(log, count)
    close_log(log)
    return log


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_directory_without_files_is_an_empty_log(tmp_path: Path) -> None:
    """It begins where the checkpoint says."""
    log = make_log(tmp_path / "orders-0", log_start_offset=7)

    assert (log.log_start_offset, log.log_end_offset, names(log.directory, ".log")) == (7, 7, [7])


def test_after_a_clean_stop_the_files_have_their_sizes_and_only_the_tail_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No segment is scanned, and none of the closed ones opened."""
    stopped(tmp_path)
    assert all(path.stat().st_size == PER_SEGMENT * SIZE for path in sorted(tmp_path.glob("*.log"))[:-1])
    opened: list[Path] = []
    open_file = OpenFile.__init__

    def note(file: OpenFile, path: Path, flags: int = os.O_RDONLY) -> None:
        opened.append(path)
        open_file(file, path, flags)

    monkeypatch.setattr(OpenFile, "__init__", note)
    log = make_log(tmp_path, was_clean=True, recovery_point=30)

    assert (log.log_end_offset, log.recovery_point) == (30, 30)
    assert set(opened) <= {log.active.path, path_of(tmp_path, 0)}
    assert offsets(log) == list(range(30))


def test_producers_are_known_after_a_clean_stop(tmp_path: Path) -> None:
    """From the snapshot at the end of the log."""
    log = make_log(tmp_path)
    data = make_batch(producer_id=7)
    append(log, data)
    close_log(log)

    assert append(make_log(tmp_path, was_clean=True, recovery_point=1), data).is_duplicate


def test_producers_are_known_without_their_snapshots(tmp_path: Path) -> None:
    """From the batches."""
    log = make_log(tmp_path)
    data = make_batch(producer_id=7)
    append(log, data)
    fill(log, 20)
    close_log(log)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()

    assert append(make_log(tmp_path, was_clean=True, recovery_point=21), data).is_duplicate


def test_a_stop_that_was_not_clean_after_all_is_recovered_from(tmp_path: Path) -> None:
    """Somebody appended zeros to the file."""
    log = stopped(tmp_path)
    with log.active.path.open("ab") as file:
        file.write(bytes(500))
    log = make_log(tmp_path, was_clean=True, recovery_point=30)

    assert (log.log_end_offset, log.active.path.stat().st_size % SIZE) == (30, 0)


@pytest.mark.parametrize("rows", [None, "0\n", "1\n4 0\n", "1\n2 0\n", "2\n1 0\n3 5\n", "x"])
def test_leader_epochs_that_the_batches_contradict_are_made_anew(tmp_path: Path, rows: str | None) -> None:
    """Missing, empty, or with a digit that changed."""
    stopped(tmp_path)
    path = tmp_path / "leader-epoch-checkpoint"
    path.unlink() if rows is None else path.write_text("0\n" + rows)
    log = make_log(tmp_path, was_clean=True, recovery_point=30)

    assert log.leader_epochs.entries == [(LEADER_EPOCH, 0)]
    assert offsets(log) == list(range(30))


def test_one_batch_against_the_leader_epochs_is_for_somebody_to_decide(tmp_path: Path) -> None:
    """It was flushed, and either may be wrong."""
    stopped(tmp_path)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n9 29\n")
    with pytest.raises(StorageError, match="have different leader epochs"):
        make_log(tmp_path, was_clean=True, recovery_point=30)
    (tmp_path / "leader-epoch-checkpoint").unlink()

    assert offsets(make_log(tmp_path, was_clean=True, recovery_point=30)) == list(range(30))


def test_batches_that_came_back_after_a_cut_are_dropped(tmp_path: Path) -> None:
    """A power loss undid the cut of the file, but not that of the leader epochs, which are durable at once."""
    log = make_log(tmp_path)
    for epoch in (1, 1, 2, 2, 2):
        append(log, make_batch(), epoch)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n3 2\n")
    log = make_log(tmp_path, recovery_point=2)

    assert (log.log_end_offset, log.leader_epochs.entries) == (2, [(1, 0)])


def test_damage_below_the_recovery_point_is_an_error(tmp_path: Path) -> None:
    """Unless nothing comes behind it: a disk may lie about the last thing that was forced to it."""
    log = stopped(tmp_path)
    last = log.active
    data = last.path.read_bytes()
    patch(last.path, 80, b"!")
    with pytest.raises(StorageError, match="damaged at 22, position 0"):
        make_log(tmp_path, recovery_point=30)
    assert last.path.stat().st_size == len(data)
    last.path.write_bytes(data[:-1])
    assert offsets(make_log(tmp_path, recovery_point=30)) == list(range(29))


def test_several_leader_epochs_are_believed_where_the_batches_bear_them_out(tmp_path: Path) -> None:
    """No scan, and a wrong beginning of any of them is noticed."""
    log = make_log(tmp_path)
    for epoch in (1, 2, 5):
        for _ in range(12):
            append(log, make_batch(2), epoch)
    close_log(log)
    path = tmp_path / "leader-epoch-checkpoint"
    right = path.read_text()
    for wrong in (right, right.replace("2 24", "2 26"), right.replace("2 24", "2 22"), right.replace("5 48", "6 48")):
        path.write_text(wrong)
        log = make_log(tmp_path, was_clean=True, recovery_point=72)
        assert log.leader_epochs.entries == [(1, 0), (2, 24), (5, 48)]
        assert path.read_text() == right
        close_log(log)


# Unclean stops


def test_zeros_and_torn_batches_at_the_end_are_cut(tmp_path: Path) -> None:
    """A log that nobody closed ends in zeros; a write that was interrupted, in half a batch."""
    log = make_log(tmp_path)
    fill(log, 5)
    assert log.active.path.stat().st_size > 5 * SIZE
    patch(log.active.path, 5 * SIZE, make_batch(base_offset=5)[:70])
    log = make_log(tmp_path)

    assert (offsets(log), log.active.path.stat().st_size, log.recovery_point) == ([0, 1, 2, 3, 4], 5 * SIZE, 0)


def test_a_log_cut_in_the_middle_loses_what_comes_behind(tmp_path: Path) -> None:
    """A prefix, never a hole."""
    log = stopped(tmp_path)
    second = log.segments[1]
    patch(second.path, 2 * SIZE + 80, b"!")
    log = make_log(tmp_path)

    assert log.log_end_offset == second.base_offset + 2
    assert names(tmp_path, ".log") == [0, second.base_offset]
    assert names(tmp_path, ".index") == [0, second.base_offset]


def test_what_was_flushed_is_not_scanned(tmp_path: Path) -> None:
    """Segments below the recovery point are believed, and damage in them is found when it is read."""
    log = make_log(tmp_path)
    fill(log, 30)
    log.flush()
    patch(log.segments[0].path, SIZE, bytes(30))
    log = make_log(tmp_path, recovery_point=30)

    assert log.log_end_offset == 30
    assert len(log.segments) == 3
    with pytest.raises(KafkaError, match="no batch at position"):
        log.read(1, 100)


def test_a_segment_that_ends_at_the_recovery_point_is_scanned(tmp_path: Path) -> None:
    """It may have been flushed before it was rolled, trimmed and indexed."""
    log = make_log(tmp_path)
    fill(log, 5)
    log.flush()
    log.roll()
    first = log.segments[0]
    with first.path.open("ab") as file:
        file.write(bytes(1000))
    first.time_index.path.write_bytes(b"")
    log = make_log(tmp_path, recovery_point=5)

    assert (log.segments[0].size, log.segments[0].largest_timestamp[1]) == (5 * SIZE, 4)


def test_aborted_transactions_are_known_after_a_crash(tmp_path: Path) -> None:
    """Their index is not flushed: it may have lost entries, or have some of batches that are lost."""
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=7, transactional=True))
    append_marker(log, make_marker(ControlType.ABORT, 7))
    append(log, make_batch(producer_id=8, transactional=True))
    end = log.active.size
    append_marker(log, make_marker(ControlType.ABORT, 8))
    index = log.active.aborted_transactions.path
    os.truncate(log.active.path, end)
    log = make_log(tmp_path)
    assert (log.aborted_transactions(0, 9), log.last_stable_offset) == ([(7, 0)], 2)

    index.unlink()
    log = make_log(tmp_path)
    assert (log.aborted_transactions(0, 9), log.last_stable_offset) == ([(7, 0)], 2)


def test_snapshots_of_a_lost_history_are_not_used(tmp_path: Path) -> None:
    """One that was written when the log was rolled, before a crash took the segments on both sides of it."""
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=7, sequence=0))
    fill(log, 2 * PER_SEGMENT)
    append(log, make_batch(producer_id=7, sequence=1))
    log.roll()
    os.truncate(path_of(tmp_path, PER_SEGMENT), 0)
    log = make_log(tmp_path)

    assert log.log_end_offset == PER_SEGMENT
    append(log, make_batch(producer_id=7, sequence=1))
    assert log.log_end_offset == PER_SEGMENT + 1


def test_a_log_that_ends_before_its_start_begins_anew(tmp_path: Path) -> None:
    """The records were deleted, and the rest was lost."""
    stopped(tmp_path)
    log = make_log(tmp_path, log_start_offset=100)

    assert (log.log_start_offset, log.log_end_offset, names(tmp_path, ".log")) == (100, 100, [100])
    assert log.leader_epochs.entries == []


def test_leftovers_of_interrupted_operations_are_removed(tmp_path: Path) -> None:
    """Deletions, cleanings and writes that a crash interrupted, and indexes without a log at either end."""
    log = make_log(tmp_path)
    fill(log, 30)
    log.advance_log_start(PER_SEGMENT)
    close_log(log)
    for name in ("1.log.deleted", "1.index.cleaned", "x.snapshot.tmp"):
        (tmp_path / name).touch()
    path_of(tmp_path, 0).unlink()
    path_of(tmp_path, 99, ".index").touch()
    log = make_log(tmp_path, log_start_offset=PER_SEGMENT, was_clean=True, recovery_point=30)

    assert offsets(log) == list(range(PER_SEGMENT, 30))
    assert {path.suffix for path in tmp_path.iterdir()} == {".log", ".index", ".timeindex", ".snapshot", ""}
    assert names(tmp_path, ".index") == names(tmp_path, ".log")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """A note, or a copy that somebody made."""
    stopped(tmp_path)
    strange = ["note.log", "7.log", "00000000000000000000 copy.log"]
    for name in strange:
        (tmp_path / name).write_text("!")
    log = make_log(tmp_path)

    assert offsets(log) == list(range(30))
    assert all((tmp_path / name).exists() for name in strange)


# What no crash explains


def test_a_missing_segment_is_an_error_and_not_a_hole(tmp_path: Path) -> None:
    """Its index is still there."""
    log = stopped(tmp_path)
    log.segments[1].path.unlink()
    for was_clean in (True, False):
        with pytest.raises(StorageError, match="missing"):
            make_log(tmp_path, was_clean=was_clean)


def test_a_segment_that_is_missing_with_its_indexes_is_an_error(tmp_path: Path) -> None:
    """When it is read, or scanned; the snapshot of its beginning tells of it."""
    log = stopped(tmp_path)
    log.segments[1].unlink()
    with pytest.raises(KafkaError, match="missing"):
        make_log(tmp_path, was_clean=True, recovery_point=30).read(PER_SEGMENT, 100)
    path_of(tmp_path, 2 * PER_SEGMENT, ".txnindex").touch()
    (tmp_path / "leader-epoch-checkpoint").unlink()
    with pytest.raises(StorageError, match="missing"):
        make_log(tmp_path, recovery_point=30)


def test_a_segment_that_lost_its_tail_ends_an_unflushed_log(tmp_path: Path) -> None:
    """Even where the cut is at a batch boundary, and looks like a hole."""
    log = make_log(tmp_path)
    fill(log, 30)
    log.segments[1].close_files()
    os.truncate(log.segments[1].path, 3 * SIZE)
    for path in tmp_path.glob("*index"):
        path.write_bytes(b"")
    log = make_log(tmp_path)

    assert offsets(log) == list(range(PER_SEGMENT + 3))


def test_holes_between_the_segments_of_a_compacted_topic_are_none_of_this(tmp_path: Path) -> None:
    """Compaction may empty the end of a segment."""
    log = make_log(tmp_path, cleanup_policy="compact")
    fill(log, 30)
    close_log(log)
    os.truncate(log.segments[1].path, 3 * SIZE)
    for path in tmp_path.glob("*index"):
        path.write_bytes(b"")
    for was_clean in (True, False):
        log = make_log(tmp_path, cleanup_policy="compact", was_clean=was_clean, recovery_point=30)
        assert offsets(log) == [*range(PER_SEGMENT + 3), *range(2 * PER_SEGMENT, 30)]


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("to", [5, 13, 18, 2**63 - 1, 2**63, 10**20 - 1])
def test_a_renamed_segment_is_an_error_or_harmless(tmp_path: Path, to: int, was_clean: bool) -> None:
    """At once or when it is read, and nothing is deleted."""
    log = stopped(tmp_path)
    source = log.segments[1]
    data = source.path.read_bytes()
    for path in source.paths:
        if path.exists():
            path.rename(tmp_path / f"{to:020d}{path.suffix}")
    with suppress(StorageError, KafkaError):
        assert offsets(make_log(tmp_path, was_clean=was_clean)) == list(range(30))

    assert data in [path.read_bytes() for path in tmp_path.glob("*.log")]


@pytest.mark.parametrize("was_clean", [True, False])
def test_swapped_segments_are_never_believed(tmp_path: Path, was_clean: bool) -> None:
    """Their names and their batches contradict each other."""
    log = stopped(tmp_path)
    for first, second in zip(log.segments[0].paths[:3], log.segments[1].paths[:3], strict=True):
        first.rename(tmp_path / "other")
        second.rename(first)
        (tmp_path / "other").rename(second)
    with pytest.raises((StorageError, KafkaError)):
        read_all(make_log(tmp_path, was_clean=was_clean))


def test_a_copied_segment_is_an_error(tmp_path: Path) -> None:
    """Two files with the same offsets; which is the right one is not ours to guess."""
    log = stopped(tmp_path)
    shutil.copy(log.segments[0].path, path_of(tmp_path, 5))
    with pytest.raises(StorageError, match="into 00000000000000000005"):
        make_log(tmp_path)


def test_logs_open_side_by_side_do_not_close_each_others_files(tmp_path: Path) -> None:
    """A log that is being opened is busy, and keeps its files whatever the bound."""
    files = OpenFiles(1)
    first = make_log(tmp_path / "0", files=files)
    fill(first, 30)
    first = make_log(tmp_path / "0", files=files)
    second = make_log(tmp_path / "1", files=files)
    fill(second, 3)

    assert (len(read_all(first)), len(read_all(second))) == (30, 3)
