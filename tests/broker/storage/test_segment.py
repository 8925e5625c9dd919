"""A segment finds batches with sound, wrong and missing indexes alike, and is cut and closed where it should be."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pytest
from tests.broker.storage.logs import NOW, make_batch

from ottla.broker.storage.open_files import FileSlice, OpenFile, OpenFiles
from ottla.broker.storage.segment import Limits, Segment
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.records import NO_TIMESTAMP, RecordBatch

BASE = 100
LIMITS = Limits(segment_bytes=10_000, index_interval_bytes=150, index_bytes_max=1000)
SIZE = len(make_batch())


def make_segment(directory: Path, count: int = 0, limits: Limits = LIMITS) -> Segment:
    """A segment with batches of one record each, whose timestamps rise by ten."""
    segment = Segment.create(directory, BASE, limits, OpenFiles(10), threading.Lock())
    for number in range(count):
        put(segment, BASE + number, NOW + 10 * number)
    return segment


def put(segment: Segment, offset: int, timestamp: int) -> None:
    segment.append(RecordBatch(make_batch(timestamps=[timestamp])), offset, 0)


def reopened(segment: Segment) -> Segment:
    """The same files, taken as a clean stop left them."""
    segment.close()
    other = Segment(segment.path.parent, BASE, LIMITS, OpenFiles(10), threading.Lock())

    assert other.resume()
    return other


def test_batches_lie_back_to_back_with_their_offsets(tmp_path: Path) -> None:
    """Offset, size and timestamp are as they were appended."""
    segment = make_segment(tmp_path, 3)

    assert [(batch.position, batch.base_offset, batch.max_timestamp) for batch in segment.batches_at()] == [
        (0, 100, NOW),
        (SIZE, 101, NOW + 10),
        (2 * SIZE, 102, NOW + 20),
    ]
    assert (segment.size, segment.next_offset) == (3 * SIZE, 103)
    assert (segment.first_timestamp, segment.largest_timestamp) == (NOW, (NOW + 20, 102))


def test_every_offset_is_found(tmp_path: Path) -> None:
    """Through the index, before and after it was written and loaded."""
    segment = make_segment(tmp_path, 40)

    assert len(segment.offset_index) > 5
    for found_in in (segment, reopened(segment)):
        for offset in range(BASE, BASE + 40):
            batch = found_in.find(offset)
            assert batch is not None
            assert batch.base_offset == offset
        assert found_in.find(BASE + 40) is None


def test_the_batches_written_last_are_found_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they begin, and where a slice of a few of them ends."""
    segment = make_segment(tmp_path, 40)
    monkeypatch.setattr(os, "pread", None)
    for offset in range(BASE + 30, BASE + 36):
        batch = segment.find(offset)
        assert batch is not None
        for bound in (BASE + 37, BASE + 40):
            third = min(offset + 3, bound)
            assert segment.end_before(batch.position + 3 * SIZE + 5, bound, batch) == ((third - BASE) * SIZE, third)


def test_a_slice_ends_where_the_batches_written_last_have_a_hole(tmp_path: Path) -> None:
    """Batches behind the hole belong to it as well, if they lie below the bounds."""
    segment = make_segment(tmp_path, 3)
    for offset in (BASE + 10, BASE + 11):
        put(segment, offset, NOW)
    batch = segment.find(BASE)
    assert batch is not None

    assert segment.end_before(4 * SIZE + 5, BASE + 12, batch) == (4 * SIZE, BASE + 11)
    assert segment.end_before(3 * SIZE + 5, BASE + 12, batch) == (3 * SIZE, BASE + 10)
    assert segment.end_before(10 * SIZE, BASE + 11, batch) == (4 * SIZE, BASE + 11)


def test_holes_lead_to_the_next_batch(tmp_path: Path) -> None:
    """An offset that compaction removed is found at the batch behind it."""
    segment = make_segment(tmp_path)
    put(segment, 105, NOW)
    put(segment, 120, NOW)

    assert [segment.find(offset).base_offset for offset in (100, 105, 106, 120)] == [105, 105, 120, 120]  # type: ignore[union-attr]


@pytest.mark.parametrize("at", range(0, 40, 3))
@pytest.mark.parametrize("bit", [0, 2, 7])
def test_a_wrong_index_entry_is_never_believed(tmp_path: Path, at: int, bit: int) -> None:
    """Whatever it points at, every offset is found where it is, and nothing above a bound is given out."""
    segment = make_segment(tmp_path, 40)
    segment.close()
    data = bytearray(segment.offset_index.path.read_bytes())
    data[at] ^= 1 << bit
    segment.offset_index.path.write_bytes(data)
    for offset in range(BASE, BASE + 40):
        batch = segment.find(offset)
        assert batch is not None
        assert batch.base_offset == offset
        bound = min(offset + 7, BASE + 40)
        assert segment.end_before(10**6, bound, batch) == ((bound - BASE) * SIZE, bound)
        third = min(offset + 3, BASE + 40)
        assert segment.end_before(batch.position + 3 * SIZE + 5, BASE + 40, batch) == ((third - BASE) * SIZE, third)


