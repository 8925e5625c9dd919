"""Checkpoints come back as they were written, or are refused by name and line."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.storage import checkpoint
from ottla.broker.storage.checkpoint import (
    read_epochs,
    read_offsets,
    write_atomically,
    write_epochs,
    write_offsets,
)
from ottla.broker.storage.errors import CorruptCheckpointError
from ottla.protocol.identifiers import TopicPartition

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

topics = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))
partitions = st.builds(TopicPartition, topics, st.integers(0, INT32_MAX))
offset_maps = st.dictionaries(partitions, st.integers(0, INT64_MAX), max_size=20)
rising_epochs = st.sets(st.integers(0, INT32_MAX), max_size=20).flatmap(
    lambda epochs: st.sets(st.integers(0, INT64_MAX), min_size=len(epochs), max_size=len(epochs)).map(
        lambda offsets: list(zip(sorted(epochs), sorted(offsets), strict=True))
    )
)

OFFSETS = b"0\n2\norders 0 1500\npage-views.v1 12 980\n"
EPOCHS = b"0\n3\n0 0\n4 17\n5 203\n"


@examples(50)
@given(offsets=offset_maps)
def test_offsets_come_back_as_written(offsets: dict[TopicPartition, int]) -> None:
    """Any partitions and offsets survive the file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "replication-offset-checkpoint")
        write_offsets(path, offsets)

        assert offsets == read_offsets(path)


@examples(50)
@given(entries=rising_epochs)
def test_epochs_come_back_as_written(entries: list[tuple[int, int]]) -> None:
    """Any rising entries survive the file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "leader-epoch-checkpoint")
        write_epochs(path, entries)

        assert entries == read_epochs(path)


def test_files_look_as_kafka_writes_them(tmp_path: Path) -> None:
    """Version, number of rows, rows."""
    write_offsets(tmp_path / "a", {TopicPartition("orders", 0): 1500, TopicPartition("page-views.v1", 12): 980})
    write_epochs(tmp_path / "b", [(0, 0), (4, 17), (5, 203)])

    assert (tmp_path / "a").read_bytes() == OFFSETS
    assert (tmp_path / "b").read_bytes() == EPOCHS


def test_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    """The first start of a broker is no error."""
    assert read_offsets(tmp_path / "a") == {}
    assert read_epochs(tmp_path / "b") == []


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    """A file that ends early, at whatever byte, is never read in part."""
    path = tmp_path / "checkpoint"
    for data, read in ((OFFSETS, read_offsets), (EPOCHS, read_epochs), (b"0\n0\n", read_offsets)):
        for size in range(len(data)):
            path.write_bytes(data[:size])
            with pytest.raises(CorruptCheckpointError, match=rf"{path}, line \d+: "):
                read(path)


def test_every_flipped_bit_is_noticed_or_gives_another_well_formed_value(tmp_path: Path) -> None:
    """Text has no checksum, so a digit may turn into another; nothing else gets through."""
    path = tmp_path / "checkpoint"
    refused = 0
    for position in range(len(OFFSETS)):
        for bit in range(8):
            path.write_bytes(_flipped(OFFSETS, position, bit))
            try:
                offsets = read_offsets(path)
            except CorruptCheckpointError:
                refused += 1
            else:
                assert len(offsets) == 2
                write_offsets(path, offsets)
                assert path.read_bytes() == _flipped(OFFSETS, position, bit)

    assert refused > len(OFFSETS) * 8 // 2


def test_every_flipped_bit_of_an_epoch_file_keeps_entries_rising(tmp_path: Path) -> None:
    """What is read from a damaged epoch file still rises in epoch and offset."""
    path = tmp_path / "checkpoint"
    for position in range(len(EPOCHS)):
        for bit in range(8):
            path.write_bytes(_flipped(EPOCHS, position, bit))
            try:
                entries = read_epochs(path)
            except CorruptCheckpointError:
                continue
            epochs, offsets = zip(*entries, strict=True)
            assert len(entries) == 3
            assert sorted(set(epochs)) == list(epochs)
            assert sorted(set(offsets)) == list(offsets)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"1\n0\n", 1),
        (b"0\nmany\n", 2),
        (b"0\n-1\n", 2),
        (b"0\n2\na 0 1\n", 2),
        (b"0\n0\na 0 1\n", 2),
        (b"0\n1\na 0\n", 3),
        (b"0\n1\na 0 1 2\n", 3),
        (b"0\n1\na  0 1\n", 3),
        (b"0\n1\n 0 1\n", 3),
        (b"0\n1\na 0 -1\n", 3),
        (b"0\n1\na 0 1_0\n", 3),
        (b"0\n1\na 0 +1\n", 3),
        (b"0\n1\na 0 01\n", 3),
        (b"0\n1\na 0 9223372036854775808\n", 3),
        (b"0\n1\na 2147483648 1\n", 3),
        (b"0\n1\na 0 " + b"9" * 5000 + b"\n", 3),
        (b"0\r\n1\r\na 0 1\r\n", 1),
        (b"0\n2\na 0 1\na 0 2\n", 4),
        ("0\n2\na 0 1\nb\u00e9 0 1\n".encode(), 4),
        ("0\n1\na 0 \u0661\n".encode(), 3),
    ],
)
def test_malformed_offsets_are_refused_with_their_line(tmp_path: Path, data: bytes, line: int) -> None:
    """The error names the file and the first line that is wrong."""
    path = tmp_path / "checkpoint"
    path.write_bytes(data)

    with pytest.raises(CorruptCheckpointError, match=f"{path}, line {line}: "):
        read_offsets(path)


@pytest.mark.parametrize("rows", [b"5 0\n4 10\n", b"4 0\n4 10\n", b"4 10\n5 10\n", b"4 10\n5 9\n", b"4\n5 1\n"])
def test_epochs_that_do_not_rise_are_refused(tmp_path: Path, rows: bytes) -> None:
    """Epochs and start offsets both rise strictly."""
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n2\n" + rows)

    with pytest.raises(CorruptCheckpointError):
        read_epochs(path)


def test_a_file_beyond_all_measure_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is bounded before the rows are looked at."""
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES_MAX", len(OFFSETS) - 1)
    path = tmp_path / "checkpoint"
    path.write_bytes(OFFSETS)

    with pytest.raises(CorruptCheckpointError, match="more than"):
        read_offsets(path)


@pytest.mark.parametrize("durable", [True, False])
def test_data_is_synced_before_the_rename_and_the_rename_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """The order is what makes a crash leave the old file or the new one."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(fd: int) -> None:
        calls.append("sync directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file")
        fsync(fd)

    def recorded_replace(source: Path, target: Path) -> None:
        calls.append(f"rename {source.name} {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_atomically(tmp_path / "file", b"data", durable=durable)

    expected = ["sync file", "rename file.tmp file"] + ["sync directory"] * durable
    assert expected == calls
    assert (tmp_path / "file").read_bytes() == b"data"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A full disk costs nothing that was there before."""
    write_atomically(tmp_path / "file", b"old")

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(tmp_path / "file", b"new")

    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_left_over_temporary_file_is_written_over(tmp_path: Path) -> None:
    """A crash in the middle of a write does not disturb the next one."""
    (tmp_path / "file.tmp").write_bytes(b"a longer remainder of another time")
    write_atomically(tmp_path / "file", b"data")

    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"data"


def _flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes((data[position] ^ 1 << bit,)) + data[position + 1 :]
