"""What a record batch costs: the broker's work on an opaque batch, and the client's work on its records.

    python bench/batch.py

The broker's rows stand beside the bare CRC call over the same bytes, measured in the same run: the difference is what
our code adds. Each number is the best of several rounds.
"""

from __future__ import annotations

import gc
import platform
import sys
import time
from collections.abc import Callable

from crc32c import crc32c

from ottla.protocol.compression import Codec
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import ATTRIBUTES_POSITION, RecordBatch, batches

ROUNDS = 25
ROUND_SECONDS = 0.02
TIMESTAMP = 1_700_000_000_000


def microseconds(operation: Callable[[], object], per: int = 1) -> float:
    """The cost of one of the `per` things that `operation` does, in the best round."""
    count = 1
    while (elapsed := _elapsed(operation, count)) < ROUND_SECONDS:
        count = max(2 * count, int(count * ROUND_SECONDS / elapsed))
    return min(_elapsed(operation, count) for _ in range(ROUNDS)) / count / per * 1e6


def _elapsed(operation: Callable[[], object], count: int) -> float:
    repeat = range(count)
    start = time.perf_counter()
    for _ in repeat:
        operation()
    return time.perf_counter() - start


def batch_of(size: int, value_bytes: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch of about `size` bytes before compression, with values that compress a little."""
    builder = RecordBatchBuilder()
    while builder.size + value_bytes < size or builder.record_count == 0:
        number = builder.record_count
        builder.append(TIMESTAMP + number // 10, None, (b"%08d" % number) * (value_bytes // 8))
    return builder.build(codec=codec)


def broker_rows(size: int) -> None:
    batch = batch_of(size, 96)
    view = memoryview(batch)
    covered = view[ATTRIBUTES_POSITION:]

    def receive() -> None:
        received = RecordBatch(view)
        received.check()
        received.patch(1_000_000, 7)

    bare = microseconds(lambda: crc32c(covered))
    parse = microseconds(lambda: RecordBatch(view))
    full = microseconds(receive)
    print(
        f"{len(batch):>8} B   bare CRC {bare:7.2f}   header {parse:5.2f}   header, CRC and patch {full:7.2f}"
        f"   over the bare CRC {full - bare:5.2f}"
    )


def record_rows(value_bytes: int, codec: Codec) -> None:
    batch = batch_of(64 * 1024, value_bytes, codec)
    view = RecordBatch(batch)
    count = view.record_count
    values = [record.value for record in view.records()]

    def append() -> None:
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(TIMESTAMP, None, value)
        builder.build(codec=codec)

    def read() -> None:
        for _ in view.records():
            pass

    write_cost, read_cost = microseconds(append, count), microseconds(read, count)
    print(f"{value_bytes:>8} B values, {codec.config_name:<6}   write {write_cost:6.2f}   read {read_cost:6.2f}")


def main() -> None:
    gc.freeze()
    print(f"Python {platform.python_version()}, {sys.platform} {platform.machine()}; µs, best of {ROUNDS} rounds\n")
    print("the broker: per batch")
    for size in (1024, 16 * 1024, 1024 * 1024):
        broker_rows(size)
    scan = bytes(batch_of(1024, 96)) * 64
    print(f"{'scan':>8}: {microseconds(lambda: sum(1 for _ in batches(scan)), 64):.2f} per batch of 1 KiB")
    print("\nthe client: per record, in batches of 64 KiB")
    for value_bytes in (96, 1000):
        for codec in Codec:
            record_rows(value_bytes, codec)


if __name__ == "__main__":
    main()
