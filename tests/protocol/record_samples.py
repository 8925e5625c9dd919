"""Batches and records for the tests of `ottla.protocol.records` and its neighbours."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterable

from crc32c import crc32c
from hypothesis import strategies as st

from ottla.protocol.record import Record
from ottla.protocol.record_batch_builder import RecordBatchBuilder

TIMESTAMP = 1_700_000_000_000

# Key k, value v, TIMESTAMP, base offset 0, no leader epoch, no producer.
ONE_RECORD = bytes.fromhex(
    "00000000000000000000003affffffff02e99b8dd80000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000110000000026b027600"
)

# COMMIT by producer 1000, epoch 3, coordinator epoch 7, at TIMESTAMP.
COMMIT_MARKER = bytes.fromhex(
    "000000000000000000000042ffffffff02ad320ccb0030000000000000018bcfe568000000018bcfe56800"
    "00000000000003e80003ffffffff000000012000000008000000010c00000000000700"
)

headers = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3)
timestamps = st.integers(0, 2 * TIMESTAMP) | st.integers(-(1 << 63), (1 << 63) - 1)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(TIMESTAMP, TIMESTAMP + 200) | timestamps,
    key=st.none() | st.binary(max_size=100),
    value=st.none() | st.binary(max_size=300),
    headers=st.just([]) | headers,
)
record_lists = st.lists(records, min_size=1, max_size=20).map(
    lambda drawn: [record._replace(offset=offset) for offset, record in enumerate(drawn)]
)


def builder_of(records: Iterable[Record]) -> RecordBatchBuilder:
    """A builder that holds these records, at the next offsets rather than at their own."""
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder


def numbered(count: int, value_bytes: int = 20) -> list[Record]:
    """Records that differ from each other, ten of them in each millisecond."""
    return [
        Record(number, TIMESTAMP + number // 10, b"key-%d" % number, (b"%d " % number) * (value_bytes // 4), [])
        for number in range(count)
    ]


def batch_around(records: bytes, *, count: int, attributes: int = 0, base_timestamp: int = TIMESTAMP) -> bytearray:
    """A batch with a right CRC around bytes that need not be records."""
    covered = struct.pack(">hiqqqhii", attributes, max(count - 1, 0), base_timestamp, TIMESTAMP, -1, -1, -1, count)
    covered += records
    return bytearray(struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered)


def peak_bytes(operation: Callable[[], object]) -> int:
    """How much memory Python's allocators held at most while `operation` ran, more than before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        operation()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before
