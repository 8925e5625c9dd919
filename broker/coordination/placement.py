"""Maps groups and transactional ids to partitions of the internal topics. The leader of the partition coordinates."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

_LEAST_INT32: Final = -(2**31)
_KNOWN_MAX: Final = 65_536
_KNOWN_LENGTH_MAX: Final = 255


def java_hash(text: str) -> int:
    """Return the hash code of a string in Java: h = 31 h + c over its UTF-16 units, as a signed 32-bit number."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(encoded), 2):
        value = (31 * value + (encoded[index] << 8 | encoded[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


_known_hash = lru_cache(maxsize=_KNOWN_MAX)(java_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of an id. As in Kafka, the hash -2^31 counts as 0: Java cannot negate it."""
    # A client may make up ids of 32 KB: those are not worth their memory.
    value = _known_hash(key) if len(key) <= _KNOWN_LENGTH_MAX else java_hash(key)
    return 0 if value == _LEAST_INT32 else abs(value) % partition_count
