"""A cut log ends at a batch boundary, and everything that tells of what was cut is gone with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.storage.logs import (
    NOW,
    append,
    append_marker,
    fill,
    make_batch,
    make_log,
    make_marker,
    names,
    offsets,
    read_all,
)

from ottla.broker.storage.recovery.recovery import close_log
from ottla.protocol.control_records import ControlType

SIZE = len(make_batch())
PER_SEGMENT = 1000 // SIZE


@pytest.mark.parametrize("offset", [0, 1, PER_SEGMENT - 1, PER_SEGMENT, PER_SEGMENT + 1, 29])
def test_everything_from_an_offset_on_is_dropped(tmp_path: Path, offset: int) -> None:
    """Within a segment, and across several; appending goes on from there, and so does a start."""
    log = make_log(tmp_path)
    fill(log, 30)

    assert log.truncate_to(offset)
    assert (log.log_end_offset, offsets(log)) == (offset, list(range(offset)))
    assert (log.high_watermark, log.cuts) == (offset, 1)
    fill(log, 3)
    close_log(log)
    assert offsets(make_log(tmp_path, was_clean=True, recovery_point=offset + 3)) == list(range(offset + 3))


def test_a_batch_that_holds_the_offset_goes_as_a_whole(tmp_path: Path) -> None:
    """The follower fetches it again."""
    log = make_log(tmp_path)
    append(log, make_batch(5))
    append(log, make_batch(5))
    log.truncate_to(7)

    assert log.log_end_offset == 5


def test_cutting_behind_the_end_changes_nothing_but_epochs_without_records(tmp_path: Path) -> None:
    """One that this broker entered as leader, without appending, may be another's by now."""
    log = make_log(tmp_path)
    append(log, make_batch(), 1)
    log.leader_epochs.assign(2, 1)

    assert not log.truncate_to(1)
    assert (log.log_end_offset, log.leader_epochs.entries, log.cuts) == (1, [(1, 0)], 0)


def test_flushed_and_replicated_end_no_later_than_the_log(tmp_path: Path) -> None:
    """What is appended next was never flushed."""
    log = make_log(tmp_path)
    fill(log, 20)
    log.flush()
    log.truncate_to(15)

    assert (log.recovery_point, log.high_watermark) == (15, 15)


def test_leader_epochs_and_producers_go_back(tmp_path: Path) -> None:
    """To what they were at that offset."""
    log = make_log(tmp_path)
    for sequence in range(20):
        append(log, make_batch(producer_id=7, sequence=sequence), 1 + sequence // 10)
    log.truncate_to(10)

    assert log.leader_epochs.entries == [(1, 0)]
    assert max(names(tmp_path, ".snapshot"), default=0) <= 10
    appended = append(log, make_batch(producer_id=7, sequence=10), 5)
    assert (appended.first_offset, appended.is_duplicate) == (10, False)


def test_transactions_are_open_again_or_never_were(tmp_path: Path) -> None:
    """A marker that is cut ended nothing, and its entry in the index goes."""
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=7, transactional=True))
    append_marker(log, make_marker(ControlType.ABORT, 7))
    assert log.aborted_transactions(0, 2) == [(7, 0)]
    log.truncate_to(1)

    assert (log.aborted_transactions(0, 2), log.last_stable_offset) == ([], 0)
    append_marker(log, make_marker(ControlType.COMMIT, 7))
    assert (log.aborted_transactions(0, 2), log.last_stable_offset) == ([], 2)


def test_a_torn_transaction_index_does_not_hinder_a_cut(tmp_path: Path) -> None:
    """It is made anew from the markers that are left."""
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=7, transactional=True))
    append_marker(log, make_marker(ControlType.ABORT, 7))
    fill(log, 2)
    with log.active.aborted_transactions.path.open("ab") as file:
        file.write(b"torn")
    log.truncate_to(3)

    assert log.aborted_transactions(0, 3) == [(7, 0)]
    with log.active.aborted_transactions.path.open("ab") as file:
        file.write(b"torn")
    append(log, make_batch(producer_id=7, sequence=1, transactional=True))
    append_marker(log, make_marker(ControlType.ABORT, 7))
    assert log.aborted_transactions(0, 9) == [(7, 0), (7, 3)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_does_not_hinder_a_cut(tmp_path: Path, suffix: str) -> None:
    """It is rebuilt."""
    log = make_log(tmp_path)
    fill(log, 20)
    log.active.close_files()
    log.active.path.with_suffix(suffix).unlink()
    log.truncate_to(15)
    fill(log, 1)

    assert offsets(log) == list(range(16))
    assert log.active.largest_timestamp == (NOW + 15, 15)


def test_an_offset_below_the_log_start_empties_the_log(tmp_path: Path) -> None:
    """It begins anew there."""
    log = make_log(tmp_path)
    fill(log, 20)
    log.advance_log_start(10)
    log.truncate_to(5)

    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
    assert names(tmp_path, ".log") == [5]


def test_the_log_never_ends_before_it_starts(tmp_path: Path) -> None:
    """Where the log start lies within the batch that is cut."""
    log = make_log(tmp_path)
    append(log, make_batch(10))
    log.advance_log_start(5)
    log.truncate_to(7)

    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert append(log, make_batch()).first_offset == 5


def test_a_log_is_emptied_and_begins_elsewhere(tmp_path: Path) -> None:
    """Nothing of it is left, except for whoever still sends it."""
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=7))
    fill(log, 29)
    piece = log.read(0, 10_000)
    assert piece is not None
    data = piece.read()
    log.truncate_fully_and_start_at(100)

    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (100, 100, 100, 0)
    assert sorted(path.name[20:] for path in tmp_path.iterdir() if path.name[0] == "0") == [
        ".index",
        ".log",
        ".timeindex",
    ]
    assert (log.leader_epochs.entries, len(log.producers)) == ([], 0)
    assert piece.read() == data
    fill(log, 2)
    assert offsets(make_log(tmp_path, log_start_offset=100)) == [100, 101]


def test_a_log_may_begin_anew_where_it_began(tmp_path: Path) -> None:
    """The file has the same name, and is another one."""
    log = make_log(tmp_path)
    fill(log, 3)
    piece = log.read(0, 10_000)
    assert piece is not None
    data = piece.read()
    log.truncate_fully_and_start_at(0)
    append(log, make_batch(value=b"other"))

    assert (piece.read(), len(read_all(log))) == (data, 1)


def test_the_age_of_the_new_last_segment_counts_for_rolling(tmp_path: Path) -> None:
    """Not that of the one that was cut."""
    log = make_log(tmp_path, segment_ms=100, segment_jitter_ms=0)
    append(log, make_batch(timestamps=[NOW]))
    append(log, make_batch(timestamps=[NOW + 1000]))
    append(log, make_batch(timestamps=[NOW + 1050]))
    log.truncate_to(1)
    append(log, make_batch(timestamps=[NOW + 1050]))

    assert names(tmp_path, ".log") == [0, 1]
