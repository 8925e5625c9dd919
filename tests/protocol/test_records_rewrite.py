"""A rewritten batch loses records and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol.record_samples import TIMESTAMP, builder_of, numbered, record_lists

from ottla.protocol.compression import Codec
from ottla.protocol.errors import EncodeError
from ottla.protocol.record import Record
from ottla.protocol.record_batch_rewrite import rewrite_batch
from ottla.protocol.records import RecordBatch

HORIZON = TIMESTAMP + 86_400_000


def original(records: list[Record], codec: Codec = Codec.NONE, log_append_time: int | None = None) -> RecordBatch:
    """A transactional batch with every field set."""
    return RecordBatch(
        builder_of(records).build(
            base_offset=1000,
            partition_leader_epoch=9,
            producer_id=77,
            producer_epoch=5,
            base_sequence=2147483645,
            transactional=True,
            codec=codec,
            log_append_time=log_append_time,
        )
    )


def fixed_fields(batch: RecordBatch) -> dict[str, object]:
    """The fields that a batch keeps for life."""
    names = ("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    more = ("last_sequence", "is_transactional", "is_control", "timestamp_type")
    return {name: getattr(batch, name) for name in (*names, *more)}


@examples(60)
@given(record_lists, st.sampled_from(Codec), st.sampled_from([None, TIMESTAMP + 5]), st.data())
def test_kept_records_keep_everything(
    records: list[Record], codec: Codec, log_append_time: int | None, data: st.DataObject
) -> None:
    """Any subset of the records, through any codec, with both timestamp types."""
    batch = original(records, codec, log_append_time)
    kept = [record for record in batch.records() if data.draw(st.booleans())]
    rewritten = RecordBatch(rewrite_batch(batch, kept))

    rewritten.check()
    assert list(rewritten.records()) == kept
    assert rewritten.record_count == len(kept)
    assert fixed_fields(rewritten) == fixed_fields(batch)
    assert rewritten.codec is (codec if kept else Codec.NONE)


def test_a_delete_horizon_is_set_once_and_stays() -> None:
    """Timestamps hold though the base timestamp has become the horizon; later rewrites keep that one."""
    batch = original(numbered(6))
    records = list(batch.records())
    first = RecordBatch(rewrite_batch(batch, records[::2], delete_horizon=HORIZON))
    second = RecordBatch(rewrite_batch(first, records[2::2]))

    for rewritten in (first, second):
        assert rewritten.has_delete_horizon
        assert rewritten.base_timestamp == HORIZON
    assert list(second.records()) == records[2::2]
    assert second.max_timestamp == max(record.timestamp for record in records[2::2])


def test_a_batch_without_records_is_a_bare_header() -> None:
    """61 bytes that still tell offsets and sequence; neither codec nor horizon."""
    batch = original(numbered(6), Codec.ZSTD)
    emptied = RecordBatch(rewrite_batch(batch, [], delete_horizon=HORIZON))

    emptied.check()
    assert emptied.size == 61
    assert list(emptied.records()) == []
    assert fixed_fields(emptied) == fixed_fields(batch)
    assert (emptied.base_timestamp, emptied.max_timestamp) == (-1, batch.max_timestamp)
    assert not emptied.is_compressed
    assert not emptied.has_delete_horizon


def test_another_codec_may_be_asked_for() -> None:
    """Topics with a codec of their own have batches recompressed on arrival."""
    batch = original(numbered(6), Codec.GZIP)
    for codec in Codec:
        rewritten = RecordBatch(rewrite_batch(batch, batch.records(), codec=codec))
        assert rewritten.codec is codec
        assert list(rewritten.records()) == list(batch.records())


def test_foreign_records_are_refused() -> None:
    """A record outside the batch's offsets cannot be put into it."""
    batch = original(numbered(2))

    for offset in (999, 1002):
        with pytest.raises(EncodeError):
            rewrite_batch(batch, [Record(offset, TIMESTAMP, b"k", b"v", [])])