def test_an_index_that_points_into_a_batch_is_rebuilt(tmp_path: Path) -> None:
    """Also where the bytes there look like a batch: a value may well be one."""
    inner = bytearray(make_batch())
    RecordBatch(inner).patch(110, 0)
    segment = make_segment(tmp_path)
    segment.append(RecordBatch(make_batch(value=bytes(inner))), BASE, 0)
    for number in range(1, 12):
        put(segment, BASE + number, NOW)
    segment.close()
    inside = segment.path.read_bytes().index(bytes(inner))
    segment.offset_index.path.write_bytes(struct.pack(">ii", 9, inside))
    batch = segment.find(109)

    assert batch is not None
    assert (batch.base_offset, batch.position > inside + len(inner)) == (109, True)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("size", [None, 0, 3, 12, 24, 25])
def test_a_missing_or_cut_index_is_made_good(tmp_path: Path, suffix: str, size: int | None) -> None:
    """Finding, appending and closing go on."""
    segment = make_segment(tmp_path, 30)
    segment.close()
    path = segment.path.with_suffix(suffix)
    path.unlink() if size is None else os.truncate(path, size)
    other = Segment(tmp_path, BASE, LIMITS, OpenFiles(10), threading.Lock())
    other.trust(BASE + 30)

    assert other.largest_timestamp == (NOW + 290, 129)
    put(other, BASE + 30, NOW + 300)
    other.close()
    assert [other.find(offset).base_offset for offset in range(BASE, BASE + 31)] == list(range(BASE, BASE + 31))  # type: ignore[union-attr]
    assert reopened(other).largest_timestamp == (NOW + 300, 130)


def test_a_time_index_that_promises_too_much_is_rebuilt(tmp_path: Path) -> None:
    """A timestamp that its batch does not have would keep the segment for ever."""
    segment = make_segment(tmp_path, 5)
    segment.close()
    segment.time_index.path.write_bytes(struct.pack(">qi", NOW + 10**9, 4))
    other = Segment(tmp_path, BASE, LIMITS, OpenFiles(10), threading.Lock())
    other.trust(BASE + 5)

    assert (other.largest_timestamp, other.is_largest_certain) == ((NOW + 40, 104), True)


def test_timestamps_below_zero_are_none(tmp_path: Path) -> None:
    """Such a segment is as old as its file."""
    segment = make_segment(tmp_path)
    for number in range(10):
        put(segment, BASE + number, NO_TIMESTAMP)

    assert segment.largest_timestamp[0] == NO_TIMESTAMP
    other = reopened(segment)
    assert (other.largest_timestamp[0], len(other.time_index)) == (NO_TIMESTAMP, 0)


def test_lost_batches_are_told_from_a_hole(tmp_path: Path) -> None:
    """A closed file that was cut at a batch boundary looks like a compacted one, but its indexes know better."""
    segment = make_segment(tmp_path, 20)
    segment.close()
    os.truncate(segment.path, 8 * SIZE)
    other = Segment(tmp_path, BASE, LIMITS, OpenFiles(10), threading.Lock())
    other.trust(BASE + 20)

    assert other.find(BASE + 7) is not None
    for offset in (BASE + 8, BASE + 19):
        with pytest.raises(CorruptBatchError, match="ends at offset 107"):
            other.find(offset)


def test_batches_that_do_not_fit_their_segment_are_refused(tmp_path: Path) -> None:
    """As after two files were swapped: below the base offset, or reaching into the next segment."""
    segment = make_segment(tmp_path, 3)
    segment.next_offset = 102
    with pytest.raises(CorruptBatchError, match="out of order"):
        list(segment.batches_at())
    segment.close_files()
    os.rename(segment.path, tmp_path / f"{200:020d}.log")
    other = Segment(tmp_path, 200, LIMITS, OpenFiles(10), threading.Lock())
    other.trust(300)
    with pytest.raises(CorruptBatchError, match="out of order"):
        other.find(200)


@pytest.mark.parametrize("field", [0, 8, 16, 23])
def test_headers_that_make_no_sense_are_refused(tmp_path: Path, field: int) -> None:
    """Offset, length, magic and last offset delta."""
    segment = make_segment(tmp_path, 3)
    segment.close()
    data = bytearray(segment.path.read_bytes())
    data[SIZE + field] ^= 0x80
    segment.path.write_bytes(data)

    with pytest.raises(CorruptBatchError):
        list(segment.batches_at())


def test_truncation_drops_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    """And the entries of all indexes that tell of it."""
    segment = make_segment(tmp_path, 30)
    segment.append(RecordBatch(make_batch(5, timestamps=[NOW + 999] * 5)), BASE + 30, 0)
    segment.truncate_to(BASE + 32)

    assert (segment.next_offset, segment.size, segment.largest_timestamp) == (130, 30 * SIZE, (NOW + 290, 129))
    segment.truncate_to(BASE)
    assert (segment.next_offset, segment.size, segment.path.stat().st_size) == (BASE, 0, 0)
    assert (len(segment.offset_index), segment.largest_timestamp[0]) == (0, NO_TIMESTAMP)
    put(segment, BASE, NOW)
    assert segment.largest_timestamp == (NOW, BASE)


