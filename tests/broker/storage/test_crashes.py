"""After any crash a log opens at a batch boundary, and what was appended before is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker.storage.logs import (
    NOW,
    append,
    append_marker,
    fill,
    make_batch,
    make_log,
    make_marker,
    offsets,
    read_all,
)

from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType

ROOT = Path(__file__).parents[3]
SIZE = len(make_batch())


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_writer_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Killed 40 times at any moment, over the same log; what the kernel has, a dead process cannot lose."""
    program = [sys.executable, "-m", "tests.broker.storage.killed_writer", str(tmp_path), "40", str(seed)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("behind", [b"", bytes(300), b"\xff" * 300])
@pytest.mark.parametrize("last", ["data", "marker", "compressed"])
def test_a_batch_cut_at_any_byte_is_not_there(tmp_path: Path, last: str, behind: bytes) -> None:
    """Header, records, and with zeros or garbage behind: the log ends with the batch before it."""
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=7, transactional=True))
    fill(log, 2)
    begin = log.active.size
    if last == "marker":
        append_marker(log, make_marker(ControlType.ABORT, 7))
    else:
        append(log, make_batch(3, codec=Codec.ZSTD if last == "compressed" else Codec.NONE))
    end = log.active.size
    path = log.active.path
    data = path.read_bytes()[:end]
    for size in range(begin, end):
        left = data[:size] + behind
        path.write_bytes(left)
        log = make_log(tmp_path)
        # What lies behind may happen to be what was lost.
        expected = [0, 1, 2, 3] if left[:end] == data else [0, 1, 2]
        assert offsets(log) == expected, size
        assert len(log.active.offset_index) == len([position for position in [SIZE * 2] if position < log.active.size])
        assert log.last_stable_offset == (4 if last == "marker" and len(expected) == 4 else 0)
        path.write_bytes(data)


def test_appends_go_on_after_each_crash(tmp_path: Path) -> None:
    """With the next offset and sequence."""
    for round_number in range(10):
        log = make_log(tmp_path, recovery_point=round_number * 3)
        for sequence in range(4):
            append(log, make_batch(producer_id=7, sequence=round_number * 3 + sequence))
        log.flush()
        os.truncate(log.active.path, log.active.size - 1)

    assert offsets(make_log(tmp_path)) == list(range(30))


def test_a_whole_batch_that_lies_behind_a_torn_one_is_not_taken(tmp_path: Path) -> None:
    """The log is what was appended, without holes."""
    log = make_log(tmp_path)
    fill(log, 6)
    path, data = log.active.path, log.active.path.read_bytes()
    path.write_bytes(data[: 3 * SIZE] + bytes(SIZE) + data[4 * SIZE :])

    assert offsets(make_log(tmp_path)) == [0, 1, 2]


def test_what_an_earlier_run_left_behind_the_end_does_not_come_back(tmp_path: Path) -> None:
    """Cut batches are gone from the file, so that a shorter one written over them is not followed by old ones."""
    log = make_log(tmp_path)
    for number in range(3):
        append(log, make_batch(value=b"old" * 10, timestamps=[NOW + number]))
    os.truncate(log.active.path, len(make_batch(value=b"old" * 10)) * 2 + 7)
    log = make_log(tmp_path)
    append(log, make_batch(value=b"new"))

    assert [[record.value for record in batch.records()] for batch in read_all(make_log(tmp_path))] == [
        [b"old" * 10],
        [b"old" * 10],
        [b"new"],
    ]
