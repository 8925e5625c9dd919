"""Appends and compacts in child processes, kills them, and looks at what they leave: `python -m ... DIRECTORY KILLS`.

A program of its own because it forks: it has one thread, which a test process need not have.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from itertools import count
from pathlib import Path

from tests.broker.storage.compaction.compacting import LIMITS, PARTITION, Bench, Pair, check_nothing_is_lost

from ottla.broker.storage.checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offsets, write_offsets
from ottla.protocol.compression import Codec
from ottla.protocol.record import Record

__all__ = ["LIMITS"]

_BATCHES_PER_ROUND = 12


def batch_at(offset: int) -> list[Pair]:
    """The two records at an offset and the next, always the same."""
    return [(b"key-%d" % (offset % 14), b"%d" % offset * 10), (b"other-%d" % (offset % 6), b"%d" % offset)]


def append_and_compact(directory: Path, acknowledge_fd: int) -> None:
    """Go on where the log ends, until killed; each append is acknowledged by a byte."""
    bench = Bench(directory)
    checkpoint_path = directory / CLEANER_OFFSET_CHECKPOINT
    bench.checkpoint = read_offsets(checkpoint_path).get(PARTITION)
    for number in count():
        offset = bench.log.log_end_offset
        bench.append(batch_at(offset), Codec(offset // 2 % len(Codec)), producer=9, sequence=offset)
        os.write(acknowledge_fd, b".")
        if number % _BATCHES_PER_ROUND == 0:
            bench.roll()
            write_offsets(checkpoint_path, {PARTITION: bench.compact().cleaned_up_to})


def run_and_kill(directory: Path, acknowledgements: int) -> int:
    """Kill a child some time after so many acknowledgements; return how many it gave in all."""
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_fd)
        append_and_compact(directory, write_fd)
    os.close(write_fd)
    received = 0
    while received < acknowledgements:
        received += len(os.read(read_fd, acknowledgements - received))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(read_fd, 65536):
        received += len(more)
    os.close(read_fd)
    return received


def main(directory: Path, kills: int) -> None:
    """Kill again and again, and check each time."""
    choose = random.Random(20)
    end_offset = 0
    for _ in range(kills):
        received = run_and_kill(directory, choose.randrange(1, 80))
        bench = Bench(directory)
        # The last append may be whole though nobody was told.
        assert bench.log.log_end_offset - end_offset in (2 * received, 2 * received + 2)
        end_offset = bench.log.log_end_offset
        timestamp = bench.clock()
        appended = {
            offset + place: Record(offset + place, timestamp, key, value, [])
            for offset in range(0, end_offset, 2)
            for place, (key, value) in enumerate(batch_at(offset))
        }
        check_nothing_is_lost(bench.log, appended)
        bench.check_reads()
        assert [entry.last_sequence for entry in bench.log.producers.entries()] == [end_offset - 1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
