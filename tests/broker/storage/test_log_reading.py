"""A log reads whole batches within bounds, and knows how far it is replicated."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.broker.storage.logs import (
    LEADER_EPOCH,
    NOW,
    append,
    append_marker,
    fill,
    make_batch,
    make_log,
    make_marker,
)

from ottla.broker.storage.recovery.recovery import close_log
from ottla.broker.storage.validation import validated
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import RecordBatch

SIZE = len(make_batch())


class Guard:
    """A log directory that refuses what it is told to."""

    def __init__(self, refusal: str | None = None, client_refusal: str | None = None) -> None:
        self.refusal = refusal
        self.client_refusal = client_refusal
        self.copy_refusal = self.coordinator_refusal = refusal
        self.errors: list[OSError] = []

    def failed(self, error: OSError) -> None:
        self.errors.append(error)


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# Reading


def test_reads_begin_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    """Clients skip what they did not ask for."""
    log = make_log(tmp_path)
    append(log, make_batch(5))
    append(log, make_batch(5))
    piece = log.read(7, 10_000)

    assert piece is not None
    assert RecordBatch(piece.read()).base_offset == 5


@pytest.mark.parametrize(("max_bytes", "count"), [(1, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (10**6, 8)])
def test_reads_give_whole_batches_up_to_a_size(tmp_path: Path, max_bytes: int, count: int) -> None:
    """At least one, for progress, and no more than the segment has."""
    log = make_log(tmp_path, segment_bytes=10 * SIZE)
    fill(log, 12)
    piece = log.read(2, max_bytes)

    assert piece is not None
    assert len(piece) == count * SIZE
    assert (log.read(2, SIZE - 1, at_least_one=False) is None) == (SIZE - 1 < SIZE)


@pytest.mark.parametrize(("upper", "count"), [(3, None), (4, 1), (9, 6), (99, 7)])
def test_reads_stop_at_the_upper_offset(tmp_path: Path, upper: int, count: int | None) -> None:
    """What is not replicated is not shown."""
    log = make_log(tmp_path, segment_bytes=10 * SIZE)
    fill(log, 12)
    piece = log.read(3, 10**6, upper)

    assert (len(piece) // SIZE if piece is not None else None) == count


def test_a_batch_across_the_upper_offset_is_not_shown(tmp_path: Path) -> None:
    """Batches are indivisible."""
    log = make_log(tmp_path)
    append(log, make_batch(5))

    assert log.read(0, 10**6, 4) is None


@pytest.mark.parametrize("offset", [-1, 4, 13])
def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path, offset: int) -> None:
    """Below the log start, and above the end; the end itself is where the next record will be."""
    log = make_log(tmp_path)
    fill(log, 12)
    log.advance_log_start(5)
    with pytest.raises(KafkaError) as refused:
        log.read(offset, 100)

    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(12, 100) is None


def test_a_damaged_batch_is_a_storage_error(tmp_path: Path) -> None:
    """In words that name the file."""
    log = make_log(tmp_path)
    fill(log, 3)
    log.roll()
    log.segments[0].close_files()
    path = log.segments[0].path
    path.write_bytes(path.read_bytes()[:SIZE] + bytes(2 * SIZE))
    with pytest.raises(KafkaError, match=path.name) as refused:
        log.read(1, 100)

    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    """The guard hears what the system said."""
    log = make_log(tmp_path)
    log.guard = guard = Guard()
    fill(log, 3)
    log.roll()
    log.segments[0].close_files()
    log.segments[0].path.unlink()
    with pytest.raises(KafkaError, match="No such file"):
        log.read(0, 100)

    assert [error.errno for error in guard.errors] == [errno.ENOENT]


# State


def test_the_high_watermark_stays_within_the_log(tmp_path: Path) -> None:
    """Neither past the end, nor below the start."""
    log = make_log(tmp_path)
    fill(log, 5)
    log.advance_high_watermark(99)
    assert log.high_watermark == 5
    log.advance_log_start(2)
    log.advance_high_watermark(0)
    assert log.high_watermark == 2


def test_the_log_start_rises_up_to_the_high_watermark(tmp_path: Path) -> None:
    """What is not replicated cannot be deleted."""
    log = make_log(tmp_path)
    fill(log, 5)
    log.advance_high_watermark(3)

    assert [log.advance_log_start(offset) for offset in (2, 2, 1, 3)] == [True, False, False, True]
    with pytest.raises(KafkaError, match="high watermark"):
        log.advance_log_start(4)
    assert log.leader_epochs.entries == [(LEADER_EPOCH, 3)]


def test_a_full_disk_does_not_keep_the_log_start_from_rising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting records is how room is made."""
    log = make_log(tmp_path)
    fill(log, 5)
    monkeypatch.setattr(log.leader_epochs.__class__, "truncate_from_start", no_room)

    assert log.advance_log_start(3)
    assert log.log_start_offset == 3


def test_transactions_hold_the_last_stable_offset_back(tmp_path: Path) -> None:
    """And the aborted ones are found, in whatever segment the marker is."""
    log = make_log(tmp_path, segment_bytes=2 * SIZE)
    append(log, make_batch(producer_id=7, transactional=True))
    fill(log, 3)

    assert log.last_stable_offset == 0
    append_marker(log, make_marker(ControlType.ABORT, 7))
    assert log.last_stable_offset == log.log_end_offset == 5
    assert log.aborted_transactions(0, 1) == [(7, 0)]
    assert log.aborted_transactions(3, 5) == [(7, 0)]
    fill(log, 1)
    assert log.aborted_transactions(5, 6) == []


def test_a_log_says_what_it_is(tmp_path: Path) -> None:
    """For whoever looks at it in a debugger."""
    log = make_log(tmp_path)
    append(log, bytes(validated(make_batch(), log.rules, NOW).view))

    assert repr(log) == f"Log(orders-0, offsets=0..1, segments=1, size={SIZE})"
    assert "offsets=0..1" in repr(log.active)


def test_a_wrong_crc_in_what_was_found_on_disk_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    """Clients may not check CRCs: damage to a record must not reach them, and the log must say that it is damaged."""
    log = make_log(tmp_path)
    for _ in range(3):
        append(log, make_batch(value=b"v" * 50))
    close_log(log)
    path = tmp_path / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[-10] ^= 1
    path.write_bytes(damaged)

    log = make_log(tmp_path, recovery_point=3, was_clean=True)
    assert log.read(0, 1) is not None
    assert log.damage is None
    with pytest.raises(KafkaError) as caught:
        log.read(2, 1000)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.damage is not None


def test_what_was_checked_once_is_not_read_a_second_time(tmp_path: Path) -> None:
    """The check costs a read of the file; zero copy is for all later fetches."""
    log = make_log(tmp_path)
    append(log, make_batch(value=b"v" * 50))
    close_log(log)
    log = make_log(tmp_path, recovery_point=1, was_clean=True)
    first = log.read(0, 1000)
    path = tmp_path / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    second = log.read(0, 1000)
    assert first is not None
    assert second is not None
    assert len(first) == len(second)
