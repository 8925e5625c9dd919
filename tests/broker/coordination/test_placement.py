"""The partition of a group, with test vectors from Kafka."""

from __future__ import annotations

import pytest

from ottla.broker.coordination.placement import _known_hash, java_hash, partition_for


@pytest.mark.parametrize(
    ("group_id", "value", "partition"),
    [
        ("my-group", -1906497762, 12),
        ("test-txn", -1147936081, 31),
        ("polygenelubricants", -2147483648, 0),
        ("", 0, 0),
    ],
)
def test_a_group_has_the_partition_that_java_gives_it(group_id: str, value: int, partition: int) -> None:
    """This includes the hash -2^31, which Java cannot negate."""
    assert (java_hash(group_id), partition_for(group_id, 50)) == (value, partition)


def test_characters_outside_the_basic_plane_count_as_two() -> None:
    """Java hashes UTF-16 units: U+1F600 is D83D DE00."""
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_long_ids_are_not_remembered() -> None:
    """Clients may make up as many as they like, of 32 KB each."""
    before = _known_hash.cache_info().currsize
    for number in range(10):
        partition_for(f"{number}-".ljust(256, "x"), 50)
    assert _known_hash.cache_info().currsize == before
    assert partition_for("my-group", 50) == partition_for("my-group", 50) == 12
