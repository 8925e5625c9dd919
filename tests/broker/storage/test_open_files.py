"""Open files stay near their bound, and who is busy or was just used keeps them."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.broker.storage.logs import NOW, append, descriptors, fill, make_batch, make_log, read_all
from tests.kit.clock import FakeClock

from ottla.broker.storage.open_files import OpenFiles


class Holder:
    """Counts how often it was asked."""

    def __init__(self, *, is_busy: bool = False, used: bool = False) -> None:
        self.used = used
        self.lock = threading.Lock()
        self.is_busy = is_busy
        self.asked = 0
        self.released = 0

    def release(self, held: threading.Lock) -> bool:
        self.asked += 1
        if self.is_busy:
            return False
        self.released += 1
        return True


def test_within_the_bound_nobody_is_asked() -> None:
    """Up to the bound, files stay open."""
    files = OpenFiles(3)
    holders = [Holder() for _ in range(3)]
    for holder in holders:
        files.opened(holder)

    assert (len(files), sum(holder.released for holder in holders)) == (3, 0)


def test_the_one_not_used_for_longest_is_released() -> None:
    """Opening one more closes one."""
    files = OpenFiles(2)
    first, second, third = Holder(), Holder(), Holder()
    for holder in (first, second, third):
        files.opened(holder)

    assert (first.released, second.released, third.released, len(files)) == (1, 0, 0, 2)


def test_the_used_get_a_second_chance() -> None:
    """Whoever was used since the last look is passed over once."""
    files = OpenFiles(2)
    first, second, third, fourth = Holder(), Holder(), Holder(), Holder()
    files.opened(first)
    files.opened(second)
    first.used = True
    files.opened(third)
    files.opened(fourth)

    assert (second.released, first.released) == (1, 1) or (second.released, third.released) == (1, 1)
    assert not first.used


def test_the_busy_are_passed_over() -> None:
    """They keep their files, and the bound is passed rather than waited for."""
    files = OpenFiles(1)
    busy, free, late = Holder(is_busy=True), Holder(), Holder(is_busy=True)
    for holder in (busy, free, late):
        files.opened(holder)

    assert (free.released, len(files)) == (1, 2)


def test_who_closes_by_itself_is_forgotten() -> None:
    """A second time does no harm."""
    files = OpenFiles(1)
    holder = Holder()
    files.opened(holder)
    files.closed(holder)
    files.closed(holder)

    assert len(files) == 0


def test_three_hundred_logs_need_few_descriptors(tmp_path: Path) -> None:
    """All of them are written and read in turn, with a bound of twenty."""
    files, clock = OpenFiles(20), FakeClock(NOW)
    before = descriptors()
    logs = [make_log(tmp_path / str(number), clock, files) for number in range(300)]
    most = 0
    for number in range(3):
        for log in logs:
            append(log, make_batch(value=b"%d" % number))
            most = max(most, descriptors() - before)
    counts = []
    for log in logs:
        counts.append(len(read_all(log)))
        most = max(most, descriptors() - before)

    # A segment that is written has its file and its map.
    assert most <= 2 * 20 + 5
    assert counts == [3] * 300
    assert len(files) <= 21


def test_a_log_of_three_hundred_segments_needs_few_descriptors(tmp_path: Path) -> None:
    """Whoever opens one has the lock of the log, and closes another segment of the same log."""
    files = OpenFiles(8)
    before = descriptors()
    log = make_log(tmp_path, files=files, segment_bytes=100)
    most = 0
    for number in range(300):
        append(log, make_batch(value=b"%d" % number))
        most = max(most, len(files))
    assert len(log.segments) == 300
    for offset in range(300):
        assert log.read(offset, 1000) is not None
        most = max(most, len(files))
    log.flush()

    assert most <= 9
    # A segment that is written has its file and its map.
    assert descriptors() - before <= 2 * 9


def test_files_are_closed_under_nobody_who_reads_them(tmp_path: Path) -> None:
    """A walk over one segment goes on while the same log opens others, and closes what it can."""
    files = OpenFiles(1)
    log = make_log(tmp_path, files=files, segment_bytes=1000, index_interval_bytes=10**6)
    fill(log, 30)
    with log.lock:
        headers = log.segments[0].headers_from(0)
        batches = log.segments[0].read_batches()
        found = [(next(headers).base_offset, next(batches)[1].base_offset)]
        for other in log.segments[1:]:
            other.find(other.base_offset)
        found += [(header.base_offset, batch.base_offset) for header, (_, batch) in zip(headers, batches, strict=True)]

    assert found == [(offset, offset) for offset in range(len(found))]
    assert len(files) == 1


def test_few_are_looked_at_however_many_are_busy() -> None:
    """The lock of a log is held meanwhile."""
    files = OpenFiles(10)
    busy = [Holder(is_busy=True) for _ in range(500)]
    for holder in busy:
        files.opened(holder)
    asked = sum(holder.asked for holder in busy)
    files.opened(Holder())

    assert sum(holder.asked for holder in busy) - asked <= 8


def test_the_bound_holds_where_all_were_just_used() -> None:
    """One of them goes all the same, without a look at every other."""
    files = OpenFiles(100)
    holders = [Holder(used=True) for _ in range(101)]
    for holder in holders:
        files.opened(holder)

    assert (len(files), sum(holder.released for holder in holders)) == (100, 1)
    assert sum(not holder.used for holder in holders) <= 8
