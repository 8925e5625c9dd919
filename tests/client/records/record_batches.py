"""Record batches for tests of what reads them."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

from ottla.protocol.compression import Codec
from ottla.protocol.record_batch_builder import RecordBatchBuilder

# Timestamp, key, value and headers.
Written: TypeAlias = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

BLOBS = st.none() | st.binary(max_size=80)
RECORDS: st.SearchStrategy[list[Written]] = st.lists(
    st.tuples(
        st.integers(0, 1 << 45),
        BLOBS,
        BLOBS,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=200,
)


def built_batch(
    records: list[Written],
    *,
    codec: Codec = Codec.NONE,
    holes: int = 0,
    delete_horizon: int | None = None,
    **fields: Any,
) -> bytes:
    """Return a batch of these records, `holes` offsets apart from each other."""
    builder = RecordBatchBuilder(delete_horizon)
    for row, (timestamp, key, value, headers) in enumerate(records):
        builder.append(timestamp, key, value, headers, offset_delta=row * (holes + 1))
    return bytes(builder.build(codec=codec, **fields))


def simple_batch(count: int, **fields: Any) -> bytes:
    """Return a batch of `count` records with their numbers as values."""
    return built_batch([(number, None, b"%d" % number, []) for number in range(count)], **fields)
