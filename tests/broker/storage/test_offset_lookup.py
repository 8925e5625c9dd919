"""Offsets are found by time as a search of all records would find them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.storage.logs import LEADER_EPOCH, NOW, append, descriptors, fill, make_batch, make_log, path_of

from ottla.broker.storage import offset_lookup
from ottla.broker.storage.maintenance.retention import delete_old_segments
from ottla.broker.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp
from ottla.broker.storage.recovery.recovery import close_log
from ottla.broker.storage.segment_file import READ_BYTES
from ottla.protocol.compression import Codec
from ottla.protocol.errors import KafkaError


def offset_at(found: offset_lookup.OffsetAtTime | None) -> int | None:
    return found.offset if found is not None else None


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    """Nothing is found in it."""
    log = make_log(tmp_path)

    assert (offset_for_timestamp(log, 0), offset_of_max_timestamp(log)) == (None, None)


def test_the_first_record_as_late_is_found(tmp_path: Path) -> None:
    """Across segments, with its timestamp and leader epoch."""
    log = make_log(tmp_path)
    fill(log, 30)

    assert [offset_at(offset_for_timestamp(log, NOW + delta)) for delta in range(-1, 31)] == [0, *range(30), None]
    assert offset_for_timestamp(log, NOW + 17) == (17, NOW + 17, LEADER_EPOCH)
    assert offset_of_max_timestamp(log) == (29, NOW + 29, LEADER_EPOCH)


@pytest.mark.parametrize("codec", Codec)
def test_records_are_found_within_batches(tmp_path: Path, codec: Codec) -> None:
    """Offset, not time, decides which is the first."""
    log = make_log(tmp_path)
    append(log, make_batch(timestamps=[NOW + 5, NOW + 1, NOW + 9, NOW + 9], codec=codec))

    assert [offset_at(offset_for_timestamp(log, NOW + delta)) for delta in (0, 2, 5, 6, 10)] == [0, 0, 0, 2, None]
    assert offset_at(offset_of_max_timestamp(log)) == 2


def test_records_below_the_log_start_are_not_found(tmp_path: Path) -> None:
    """Wherever in a batch it is."""
    log = make_log(tmp_path)
    append(log, make_batch(timestamps=[NOW + 9, NOW + 1]))
    append(log, make_batch(timestamps=[NOW + 3, NOW + 8]))
    for start, first, last in ((1, 1, 3), (2, 2, 3), (3, 3, 3)):
        log.advance_log_start(start)
        assert offset_at(offset_for_timestamp(log, NOW)) == first
        assert offset_at(offset_of_max_timestamp(log)) == last
    log.advance_log_start(4)
    assert (offset_for_timestamp(log, NOW), offset_of_max_timestamp(log)) == (None, None)


def test_records_without_a_time_are_passed_over(tmp_path: Path) -> None:
    """A log of nothing else has no largest timestamp."""
    log = make_log(tmp_path)
    append(log, make_batch(timestamps=[-1]))
    assert offset_of_max_timestamp(log) is None
    append(log, make_batch(timestamps=[NOW]))

    assert (offset_at(offset_for_timestamp(log, 0)), offset_at(offset_of_max_timestamp(log))) == (1, 1)


@pytest.mark.parametrize("at", range(0, 36, 5))
def test_a_wrong_time_index_is_not_believed(tmp_path: Path, at: int) -> None:
    """An entry that its batch does not bear out has the index rebuilt."""
    log = make_log(tmp_path, segment_bytes=100_000)
    fill(log, 30)
    close_log(log)
    path = path_of(tmp_path, 0, ".timeindex")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    log = make_log(tmp_path, was_clean=True, recovery_point=30, segment_bytes=100_000)

    assert [offset_at(offset_for_timestamp(log, NOW + delta)) for delta in range(30)] == list(range(30))


def test_batches_larger_than_the_buffer_are_read_whole(tmp_path: Path) -> None:
    """Each by itself."""
    log = make_log(tmp_path, segment_bytes=10 * READ_BYTES, max_message_bytes=2 * READ_BYTES)
    for number in range(5):
        append(log, make_batch(timestamps=[NOW + number], value=bytes(READ_BYTES + 1)))

    assert [offset_at(offset_for_timestamp(log, NOW + delta)) for delta in range(5)] == list(range(5))


def test_damage_is_an_error_and_not_a_wrong_answer(tmp_path: Path) -> None:
    """A batch whose CRC is wrong is not opened, and one that is cut does not end the search."""
    log = make_log(tmp_path)
    fill(log, 3)
    log.roll()
    log.segments[0].close_files()
    path = path_of(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    assert offset_at(offset_for_timestamp(log, NOW)) == 0
    with pytest.raises(KafkaError, match="CRC"):
        offset_for_timestamp(log, NOW + 2)
    with pytest.raises(KafkaError, match="CRC"):
        offset_of_max_timestamp(log)
    os.truncate(path, len(data) - 5)
    with pytest.raises(KafkaError, match="early"):
        offset_for_timestamp(log, NOW + 2)


def test_a_lookup_keeps_one_file_open(tmp_path: Path) -> None:
    """However many segments it looks at."""
    log = make_log(tmp_path, retention_bytes=2000)
    for number in range(100):
        append(log, make_batch(timestamps=[NOW + 1000 - number]))
    for segment in log.segments:
        segment.release()
    before = descriptors()
    found = offset_for_timestamp(log, NOW + 901)
    delete_old_segments(log)

    assert offset_at(found) == 0
    assert descriptors() <= before + len(log.segments) + 1
