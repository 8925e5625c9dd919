"""Snapshots have Kafka's bytes, and no damaged one is ever believed."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.storage.errors import CorruptSnapshotError
from ottla.broker.storage.producers import producer_snapshot
from ottla.broker.storage.producers.producer_snapshot import (
    StoredProducer,
    StoredProducers,
    delete_snapshots_above,
    delete_snapshots_below,
    load_newest_snapshot,
    read_snapshot,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from ottla.protocol import codec
from ottla.protocol.messages import storage_records

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
producer_entries = st.builds(StoredProducer, int64s, int16s, int32s, int64s, int32s, int64s, int32s, int64s)

ENTRIES = [
    StoredProducer(12, 0, 6, 41, 2, 1_700_000_000_000, -1, -1),
    StoredProducer(4000, 7, 2**31 - 1, 90, 0, 1_700_000_000_500, 3, 88),
]


def declared(entries: list[StoredProducer]) -> bytes:
    """Encode a snapshot as the declaration of the message says."""
    message = storage_records.ProducerSnapshot(
        crc=0,
        producer_entries=[
            storage_records.ProducerEntry(
                producer_id=entry.producer_id,
                epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_offset=entry.last_offset,
                offset_delta=entry.offset_delta,
                timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=entry.current_transaction_first_offset,
            )
            for entry in entries
        ],
    )
    body = codec.encode(message, 1)[4:]
    return struct.pack(">hI", 1, crc32c(body)) + body


@examples(60)
@given(entries=st.lists(producer_entries, max_size=8))
def test_the_bytes_are_those_of_the_declaration(entries: list[StoredProducer]) -> None:
    """Written and read here, written and read by the declared message: all the same."""
    with tempfile.TemporaryDirectory() as directory:
        write_snapshot(Path(directory), StoredProducers(77, entries))
        path = snapshot_path(Path(directory), 77)

        assert declared(entries) == path.read_bytes()
        assert entries == read_snapshot(path)
        decoded = codec.decode(storage_records.ProducerSnapshot, 1, path.read_bytes()[2:])
        assert len(entries) == len(decoded.producer_entries)


def test_files_are_named_by_offset(tmp_path: Path) -> None:
    """Twenty digits; other files in the directory are not taken for snapshots."""
    for offset in (900, 0, 12_345_678_901):
        write_snapshot(tmp_path, StoredProducers(offset, ENTRIES))
    for name in ("00000000000000000007.log", "7.snapshot", "00000000000000000007.snapshot.deleted", "x.snapshot"):
        (tmp_path / name).touch()

    assert (tmp_path / "00000000012345678901.snapshot").exists()
    assert snapshot_offsets(tmp_path) == [0, 900, 12_345_678_901]


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    """The CRC covers all that the version and the CRC itself do not."""
    path = _written(tmp_path)
    data = path.read_bytes()
    for position in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:position] + bytes((data[position] ^ 1 << bit,)) + data[position + 1 :])
            with pytest.raises(CorruptSnapshotError, match=str(path)):
                read_snapshot(path)


def test_every_other_length_is_refused(tmp_path: Path) -> None:
    """Neither a cut file nor one with more behind it is read."""
    path = _written(tmp_path)
    data = path.read_bytes()
    for other in (*(data[:size] for size in range(len(data))), data + b"\x00", data + data[-46:]):
        path.write_bytes(other)
        with pytest.raises(CorruptSnapshotError, match=str(path)):
            read_snapshot(path)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_wrong_count_is_refused_even_with_a_right_crc(tmp_path: Path, count: int) -> None:
    """The count is held against the bytes that are there."""
    path = _written(tmp_path)
    body = struct.pack(">i", count) + path.read_bytes()[10:]
    path.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)

    with pytest.raises(CorruptSnapshotError, match=f"{count} producers"):
        read_snapshot(path)


def test_a_file_beyond_all_measure_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is bounded before anything else."""
    path = _written(tmp_path)
    monkeypatch.setattr(producer_snapshot, "SNAPSHOT_BYTES_MAX", path.stat().st_size - 1)

    with pytest.raises(CorruptSnapshotError, match="too many"):
        read_snapshot(path)


def test_the_newest_usable_snapshot_is_loaded_and_broken_ones_go(tmp_path: Path) -> None:
    """Above the offset: not looked at. Broken: deleted, and the next older one is tried."""
    for offset in (10, 20, 30, 40):
        write_snapshot(tmp_path, StoredProducers(offset, ENTRIES[: offset // 20]))
    for offset in (20, 30, 40):
        snapshot_path(tmp_path, offset).write_bytes(b"\x00\x01")

    assert load_newest_snapshot(tmp_path, 39) == StoredProducers(10, [])
    assert snapshot_offsets(tmp_path) == [10, 40]
    assert load_newest_snapshot(tmp_path, 9) is None
    assert load_newest_snapshot(tmp_path, 10) == StoredProducers(10, [])
    assert load_newest_snapshot(tmp_path, 40) == StoredProducers(10, [])


def test_snapshots_are_deleted_below_and_above_an_offset(tmp_path: Path) -> None:
    """The one of the very offset stays."""
    for offset in (10, 20, 30, 40):
        write_snapshot(tmp_path, StoredProducers(offset, []))

    delete_snapshots_below(tmp_path, 20)
    assert snapshot_offsets(tmp_path) == [20, 30, 40]
    delete_snapshots_above(tmp_path, 30)
    assert snapshot_offsets(tmp_path) == [20, 30]


def _written(directory: Path) -> Path:
    write_snapshot(directory, StoredProducers(91, ENTRIES))
    return snapshot_path(directory, 91)
