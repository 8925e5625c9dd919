"""Choose the partition of a record by the hash of its key, as Java's producer does, so that clients agree."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

# Called with the key, all partitions, and those that have a leader; returns one of them.
Partitioner: TypeAlias = Callable[[bytes | None, Sequence[int], Sequence[int]], int]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
# Longer keys are hashed each time, so that the cache has bounded memory.
_REMEMBERED_KEY_BYTES_MAX: Final = 64
_REMEMBERED_KEYS_MAX: Final = 1 << 14


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit hash that Kafka calls murmur2."""
    length = len(data)
    hashed = _SEED ^ length
    words, rest = divmod(length, 4)
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ word
    if rest:
        hashed = (hashed ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


_remembered = lru_cache(_REMEMBERED_KEYS_MAX)(murmur2)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key."""
    hashed = _remembered(key) if len(key) <= _REMEMBERED_KEY_BYTES_MAX else murmur2(key)
    return (hashed & 0x7FFFFFFF) % partition_count
