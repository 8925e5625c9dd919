"""What the log adds to the bare work of a disk: appending, reading, finding.

    python bench/storage.py [DIRECTORY]

Appends go through `validated` and `Log.append_as_leader`, CRC check included. They stand beside (a) a bare copy into a
mapped, preallocated file, and (b) a bare pwrite into one. The three take turns over the same number of bytes, each in
files whose pages are in memory already: the first touch of a page costs more than all else, and is nobody's merit.
Each number is the best of several rounds. DIRECTORY is where the files are; a file system in memory leaves the disk
out of the picture.
"""

from __future__ import annotations

import gc
import mmap
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from crc32c import crc32c

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.storage.log import Log
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.recovery.recovery import open_log
from ottla.broker.storage.validation import validated
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import ATTRIBUTES_POSITION

KIB = 1024
ROUNDS = 15
ROUND_BYTES = 64 * KIB * KIB
APPENDS_MAX = 8192
NOW = 1_700_000_000_000
PARTITION = TopicPartition("bench", 0)


def make_batch(size: int) -> bytes:
    """A batch of one record that does not compress, `size` bytes in all."""
    builder = RecordBatchBuilder()
    overhead = 61 + 16
    builder.append(NOW, None, random.Random(size).randbytes(size - overhead))
    return bytes(builder.build())


def make_log(directory: Path, **options: int) -> Log:
    overrides = {name.replace("_", "."): str(value) for name, value in options.items()}
    return open_log(directory, PARTITION, TopicConfig(BrokerConfig(), overrides), OpenFiles(10_000), lambda: NOW)


@contextmanager
def directory_for(parent: Path | None) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def seconds(operation: Callable[[], object]) -> float:
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


class Appends:
    """The contenders for batches of one size; each writes `count` of them, again and again to the same pages."""

    def __init__(self, directory: Path, size: int) -> None:
        self.data = memoryview(make_batch(size))
        self.size = len(self.data)
        self.count = min(ROUND_BYTES // size, APPENDS_MAX)
        total = self.size * self.count
        self.fd = os.open(directory / f"bare-{size}", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self.fd, 0, total)
        self.log = make_log(directory / f"log-{size}", segment_bytes=2**31 - 1)
        self.log.append_as_leader(validated(self.data, self.log.rules, NOW), 0)

    def rewind(self) -> None:
        """Let all begin again in the files that they have: pages in memory and clean, maps new."""
        os.fdatasync(self.fd)
        os.fdatasync(self.log.active.file.fd)
        self.map = mmap.mmap(self.fd, self.size * self.count)
        segment = self.log.active
        if segment._map is not None:
            segment._map._unmap()
        segment.size, segment.next_offset = 0, segment.base_offset
        segment.offset_index.reset()
        segment.time_index.reset()
        segment._largest, segment._bytes_since_index = (-1, 0), 0

    def through_the_log(self) -> None:
        log, data, rules = self.log, self.data, self.log.rules
        append = log.append_as_leader
        for _ in range(self.count):
            append(validated(data, rules, NOW), 0)

    def through_a_map(self) -> None:
        target, data, size = self.map, self.data, self.size
        position = 0
        for _ in range(self.count):
            target[position : position + size] = data
            position += size

    def through_a_map_with_crc(self) -> None:
        target, data, size = self.map, self.data, self.size
        covered = data[ATTRIBUTES_POSITION:]
        position = 0
        for _ in range(self.count):
            crc32c(covered)
            target[position : position + size] = data
            position += size

    def through_pwrite(self) -> None:
        fd, data, size = self.fd, self.data, self.size
        position = 0
        for _ in range(self.count):
            os.pwrite(fd, data, position)
            position += size

    def measure(self) -> list[float]:
        """Return µs per append of each contender."""
        contenders = (self.through_the_log, self.through_a_map, self.through_a_map_with_crc, self.through_pwrite)
        best = [float("inf")] * len(contenders)
        for _ in range(ROUNDS):
            for number, contender in enumerate(contenders):
                self.rewind()
                best[number] = min(best[number], seconds(contender))
        return [1e6 * each / self.count for each in best]


def append_rows(directory: Path) -> None:
    print("appending, µs per batch              log    (a) map   map+CRC  (b) pwrite   (a)/log  (b)/log  log-(map+CRC)")
    for size in (1 * KIB, 16 * KIB, 64 * KIB, 1024 * KIB):
        log, bare_map, map_crc, pwrite = Appends(directory, size).measure()
        print(
            f"{size // KIB:>10} KiB               {log:10.2f} {bare_map:10.2f} {map_crc:9.2f} {pwrite:11.2f}"
            f" {bare_map / log:9.2f} {pwrite / log:8.2f} {log - map_crc:14.2f}"
        )


def best_per_call(operation: Callable[[int], object], arguments: list[int]) -> float:
    """µs per call in the best round."""

    def call_all() -> None:
        for argument in arguments:
            operation(argument)

    call_all()
    return 1e6 * min(seconds(call_all) for _ in range(ROUNDS)) / len(arguments)


def read_rows(directory: Path) -> None:
    """Reading hands out a slice; the bytes are not touched."""
    print("\nreading at random offsets, µs")
    for size in (1 * KIB, 16 * KIB):
        log = make_log(directory / f"read-{size}")
        end = 32 * KIB * KIB // size
        data = make_batch(size)
        for _ in range(end):
            log.append_as_leader(validated(data, log.rules, NOW), 0)
        chooser = random.Random(1)
        offsets = [chooser.randrange(end) for _ in range(5000)]
        full = best_per_call(partial(log.read, max_bytes=KIB * KIB, upper_offset=end), offsets)
        bare = best_per_call(log.active.offset_index.lookup, offsets)
        print(f"{size // KIB:>10} KiB batches         read {full:6.2f}   bare index {bare:6.2f}")


def find_rows(directory: Path) -> None:
    """A log of a thousand segments."""
    log = make_log(directory / "find", segment_bytes=16 * KIB)
    data = make_batch(KIB)
    while len(log.segments) < 1000:
        log.append_as_leader(validated(data, log.rules, NOW), 0)
    chooser = random.Random(2)
    offsets = [chooser.randrange(log.log_end_offset) for _ in range(5000)]
    find = best_per_call(lambda offset: log.segments[log.index_of(offset)].find(offset), offsets)
    full = best_per_call(lambda offset: log.read(offset, KIB * KIB, log.log_end_offset), offsets)
    print(f"\na log of {len(log.segments)} segments, µs         find {find:6.2f}   read {full:6.2f}")


def roll_rows(directory: Path) -> None:
    """Beginning a segment, with the snapshot of a thousand producers."""
    log = make_log(directory / "roll")
    for number in range(1000):
        builder = RecordBatchBuilder()
        builder.append(NOW, None, b"v")
        data = bytes(builder.build(producer_id=number, producer_epoch=0, base_sequence=0))
        log.append_as_leader(validated(data, log.rules, NOW), 0)
    data = make_batch(KIB)

    def roll() -> None:
        log.append_as_leader(validated(data, log.rules, NOW), 0)
        log.roll()

    best = min(seconds(roll) for _ in range(ROUNDS))
    log.truncate_to(1)
    print(f"rolling, 1,000 producers, µs              {1e6 * best:6.0f}")


def main() -> None:
    gc.freeze()
    gc.disable()
    parent = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(f"Python {platform.python_version()}, {sys.platform} {platform.machine()}; best of {ROUNDS} rounds\n")
    with directory_for(parent) as directory:
        append_rows(directory)
        read_rows(directory)
        find_rows(directory)
        roll_rows(directory)


if __name__ == "__main__":
    main()
