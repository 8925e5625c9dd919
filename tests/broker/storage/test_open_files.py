"""Open files stay near their bound, and who is busy or was just used keeps them."""

from __future__ import annotations

from pathlib import Path

from tests.broker.storage.logs import NOW, append, descriptors, make_batch, make_log, read_all
from tests.kit.clock import FakeClock

from ottla.broker.storage.open_files import OpenFiles


class Holder:
    """Counts how often it was asked."""

    def __init__(self, *, is_busy: bool = False) -> None:
        self.used = False
        self.is_busy = is_busy
        self.released = 0

    def release(self) -> bool:
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
