"""Whether a group reads: one that stopped is told from one that is slow; and how old what it has not read is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.kit.clock import FakeClock

from ottla.client.admin.admin import Admin
from ottla.console.cluster.group_progress import Progress, partition_progress, worst
from ottla.console.cluster.rates import Rates
from ottla.console.cluster.time_lag import TimeLags
from ottla.protocol.identifiers import TopicPartition

PARTITION = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("read", "written", "has_reader", "expected"),
    [
        ((10, 10, 10), (100, 100, 100), True, "stopped"),
        ((10, 10, 10), (100, 150, 200), True, "stopped"),
        ((10, 20, 30), (100, 150, 200), True, "falling_behind"),
        ((10, 60, 110), (100, 150, 200), True, "catching_up"),
        ((10, 99, 200), (100, 150, 200), True, "caught_up"),
        ((10, 10, 10), (100, 100, 100), False, "stopped"),
        ((10, 60, 110), (100, 150, 200), False, "catching_up"),
    ],
)
def test_a_group_that_stopped_is_told_from_one_that_is_slow(
    read: tuple[int, ...], written: tuple[int, ...], has_reader: bool, expected: Progress
) -> None:
    """From offsets at three looks, ten seconds apart."""
    clock = FakeClock(0.0)
    rates = Rates(clock)
    told = []
    for committed, end in zip(read, written, strict=True):
        told.append(partition_progress(rates, "billing", PARTITION, committed, end, has_reader=has_reader))
        clock.now += 10.0
    assert told[-1] == expected


def test_a_pause_between_two_commits_is_no_stop() -> None:
    """Clients commit every five seconds; one look says nothing."""
    clock = FakeClock(0.0)
    rates = Rates(clock)
    assert partition_progress(rates, "billing", PARTITION, 1, 5, has_reader=True) is None
    clock.now += 6.0
    assert partition_progress(rates, "billing", PARTITION, 1, 5, has_reader=True) is None


def test_the_worst_partition_counts() -> None:
    """One that nothing is known of does not hide the others."""
    assert worst(["caught_up", None, "falling_behind", "catching_up"]) == "falling_behind"
    assert worst([None]) is None


class Times:
    """Records with these times, and the offsets that were asked for."""

    def __init__(self, times: Mapping[int, int]) -> None:
        self.asked: list[int] = []
        self._times = times

    async def record_times(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked += offsets.values()
        return {partition: self._times[offset] for partition, offset in offsets.items() if offset in self._times}


async def test_a_record_is_asked_for_once_a_minute() -> None:
    """A group that stands still costs nothing, though its lag grows; what could not be read is asked for again."""
    admin: Any = Times({3: 1_000, 4: 2_000})
    clock = FakeClock(10_000)
    lags = TimeLags(cast(Admin, admin), lambda: int(clock()), kept=2)
    for seconds in range(3):
        await lags.read({PARTITION: 3})
        assert lags.known({PARTITION: 3}) == {PARTITION: 9_000 + 1_000 * seconds}
        clock.now += 1_000
    assert admin.asked == [3]
    clock.now += 60_000
    await lags.read({PARTITION: 3})
    await lags.read({PARTITION: 9})
    await lags.read({PARTITION: 9})
    assert (admin.asked, lags.known({PARTITION: 9})) == ([3, 3, 9, 9], {})
    for offset in (4, 3, 4):
        await lags.read({PARTITION: offset})
    assert admin.asked == [3, 3, 9, 9, 4]
