"""The last offset of every key, in memory of a fixed size.

A slot takes 24 bytes: the 16 bytes of the key's MD5, and the offset plus one, or 0 if the slot is free. Two keys with
the same MD5 would be taken for one, as in Kafka. The slots are plain arrays of numbers: a dict takes six times as much
memory per entry, and has no fixed bound.

One half of a key's hash gives the first slot to look at, and the other half the step to the next. The number of slots
is prime, so steps of any length visit all of them. One slot is always free, so a search ends.
"""

from __future__ import annotations

from hashlib import md5
from math import isqrt
from struct import Struct
from typing import Final

from ottla.broker.storage.errors import StorageError

SLOT_BYTES: Final = 24
NOT_FOUND: Final = -1

_halves = Struct("=QQ").unpack


class OffsetMap:
    """Maps keys to offsets. Not thread-safe.

    It allocates what `expected` keys need at once, up to the limit: a growing table would need twice the memory while
    it grows.
    """

    __slots__ = ("_first_halves", "_offsets", "_second_halves", "_size", "_slots", "capacity")

    def __init__(self, bytes_max: int, load_factor: float, expected: int) -> None:
        slots_max = bytes_max // SLOT_BYTES
        wanted = int(min(expected / load_factor, slots_max)) + 2 if load_factor > 0 else slots_max
        slots = _prime(wanted, +1)
        if slots > slots_max:
            slots = _prime(slots_max, -1)
        # How many keys fit.
        self.capacity = min(int(slots * load_factor), slots - 1)
        if self.capacity < 1:
            raise StorageError(
                f"{bytes_max} bytes with a load factor of {load_factor} are too few for a single key: raise "
                f"log.cleaner.dedupe.buffer.size or log.cleaner.io.buffer.load.factor, or lower log.cleaner.threads"
            )
        self._slots = slots
        self._first_halves = memoryview(bytearray(8 * slots)).cast("Q")
        self._second_halves = memoryview(bytearray(8 * slots)).cast("Q")
        self._offsets = memoryview(bytearray(8 * slots)).cast("q")
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"OffsetMap({self._size} of {self.capacity} keys, {self.memory_bytes} bytes)"

    @property
    def memory_bytes(self) -> int:
        """The size of all slots, used or not."""
        return self._slots * SLOT_BYTES

    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of a key; False, with nothing changed, if the key is new and the map is full."""
        first, second = _halves(md5(key, usedforsecurity=False).digest())
        slot = self._slot_of(first, second)
        if not self._offsets[slot]:
            if self._size >= self.capacity:
                return False
            self._size += 1
            self._first_halves[slot] = first
            self._second_halves[slot] = second
        self._offsets[slot] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """Return the offset that was set last for a key, or NOT_FOUND."""
        first, second = _halves(md5(key, usedforsecurity=False).digest())
        return self._offsets[self._slot_of(first, second)] - 1

    def _slot_of(self, first: int, second: int) -> int:
        """Return the slot of a hash, or the free slot where it belongs."""
        slots, offsets, first_halves = self._slots, self._offsets, self._first_halves
        slot = first % slots
        if not offsets[slot]:
            return slot
        step = 1 + second % (slots - 1)
        while offsets[slot] and not (first_halves[slot] == first and self._second_halves[slot] == second):
            slot += step
            if slot >= slots:
                slot -= slots
        return slot


def _prime(number: int, step: int) -> int:
    """Return the next prime from `number` on, upwards or downwards; a number below two if there is none."""
    while number > 1 and any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += step
    return number
