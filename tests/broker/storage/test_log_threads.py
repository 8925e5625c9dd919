"""A log is written, read, flushed, deleted from and robbed of its files by many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.storage.logs import NOW, append, make_batch, make_log, offsets
from tests.kit.clock import FakeClock

from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.retention import delete_old_segments, remove_doomed
from ottla.broker.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp
from ottla.broker.storage.open_files import OpenFiles
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import batches

APPENDS = 1000
LOGS = 4


def value_at(offset: int) -> bytes:
    """What the record at an offset holds."""
    return b"%d " % offset * (1 + offset % 30)


class Crowd:
    """Threads that work on the same logs until the appends are done; the first failure ends them all."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def add(self, work: Callable[[], object], *, times: int | None = None) -> None:
        def run() -> None:
            try:
                if times is not None:
                    for _ in range(times):
                        if self.failures:
                            return
                        work()
                else:
                    while not self.is_done.is_set():
                        work()
            except BaseException as failure:
                self.failures.append(failure)
                self.is_done.set()

        self.threads.append(threading.Thread(target=run, daemon=True))

    def run(self, writers: int) -> None:
        """Start all; the first `writers` threads end by themselves, and then the others are stopped."""
        for thread in self.threads:
            thread.start()
        for thread in self.threads[:writers]:
            thread.join(60)
        self.is_done.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def append_next(log: Log) -> None:
    offset = log.log_end_offset
    append(log, make_batch(value=value_at(offset), timestamps=[NOW + offset]))


def read_some(log: Log) -> None:
    """Read from the log start on, a few slices; each holds what was appended there, however late it is read."""
    offset = log.log_start_offset
    try:
        for max_bytes in (1, 500, 5000, 100_000):
            piece = log.read(offset, max_bytes, log.high_watermark)
            if piece is None:
                return
            for batch in batches(piece.read(), strict=True):
                batch.check()
                assert [(record.offset, record.value) for record in batch.records()] == [
                    (batch.base_offset, value_at(batch.base_offset))
                ]
                offset = batch.next_offset
    except KafkaError as error:
        # Deleted between two reads.
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise


def flush_some(log: Log) -> None:
    end = log.flush()
    assert log.recovery_point >= end


def delete_some(log: Log) -> None:
    delete_old_segments(log)
    remove_doomed(log)


def look_up(log: Log) -> None:
    start = log.log_start_offset
    found = offset_for_timestamp(log, NOW + start)
    assert found is None or found.offset >= start
    offset_of_max_timestamp(log)


@pytest.mark.parametrize("open_max", [2, 100])
def test_threads_do_not_harm_each_other(tmp_path: Path, open_max: int) -> None:
    """Several logs that share few descriptors: each appends, and all else happens to it meanwhile."""
    files, clock = OpenFiles(open_max), FakeClock(NOW)
    logs = [
        make_log(tmp_path / str(n), clock, files, segment_bytes=10_000, retention_bytes=50_000) for n in range(LOGS)
    ]
    crowd = Crowd()
    for log in logs:
        crowd.add(lambda log=log: append_next(log), times=APPENDS)  # type: ignore[misc]
    for log in logs:
        for work in (read_some, read_some, flush_some, delete_some, look_up):
            crowd.add(lambda work=work, log=log: work(log))  # type: ignore[misc]
    crowd.run(writers=LOGS)

    assert crowd.failures == []
    for log in logs:
        assert log.log_end_offset == APPENDS
        delete_some(log)
        start = log.log_start_offset
        assert offsets(log) == list(range(start, APPENDS))
        assert log.size < 50_000 + 10_000
        reopened = make_log(log.directory, clock, recovery_point=log.recovery_point, log_start_offset=start)
        assert reopened.log_end_offset == APPENDS
