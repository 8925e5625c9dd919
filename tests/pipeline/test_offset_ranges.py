"""Ranges of offsets: how they are divided among tasks, and limited by a trigger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.pipeline.sources.offset_ranges import OffsetRange, divided, limited
from ottla.protocol.identifiers import TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
SIZES = st.lists(st.integers(0, 200), min_size=4, max_size=4)


def ranges(sizes: list[int]) -> list[OffsetRange]:
    """Ranges of some sizes, that begin at 10."""
    return [OffsetRange(partition, 10, 10 + size) for partition, size in zip(PARTITIONS, sizes, strict=True)]


@given(SIZES, st.none() | st.integers(1, 50), st.none() | st.integers(1, 50))
@examples(60)
def test_parts_cover_what_is_divided_once(sizes: list[int], least: int | None, most: int | None) -> None:
    """Every offset is in exactly one part; there are enough parts, and none is too large."""
    parts = divided(ranges(sizes), least, most)

    covered = [(part.partition, offset) for part in parts for offset in range(part.begin, part.end)]
    assert covered == [(each.partition, offset) for each in ranges(sizes) for offset in range(each.begin, each.end)]
    assert all(part.size > 0 for part in parts)
    assert len(parts) >= min(least or 0, sum(sizes))
    if most is not None:
        assert all(part.size <= most for part in parts)


def test_parts_follow_the_sizes_of_partitions() -> None:
    """The largest is divided most."""
    parts = divided(ranges([100, 10, 0, 0]), 6, None)

    assert [part.size for part in parts] == [20, 20, 20, 20, 20, 10]


def test_nothing_is_divided_without_need() -> None:
    """One task for each partition that has records."""
    assert divided(ranges([5, 0, 7, 0]), 2, None) == [ranges([5, 0, 7, 0])[0], ranges([5, 0, 7, 0])[2]]


@given(SIZES, st.integers(1, 300))
@examples(60)
def test_a_limit_is_shared_out_and_starves_no_partition(sizes: list[int], limit: int) -> None:
    """All that is there up to the limit; past it about as much, and something of each partition."""
    begin = dict.fromkeys(PARTITIONS, 10)
    end = {partition: 10 + size for partition, size in zip(PARTITIONS, sizes, strict=True)}
    taken = {partition: offset - 10 for partition, offset in limited(begin, end, limit).items()}

    assert all(0 <= taken[partition] <= end[partition] - 10 for partition in PARTITIONS)
    assert all(taken[partition] > 0 for partition in PARTITIONS if end[partition] > 10)
    if sum(sizes) <= limit:
        assert sum(taken.values()) == sum(sizes)
    else:
        assert sum(taken.values()) <= limit + len(PARTITIONS)
