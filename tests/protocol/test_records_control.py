"""End transaction markers are the known bytes, and only they are read as markers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.record_samples import COMMIT_MARKER, ONE_RECORD, TIMESTAMP

from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch, read_marker
from ottla.protocol.errors import CorruptBatchError
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.record_batch_rewrite import rewrite_batch
from ottla.protocol.records import RecordBatch


def control_batch(key: bytes | None, value: bytes | None) -> RecordBatch:
    """A control batch with any key and value."""
    builder = RecordBatchBuilder()
    builder.append(TIMESTAMP, key, value)
    return RecordBatch(builder.build(transactional=True, control=True))


def test_the_known_marker_byte_for_byte() -> None:
    """A COMMIT takes 78 known bytes, and is read back from them."""
    marker = EndTransactionMarker(ControlType.COMMIT, coordinator_epoch=7)
    batch = build_marker_batch(marker, producer_id=1000, producer_epoch=3, timestamp=TIMESTAMP)

    assert batch == COMMIT_MARKER
    assert read_marker(RecordBatch(COMMIT_MARKER)) == marker


@given(st.sampled_from(ControlType), st.integers(0, 2147483647), st.integers(0, 1 << 62), st.integers(0, 32767))
def test_markers_come_back_as_they_were_built(
    control_type: ControlType, coordinator_epoch: int, producer_id: int, producer_epoch: int
) -> None:
    """With the producer in the batch header, where the partition looks for it."""
    marker = EndTransactionMarker(control_type, coordinator_epoch)
    batch = RecordBatch(
        build_marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=TIMESTAMP,
            base_offset=55,
            partition_leader_epoch=4,
        )
    )

    batch.check()
    assert read_marker(batch) == marker
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (producer_id, producer_epoch, -1)
    assert (batch.base_offset, batch.partition_leader_epoch) == (55, 4)
    assert batch.is_control
    assert batch.is_transactional


def test_other_control_records_and_emptied_batches_are_no_markers() -> None:
    """KRaft's control types, later ones, and what the cleaner left of a marker: nothing for a consumer to see."""
    for control_type in (2, 6, 99, -1):
        key = b"\x00\x00" + control_type.to_bytes(2, "big", signed=True)
        assert read_marker(control_batch(key, b"")) is None
    assert read_marker(RecordBatch(rewrite_batch(RecordBatch(COMMIT_MARKER), []))) is None


def test_later_versions_may_append_fields() -> None:
    """The fields known today are read from longer keys and values."""
    batch = control_batch(bytes.fromhex("0001 0000 ff"), bytes.fromhex("0001 00000008 ff"))

    assert read_marker(batch) == EndTransactionMarker(ControlType.ABORT, 8)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, "000000000007"),
        ("000000", "000000000007"),
        ("ffff0001", "000000000007"),
        ("00000001", None),
        ("00000001", "0000000000"),
        ("00000001", "ffff00000007"),
    ],
)
def test_damaged_markers_are_corrupt(key: str | None, value: str | None) -> None:
    """Missing, short, or of a version below zero."""
    batch = control_batch(*(None if field is None else bytes.fromhex(field) for field in (key, value)))

    with pytest.raises(CorruptBatchError):
        read_marker(batch)


def test_a_data_batch_is_no_control_batch() -> None:
    """Its records are the user's bytes, whatever they look like."""
    with pytest.raises(CorruptBatchError, match="data batch"):
        read_marker(RecordBatch(ONE_RECORD))


@given(st.none() | st.binary(max_size=12), st.none() | st.binary(max_size=12))
def test_random_control_records_raise_nothing_but_our_errors(key: bytes | None, value: bytes | None) -> None:
    """A marker, none, or CorruptBatchError."""
    try:
        marker = read_marker(control_batch(key, value))
    except CorruptBatchError:
        return
    assert marker is None or marker.control_type in ControlType