def test_a_slice_survives_the_cut_of_its_bytes(tmp_path: Path) -> None:
    """The segment goes on in another file; who does not reach so far keeps the same one."""
    segment = make_segment(tmp_path, 4)
    low, high = FileSlice(segment.file, 0, 2 * SIZE), FileSlice(segment.file, 0, 4 * SIZE)
    data = high.read()
    inode = segment.path.stat().st_ino
    segment.truncate_to(BASE + 2)
    for number in range(2, 5):
        put(segment, BASE + number, NOW - 1)

    assert segment.path.stat().st_ino != inode
    assert (high.read(), low.read()) == (data, data[: 2 * SIZE])
    assert segment.path.read_bytes()[: 2 * SIZE] == data[: 2 * SIZE]
    assert segment.find(BASE + 3).max_timestamp == NOW - 1  # type: ignore[union-attr]


def test_a_cut_behind_all_slices_keeps_the_file(tmp_path: Path) -> None:
    """And so does one after they are gone, or released and not gone: nothing is copied."""
    segment = make_segment(tmp_path, 4)
    low, high = FileSlice(segment.file, 0, SIZE), FileSlice(segment.file, 0, 4 * SIZE)
    inode = segment.path.stat().st_ino
    data = low.read()
    segment.close_files()
    del high
    segment.truncate_to(BASE + 3)
    segment.truncate_to(BASE + 1)

    # The longer slice might still be somewhere, as far as the segment knows; it shares the file with the shorter one.
    assert low.read() == data
    assert segment.path.stat().st_ino != inode
    inode = segment.path.stat().st_ino
    segment.truncate_to(BASE)
    assert segment.path.stat().st_ino == inode


def test_released_files_are_opened_again_and_shared_with_slices(tmp_path: Path) -> None:
    """One descriptor for all slices of a segment, even if the segment itself had let go of it."""
    segment = make_segment(tmp_path, 2)
    piece = FileSlice(segment.file, 0, SIZE)

    assert segment.release()
    assert segment.file is piece.file
    put(segment, BASE + 2, NOW)
    assert (segment.size, segment.path.stat().st_size >= 3 * SIZE) == (3 * SIZE, True)


def test_a_busy_log_does_not_release(tmp_path: Path) -> None:
    """Nobody waits for its lock; who has it is the log itself, which opens another segment."""
    lock = threading.Lock()
    segment = Segment.create(tmp_path, BASE, LIMITS, OpenFiles(10), lock)
    with lock:
        assert not segment.release()
        assert not segment.release(threading.Lock())
        assert segment.release(lock)
        assert lock.locked()
    assert segment.release()


def test_an_index_that_cannot_be_written_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another log's thread asked for the files, and is not to see the error."""
    segment = make_segment(tmp_path, 20)

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        assert not segment.release()
    assert segment.release()
    assert len(segment.offset_index) > 2


def test_an_index_is_full_at_its_limit(tmp_path: Path) -> None:
    """The last entry of the time index always has room."""
    limits = LIMITS._replace(index_interval_bytes=0, index_bytes_max=60)
    segment = make_segment(tmp_path, 5, limits)

    assert (segment.is_index_full, len(segment.time_index)) == (True, 4)
    segment.finish()
    assert segment.time_index.path.stat().st_size <= 60


def test_the_room_in_an_index_is_asked_again_when_the_files_were_closed(tmp_path: Path) -> None:
    """What is loaded then may be another index."""
    segment = make_segment(tmp_path, 5, LIMITS._replace(index_interval_bytes=0))
    assert segment.index_room > 0

    assert segment.release()
    assert segment.index_room == 0
    assert not segment.is_index_full
    assert segment.index_room > 0


def test_slices_are_sent_without_a_copy(tmp_path: Path) -> None:
    """sendfile takes what the socket takes, and goes on from there."""
    segment = make_segment(tmp_path, 50)
    piece = FileSlice(segment.file, SIZE, 48 * SIZE)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent, received = 0, b""
        while sent < len(piece):
            sent += piece.send(ours.fileno(), sent)
            received += theirs.recv(10_000)
        ours.close()
        while more := theirs.recv(10_000):
            received += more

    assert received == piece.read() == segment.path.read_bytes()[SIZE : 49 * SIZE]


def test_a_slice_of_a_file_that_was_cut_by_others_says_so(tmp_path: Path) -> None:
    """Never fewer bytes than its length."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    piece = FileSlice(OpenFile(path), 50, 50)
    os.truncate(path, 70)

    with pytest.raises(OSError, match="30 bytes early"):
        piece.read()
    assert "length=50" in repr(piece)
