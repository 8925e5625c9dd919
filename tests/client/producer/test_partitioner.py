"""The partitioner agrees with Java's, byte for byte."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as independent_murmur2
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producer.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", 275646681),
        (b"a", -1563381124),
        (b"abc", 479470107),
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
    ],
)
def test_hashes_are_those_of_java(key: bytes, expected: int) -> None:
    """Which are signed there."""
    assert murmur2(key) == expected % (1 << 32)


@given(st.binary(max_size=100))
def test_any_key_hashes_as_another_client_hashes_it(key: bytes) -> None:
    """Of every length of the last word."""
    assert murmur2(key) == independent_murmur2(key) % (1 << 32)


@given(st.binary(max_size=200), st.integers(1, 1000))
def test_a_key_always_goes_to_the_same_partition(key: bytes, count: int) -> None:
    """One that exists, by the hash without its sign."""
    partition = partition_of_key(key, count)

    assert partition == (murmur2(key) & 0x7FFFFFFF) % count
    assert partition == partition_of_key(key, count)
