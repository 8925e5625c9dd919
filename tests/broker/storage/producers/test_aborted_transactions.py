"""The index of aborted transactions finds what a plain search of all entries finds."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry, AbortedTransactions, aborted_within
from ottla.protocol import codec
from ottla.protocol.messages.storage_records import AbortedTxn

ENTRIES = [
    AbortedIndexEntry(1, 0, 10, 11),
    AbortedIndexEntry(2, 12, 30, 20),
    AbortedIndexEntry(3, 20, 40, 41),
]


def index_of(directory: Path, entries: list[AbortedIndexEntry], base_offset: int = 0) -> AbortedTransactions:
    """Write entries to a new index."""
    index = AbortedTransactions(directory / f"{base_offset:020d}.txnindex", base_offset)
    for entry in entries:
        index.append(entry)
    return index


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedIndexEntry]:
    """Run interleaved transactions on one log, each step a batch or an abort, and give the aborted ones."""
    open_since: dict[int, int] = {}
    aborted: list[AbortedIndexEntry] = []
    for offset, producer_id in enumerate(draw(st.lists(st.integers(0, 3), max_size=40))):
        first_offset = open_since.pop(producer_id, None)
        if first_offset is None:
            open_since[producer_id] = offset
        else:
            last_stable_offset = min(open_since.values(), default=offset + 1)
            aborted.append(AbortedIndexEntry(producer_id, first_offset, offset, last_stable_offset))
    return aborted


@examples(80)
@given(
    history=histories(), segment_offsets=st.integers(1, 40), bounds=st.tuples(st.integers(0, 42), st.integers(0, 42))
)
def test_a_search_over_segments_finds_every_aborted_transaction_in_range(
    history: list[AbortedIndexEntry], segment_offsets: int, bounds: tuple[int, int]
) -> None:
    """Binary search and the stop rule leave nothing out, wherever the segments are cut."""
    from_offset, upper_offset = min(bounds), max(bounds)
    with tempfile.TemporaryDirectory() as directory:
        bases = range(0, 41, segment_offsets)
        segments = [
            index_of(Path(directory), [e for e in history if base <= e.last_offset < base + segment_offsets], base)
            for base in bases
        ]
        for segment in segments:
            segment.check()
        searched = [segment for segment in segments if segment.base_offset + segment_offsets > from_offset]

        expected = [
            (entry.producer_id, entry.first_offset)
            for entry in history
            if entry.last_offset >= from_offset and entry.first_offset < upper_offset
        ]
        expected.sort(key=lambda entry: entry[1])
        assert expected == aborted_within(searched, from_offset, upper_offset)


@examples(40)
@given(history=histories(), offset=st.integers(0, 42))
def test_truncation_drops_the_markers_from_the_offset_on(history: list[AbortedIndexEntry], offset: int) -> None:
    """What is left is below the offset; with nothing left there is no file."""
    with tempfile.TemporaryDirectory() as directory:
        index = index_of(Path(directory), history)
        index.truncate_to(offset)

        left = [entry for entry in history if entry.last_offset < offset]
        assert left == list(index)
        assert index.path.exists() is bool(left)


def test_the_bytes_are_those_of_the_declaration(tmp_path: Path) -> None:
    """A version and the declared message, 34 bytes an entry."""
    index = index_of(tmp_path, ENTRIES)

    expected = b"".join(struct.pack(">h", 0) + codec.encode(AbortedTxn(**entry._asdict()), 0) for entry in ENTRIES)
    assert expected == index.path.read_bytes()
    assert len(expected) == 34 * len(ENTRIES)


def test_the_search_stops_where_the_last_stable_offset_is_reached(tmp_path: Path) -> None:
    """Later segments are not even opened."""
    first = index_of(tmp_path, ENTRIES[:1])
    broken = AbortedTransactions(tmp_path / "00000000000000000012.txnindex", 12)
    broken.path.write_bytes(b"broken")

    assert aborted_within((first, broken), 0, 11) == [(1, 0)]
    with pytest.raises(CorruptIndexError):
        aborted_within((first, broken), 0, 12)


def test_one_segment_is_searched_alone(tmp_path: Path) -> None:
    """From is inclusive against the marker, upper exclusive against the first offset."""
    index = index_of(tmp_path, ENTRIES)

    assert index.within(10, 12) == [(1, 0)]
    assert index.within(11, 13) == [(2, 12)]
    assert index.within(31, 100) == [(3, 20)]
    assert index.within(41, 100) == []


def test_an_index_longer_than_a_chunk_is_read_in_turns(tmp_path: Path) -> None:
    """Reading never holds more than a chunk, and misses nothing at its edges."""
    entries = [AbortedIndexEntry(7, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(2500)]
    index = AbortedTransactions(tmp_path / "index", 0)
    index.path.write_bytes(b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries))

    index.check()
    assert entries == list(index)
    assert index.within(4000, 4002) == [(7, 4000)]


def test_there_is_no_file_without_entries(tmp_path: Path) -> None:
    """A segment without aborted transactions costs nothing."""
    index = AbortedTransactions(tmp_path / "index", 0)
    index.check()
    index.truncate_to(0)
    index.delete()

    assert list(index) == []
    assert index.within(0, 100) == []
    assert os.listdir(tmp_path) == []


def test_deleting_removes_the_file(tmp_path: Path) -> None:
    """The index goes with its segment."""
    index_of(tmp_path, ENTRIES).delete()

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("before", [0, 2])
def test_a_write_in_part_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    """A full disk leaves whole entries only, and the append can be tried again."""
    index = index_of(tmp_path, ENTRIES[:before])
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
        with pytest.raises(OSError, match="in part"):
            index.append(ENTRIES[before])
    assert list(index) == ENTRIES[:before]
    assert index.path.exists() is bool(before)

    index.append(ENTRIES[before])
    assert list(index) == ENTRIES[: before + 1]


def test_an_index_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """A reader gets whole entries or the error."""
    entries = [AbortedIndexEntry(7, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(1500)]
    index = AbortedTransactions(tmp_path / "index", 0)
    index.path.write_bytes(b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries))
    reading = iter(index)
    next(reading)
    os.truncate(index.path, 34 * 1200)

    with pytest.raises(CorruptIndexError, match="cut short"):
        list(reading)


def test_every_length_that_is_not_whole_entries_is_refused(tmp_path: Path) -> None:
    """A torn entry shows at once, whatever is asked of the index."""
    index = index_of(tmp_path, ENTRIES)
    data = index.path.read_bytes()
    for size in range(1, len(data)):
        index.path.write_bytes(data[:size])
        if size % 34 == 0:
            index.check()
            continue
        for ask in (index.check, lambda: index.within(0, 9), lambda: index.truncate_to(5)):
            with pytest.raises(CorruptIndexError, match=str(index.path)):
                ask()
        with pytest.raises(CorruptIndexError, match=str(index.path)):
            index.append(AbortedIndexEntry(9, 50, 60, 61))


@pytest.mark.parametrize(
    "entry",
    [
        AbortedIndexEntry(-1, 60, 70, 71),
        AbortedIndexEntry(9, -1, 70, 71),
        AbortedIndexEntry(9, 70, 70, 71),
        AbortedIndexEntry(9, 60, 70, 72),
        AbortedIndexEntry(9, 60, 70, -1),
        AbortedIndexEntry(9, 30, 40, 41),
        AbortedIndexEntry(9, 0, 3, 4),
    ],
)
def test_entries_that_make_no_sense_are_refused(tmp_path: Path, entry: AbortedIndexEntry) -> None:
    """Offsets rise within the segment, and a transaction ends after it began."""
    index = index_of(tmp_path, ENTRIES)
    with open(index.path, "ab") as file:
        file.write(struct.pack(">hqqqq", 0, *entry))

    with pytest.raises(CorruptIndexError, match="entry 3"):
        index.check()


def test_markers_below_the_segment_are_refused(tmp_path: Path) -> None:
    """An index that belongs to another segment is noticed."""
    index = index_of(tmp_path, ENTRIES)
    index.base_offset = 11

    with pytest.raises(CorruptIndexError, match="entry 0"):
        index.check()


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    """Only version 0 is read."""
    index = index_of(tmp_path, ENTRIES)
    index.path.write_bytes(b"\x00\x01" + index.path.read_bytes()[2:])

    with pytest.raises(CorruptIndexError, match="version 1"):
        index.check()
