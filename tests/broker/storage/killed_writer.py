"""Appends in child processes, kills them, and looks at what they leave: `python -m ... DIRECTORY KILLS SEED`.

A program of its own because it forks: it has one thread, which a test process need not have.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
from pathlib import Path
from struct import Struct

from tests.broker.storage.logs import append, append_marker, make_batch, make_log, make_marker, read_all

from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.retention import delete_old_segments, remove_doomed
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType

# The offset that was appended or flushed up to, and which of the two.
_REPORT = Struct(">q?")
_PRODUCER_ID = 9
_OPTIONS = {"segment_bytes": 200_000, "index_interval_bytes": 4096, "retention_bytes": 600_000}
_FIRST_REPORT_SECONDS = 30


def value_at(offset: int) -> bytes:
    """What is in the records of a batch, always the same at an offset; some are long, and take a while to copy."""
    chooser = random.Random(offset)
    return chooser.randbytes(8) * chooser.choice([1, 10, 100, 2000, 7000])


def append_until_killed(log: Log, report_fd: int, chooser: random.Random) -> None:
    """Go on where the log ends; the transaction that is open goes on too."""
    sequence = next((entry.last_sequence + 1 for entry in log.producers.entries()), 0)
    while True:
        offset = log.log_end_offset
        action = chooser.random()
        if action < 0.1:
            append_marker(log, make_marker(chooser.choice(list(ControlType)), _PRODUCER_ID))
        elif action < 0.4:
            data = make_batch(value=value_at(offset), producer_id=_PRODUCER_ID, sequence=sequence, transactional=True)
            sequence += 1
            append(log, data)
        else:
            count = chooser.randrange(1, 4)
            append(log, make_batch(count, value=value_at(offset), codec=chooser.choice([Codec.NONE, Codec.LZ4])))
        os.write(report_fd, _REPORT.pack(log.log_end_offset, False))
        if chooser.random() < 0.2:
            os.write(report_fd, _REPORT.pack(log.flush(), True))
        if chooser.random() < 0.02:
            delete_old_segments(log)
            remove_doomed(log)


def run_and_kill(log: Log, chooser: random.Random) -> tuple[int, int]:
    """Kill a child some milliseconds after its first append; return what it reported as appended and flushed."""
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_fd)
        append_until_killed(log, write_fd, chooser)
    os.close(write_fd)
    try:
        select.select([read_fd], [], [], _FIRST_REPORT_SECONDS)
        select.select([], [], [], chooser.random() * 0.015)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, f"the writer ended by itself: {status}"
        reports = b""
        while more := os.read(read_fd, 1 << 16):
            reports += more
    finally:
        os.close(read_fd)
    whole = len(reports) - len(reports) % _REPORT.size
    appended = flushed = 0
    for offset, is_flush in _REPORT.iter_unpack(reports[:whole]):
        appended, flushed = max(appended, offset), max(flushed, offset if is_flush else 0)
    return appended, flushed


def check(log: Log, appended: int) -> None:
    """Everything that was appended is there, once, with the right CRC and the right records."""
    assert log.log_end_offset >= appended, f"{log} lost records below {appended}"
    expected = log.log_start_offset
    for batch in read_all(log, 1 << 20):
        assert batch.base_offset == expected
        if not batch.is_control:
            assert {record.value for record in batch.records()} == {value_at(expected)}
        expected = batch.next_offset
    assert expected == log.log_end_offset


def main(directory: Path, kills: int, seed: int) -> None:
    chooser = random.Random(seed)
    recovery_point = 0
    for _ in range(kills):
        log = make_log(directory, recovery_point=recovery_point, **_OPTIONS)  # type: ignore[arg-type]
        appended, flushed = run_and_kill(log, random.Random(chooser.random()))
        # Not always the newest: the checkpoint is written from time to time.
        recovery_point = max(recovery_point, chooser.choice([flushed, flushed, 0]))
        check(make_log(directory, recovery_point=recovery_point, **_OPTIONS), appended)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
