"""The indexes of a segment find the last entry that is not too far, and say when their file makes no sense."""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.index import OffsetIndex, TimeIndex

BASE = 1000


def offset_index(path: Path, *entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(path, BASE)
    index.reset()
    for entry in entries:
        index.append(*entry)
    return index


def time_index(path: Path, *entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(path, BASE)
    index.reset()
    for entry in entries:
        index.append(*entry)
    return index


def test_an_empty_index_points_at_the_begin(tmp_path: Path) -> None:
    """Without entries, a search starts with the first batch."""
    index = offset_index(tmp_path / "index")

    assert (len(index), index.last, index.lookup(5000)) == (0, (BASE, 0), (BASE, 0))
    assert index.last_within(5000, 5000) == (BASE, 0)


def test_the_last_entry_up_to_an_offset_is_found(tmp_path: Path) -> None:
    """Between two entries, it is the lower one."""
    index = offset_index(tmp_path / "index", (1010, 100), (1020, 200))

    assert [index.lookup(offset) for offset in (1009, 1010, 1019, 1020, 9999)] == [
        (BASE, 0),
        (1010, 100),
        (1010, 100),
        (1020, 200),
        (1020, 200),
    ]


def test_an_entry_within_two_bounds_is_below_the_offset_and_up_to_the_position(tmp_path: Path) -> None:
    """A reader stops before an offset, and before a number of bytes."""
    index = offset_index(tmp_path / "index", (1010, 100), (1020, 200), (1030, 300))

    assert index.last_within(1030, 300) == (1020, 200)
    assert index.last_within(1031, 299) == (1020, 200)
    assert index.last_within(1010, 999) == (BASE, 0)


def test_the_file_has_kafkas_layout(tmp_path: Path) -> None:
    """Big-endian, relative to the base offset."""
    offset_index(tmp_path / "index", (1010, 100), (1020, 200)).write()
    time_index(tmp_path / "timeindex", (77, 1010), (2**40, 1020)).write()

    assert (tmp_path / "index").read_bytes() == struct.pack(">iiii", 10, 100, 20, 200)
    assert (tmp_path / "timeindex").read_bytes() == struct.pack(">qiqi", 77, 10, 2**40, 20)


def test_released_entries_are_loaded_again(tmp_path: Path) -> None:
    """Releasing writes what is not in the file yet, and only that."""
    index = time_index(tmp_path / "timeindex", (5, 1001), (2**62, 1002))
    index.write()
    index.append(2**62 + 1, 1003)
    index.release()
    index.release()

    assert (len(index), index.last) == (3, (2**62 + 1, 1003))
    assert [index.lookup(timestamp) for timestamp in (5, 6, 2**62 + 1)] == [None, (5, 1001), (2**62, 1002)]


def test_what_is_forgotten_was_not_written(tmp_path: Path) -> None:
    """The file is about to go, and the disk may be full."""
    index = offset_index(tmp_path / "index", (1010, 100))
    index.forget()

    assert len(index) == 0


def test_only_later_timestamps_are_entered(tmp_path: Path) -> None:
    """Negative ones mean that there is none."""
    index = time_index(tmp_path / "timeindex", (-1, 1001), (7, 1002), (7, 1003), (6, 1004), (8, 1005))

    assert (len(index), index.last) == (2, (8, 1005))


def test_truncation_drops_entries_in_memory_and_in_the_file(tmp_path: Path) -> None:
    """Whether they were written or not."""
    offsets, times = tmp_path / "index", tmp_path / "timeindex"
    index = offset_index(offsets, (1010, 100), (1020, 200), (1030, 300))
    timed = time_index(times, (1, 1010), (2, 1020), (3, 1030))
    index.write()
    index.append(1040, 400)
    index.truncate_to(1020)
    timed.truncate_to(1020)
    timed.write()

    assert (index.last, timed.last) == ((1010, 100), (1, 1010))
    assert (offsets.stat().st_size, times.stat().st_size) == (8, 12)


@pytest.mark.parametrize("size", [1, 7, 9, 15])
def test_a_torn_file_is_corrupt(tmp_path: Path, size: int) -> None:
    """Whole entries only."""
    path = tmp_path / "index"
    offset_index(path, (1010, 100), (1020, 200)).release()
    os.truncate(path, size)

    with pytest.raises(CorruptIndexError, match="whole entries"):
        OffsetIndex(path, BASE).lookup(1010)


def test_a_missing_or_enormous_file_is_corrupt(tmp_path: Path) -> None:
    """Nothing is allocated for a size that cannot be."""
    path = tmp_path / "index"
    with pytest.raises(CorruptIndexError, match="missing"):
        len(OffsetIndex(path, BASE))
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(CorruptIndexError, match="larger"):
        len(OffsetIndex(path, BASE))


rising = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=30).map(sorted)


@examples(100)
@given(relatives=rising, positions=rising, offset=st.integers(BASE - 5, BASE + 2**31), position=st.integers(0, 2**31))
def test_an_offset_index_searches_like_bisect(
    tmp_path_factory: pytest.TempPathFactory, relatives: list[int], positions: list[int], offset: int, position: int
) -> None:
    """Also after it was written and loaded."""
    entries = [(BASE + relative, at) for relative, at in zip(relatives, positions, strict=False)]
    index = offset_index(tmp_path_factory.mktemp("index") / "index", *entries)
    index.release()
    padded = [(BASE, 0), *entries]
    offsets = [known for known, _ in entries]
    within = min(bisect_left(offsets, offset), bisect_right([at for _, at in entries], position))

    assert index.lookup(offset) == padded[bisect_right(offsets, offset)]
    assert index.last_within(offset, position) == padded[within]


@examples(100)
@given(times=st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=30).map(sorted), timestamp=st.integers(0, 2**63))
def test_a_time_index_searches_like_bisect(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], timestamp: int
) -> None:
    """Over all of 64 bits."""
    entries = [(known, BASE + number) for number, known in enumerate(times)]
    index = time_index(tmp_path_factory.mktemp("index") / "timeindex", *entries)
    index.release()

    assert index.lookup(timestamp) == [None, *entries][bisect_left(times, timestamp)]
