"""The write map reserves disk before it writes, and leaves a file that ends where it should."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.storage.logs import make_batch

from ottla.broker.storage import write_map
from ottla.broker.storage.open_files import OpenFile
from ottla.broker.storage.write_map import WriteMap
from ottla.protocol.records import RecordBatch

KIB = 1024
ROOT = Path(__file__).parents[3]


def opened(path: Path) -> OpenFile:
    return OpenFile(path, os.O_RDWR | os.O_CREAT)


def test_what_was_written_is_in_the_file(tmp_path: Path) -> None:
    """At once, for whoever reads it through a descriptor; trimmed when it is closed."""
    path = tmp_path / "log"
    written = WriteMap(opened(path), 1024 * KIB)
    written.write(0, b"one")
    written.write(3, memoryview(b"two"))

    assert path.read_bytes()[:8] == b"onetwo\0\0"
    written.close(6)
    assert path.read_bytes() == b"onetwo"


def test_disk_is_reserved_ahead_and_in_growing_steps(tmp_path: Path) -> None:
    """Small logs reserve little, and none more than its segment may hold."""
    path = tmp_path / "log"
    written = WriteMap(opened(path), 300 * KIB)
    sizes = []
    for number in range(30):
        written.write(number * 10 * KIB, bytes(10 * KIB))
        sizes.append(path.stat().st_size)

    assert sorted(set(sizes)) == [64 * KIB, 124 * KIB, 240 * KIB, 300 * KIB]
    assert path.stat().st_blocks * 512 >= 300 * KIB


def test_a_write_beyond_the_segment_size_is_possible(tmp_path: Path) -> None:
    """A follower takes the batches that its leader has."""
    path = tmp_path / "log"
    data = os.urandom(200 * KIB)
    written = WriteMap(opened(path), 10 * KIB)
    written.write(0, data)
    written.close(len(data))

    assert path.read_bytes() == data


def test_a_batch_gets_its_offset_and_epoch_last(tmp_path: Path) -> None:
    """The length, too: until it is there, there is no batch for recovery to take."""
    path = tmp_path / "log"
    data = make_batch()
    written = WriteMap(opened(path), 1024 * KIB)
    written.write_batch(0, memoryview(data), 42, 7)
    written.close(len(data))
    batch = RecordBatch(path.read_bytes())

    assert (batch.base_offset, batch.partition_leader_epoch) == (42, 7)
    assert path.read_bytes()[16:] == data[16:]


def test_writing_goes_on_in_a_file_that_has_something(tmp_path: Path) -> None:
    """As after a start, at any position."""
    path = tmp_path / "log"
    begin = os.urandom(5000)
    path.write_bytes(begin)
    written = WriteMap(opened(path), 1024 * KIB)
    written.write(5000, b"more")
    written.close(5004)

    assert path.read_bytes() == begin + b"more"


def test_large_windows_are_aligned_and_complete(tmp_path: Path) -> None:
    """From 4 MiB on the map asks for huge pages, which changes nothing in the file."""
    path = tmp_path / "log"
    written = WriteMap(opened(path), 64 * KIB * KIB)
    piece = os.urandom(700 * KIB)
    for number in range(20):
        written.write(number * len(piece), piece)
    written.close(20 * len(piece))

    assert path.read_bytes() == piece * 20


def test_little_of_what_was_written_stays_mapped(tmp_path: Path) -> None:
    """However much is reserved: what is behind is complete, and no memory of this process."""
    path = tmp_path / "log"
    written = WriteMap(opened(path), 64 * KIB * KIB)
    piece = os.urandom(40 * KIB)
    count = 1000
    for number in range(count):
        written.write(number * len(piece), piece)
    mapped = sum(size for name, size in resident_maps() if name == str(path))
    written.close(count * len(piece))

    assert mapped <= 8 * KIB * KIB
    assert path.read_bytes() == piece * count


def resident_maps() -> Iterator[tuple[str, int]]:
    """Return the files that are mapped, and how many bytes of each map are resident."""
    name = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Rss:"):
            yield name, int(line.split()[1]) * KIB
        elif ":" not in (fields := line.split(maxsplit=5))[0]:
            # Anonymous memory has no name.
            name = fields[5] if len(fields) > 5 else ""


def test_a_disk_with_little_room_gives_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual step does not fit, the append itself may; what was reserved in vain is given back."""
    path = tmp_path / "log"
    room = 20 * KIB

    def allocate(fd: int, begin: int, end: int) -> None:
        os.ftruncate(fd, min(end, room))
        if end > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(write_map, "_allocate", allocate)
    written = WriteMap(opened(path), 1024 * KIB)
    written.write(0, b"x" * 10 * KIB)
    reserved = path.stat().st_size
    with pytest.raises(OSError, match="No space"):
        written.write(10 * KIB, b"y" * 20 * KIB)

    assert 10 * KIB <= reserved == path.stat().st_size <= room
    written.write(10 * KIB, b"z" * KIB)
    written.close(11 * KIB)
    assert path.read_bytes() == b"x" * 10 * KIB + b"z" * KIB


