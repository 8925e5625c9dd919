"""An offset map answers as a dict would, within the memory that it was given."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.storage.compaction.offset_map import NOT_FOUND, SLOT_BYTES, OffsetMap
from ottla.broker.storage.errors import StorageError

keys = st.binary(max_size=3) | st.binary(min_size=100, max_size=300)


@examples(50)
@given(st.lists(st.tuples(keys, st.integers(0, 2**62)), max_size=200), st.integers(2, 60), st.floats(0.5, 1.0))
def test_a_map_holds_what_a_dict_would_until_it_is_full(
    entries: list[tuple[bytes, int]], slots: int, load_factor: float
) -> None:
    """Known keys take new offsets also in a full map; new ones are refused there and change nothing."""
    offsets = OffsetMap(slots * SLOT_BYTES, load_factor, expected=1000)
    model: dict[bytes, int] = {}
    for key, offset in entries:
        has_room = key in model or len(model) < offsets.capacity
        assert offsets.put(key, offset) is has_room
        if has_room:
            model[key] = offset
        assert offsets.get(key) == model.get(key, NOT_FOUND)
    assert len(offsets) == len(model)
    assert {key: offsets.get(key) for key, _ in entries} == {key: model.get(key, NOT_FOUND) for key, _ in entries}


@pytest.mark.parametrize("slots", [2, 3, 4, 10, 1000])
def test_a_map_is_full_at_its_load_factor_at_the_latest(slots: int) -> None:
    """Every map takes at least one key, and leaves the share free that makes searches short."""
    offsets = OffsetMap(slots * SLOT_BYTES, 0.9, expected=10**9)
    taken = 0
    while offsets.put(b"%d" % taken, taken):
        taken += 1

    assert 1 <= taken <= slots * 0.9
    assert taken == offsets.capacity == len(offsets)
    assert [offsets.get(b"%d" % number) for number in range(taken)] == list(range(taken))
    assert offsets.get(b"absent") == NOT_FOUND


@pytest.mark.parametrize(("map_bytes", "load_factor"), [(1, 0.9), (24, 0.9), (24, 1.0), (4800, 0.0)])
def test_memory_for_no_key_at_all_is_refused_by_the_name_of_the_option(map_bytes: int, load_factor: float) -> None:
    """Who reads the error knows what to set."""
    with pytest.raises(StorageError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(map_bytes, load_factor, expected=10)


def test_a_map_takes_no_more_memory_than_it_may() -> None:
    """A full map has 24 bytes for each slot, and its making needs nothing beside."""
    bytes_max = 24 * 20_000
    tracemalloc.start()
    try:
        offsets = OffsetMap(bytes_max, 0.9, expected=10**9)
        for number in range(offsets.capacity):
            offsets.put(b"key-%d" % number, number)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(offsets) == offsets.capacity >= 17_900
    assert offsets.memory_bytes <= bytes_max
    assert peak <= bytes_max + 4096


def test_a_map_takes_little_memory_for_few_keys() -> None:
    """What is expected decides; the bound may be that of a log a million times as large."""
    offsets = OffsetMap(128 * 1024 * 1024, 0.9, expected=100)

    assert offsets.capacity >= 100
    assert offsets.memory_bytes < 24 * 200
    assert repr(offsets) == f"OffsetMap(0 of {offsets.capacity} keys, {offsets.memory_bytes} bytes)"