def test_other_failures_to_reserve_are_not_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails is no matter of size."""
    calls = []

    def allocate(fd: int, begin: int, end: int) -> None:
        calls.append(end)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(write_map, "_allocate", allocate)
    with pytest.raises(OSError, match="Input/output"):
        WriteMap(opened(tmp_path / "log"), 1024 * KIB).write(0, b"x")

    assert len(calls) == 1


def test_without_fallocate_zeros_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has none; a full disk must show up before the map is written all the same."""
    monkeypatch.delattr(os, "posix_fallocate")
    path = tmp_path / "log"
    WriteMap(opened(path), 1024 * KIB).write(0, b"x")

    assert path.stat().st_blocks * 512 >= 64 * KIB


@pytest.mark.parametrize("size", [47 * KIB, 48 * KIB, 300 * KIB])
def test_large_writes_and_small_ones_lie_side_by_side(tmp_path: Path, size: int) -> None:
    """Around the map or through it, in one file."""
    path = tmp_path / "log"
    written = WriteMap(opened(path), 1024 * KIB)
    large = make_batch(value=os.urandom(size))
    position = 0
    for data in (b"first", large, b"second", large, b"third"):
        written.write(position, data)
        position += len(data)
    written.write_batch(position, memoryview(large), 42, 7)
    written.close(position + len(large))
    data = path.read_bytes()
    batch = RecordBatch(data, position)

    assert data[:position] == b"first" + large + b"second" + large + b"third"
    assert (batch.base_offset, batch.partition_leader_epoch) == (42, 7)
    batch.check()


def test_a_write_that_stops_early_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take less than it is given."""
    path = tmp_path / "log"
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, position: pwrite(fd, pieces[0][:10], position))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:30_000], position))
    written = WriteMap(opened(path), 1024 * KIB)
    data = make_batch(value=os.urandom(100 * KIB))
    written.write_batch(0, memoryview(data), 42, 7)
    written.close(len(data))
    batch = RecordBatch(path.read_bytes())
    batch.check()

    assert (batch.base_offset, path.read_bytes()[16:]) == (42, data[16:])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says beforehand what a store would do")
@pytest.mark.parametrize("write", ["written.write(100, b'more')", "written.write_batch(100, memoryview(batch), 1, 2)"])
def test_a_page_that_the_system_cannot_give_is_an_error_and_not_the_end(tmp_path: Path, write: str) -> None:
    """A store to such a page ends the process by SIGBUS: a disk that fails, or, as here, a file that was cut."""
    program = f"""
import os
from pathlib import Path
from tests.broker.storage.logs import make_batch
from tests.broker.storage.test_write_map import opened
from ottla.broker.storage.write_map import WriteMap

path, batch = Path({str(tmp_path / "log")!r}), bytes(make_batch())
written = WriteMap(opened(path), 1024 * 1024)
written.write(0, b"one")
os.truncate(path, 0)
try:
    {write}
except OSError as error:
    print(type(error).__name__, error.errno)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, f"OSError {errno.EIO}\n"), done.stderr


def test_a_kernel_that_cannot_tell_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.14 there is no such call, and other systems have none."""
    assert write_map._known(12345) is None
    monkeypatch.setattr(write_map, "_POPULATE_WRITE", None)
    written = WriteMap(opened(tmp_path / "log"), 1024 * KIB)
    written.write(0, b"one")
    written.write(3, b"two")
    written.close(6)

    assert (tmp_path / "log").read_bytes() == b"onetwo"
