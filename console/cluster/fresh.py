"""A value that is read again when it is too old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# A value that took a second of processor time is good for at least this many seconds, up to a limit, so that reading
# never fills the processor. The time of waiting for brokers does not count: slow ones must not make old answers.
_AGE_PER_READ: Final = 10.0
_AGE_S_MAX: Final = 15.0


class Fresh(Generic[T]):
    """Keeps the last value; callers at the same time share one read.

    A value that is older than `max_age_s`, but not by more than `stale_s`, is returned at once, and read again
    for the next caller meanwhile.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        max_age_s: float,
        stale_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        processor_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._stale_s = stale_s
        self._clock = clock
        self._processor_clock = processor_clock
        self._value: T | None = None
        self._read_at: float | None = None
        self._read_took_s = 0.0
        self._reading: asyncio.Task[T] | None = None
        self._tasks: set[asyncio.Task[T]] = set()

    async def get(self) -> T:
        """Return the value; raise what reading it raises."""
        age = None if self._read_at is None else self._clock() - self._read_at
        good_for = max(self._max_age_s, min(_AGE_S_MAX, self._read_took_s * _AGE_PER_READ))
        if age is not None and age < good_for:
            return self._value  # type: ignore[return-value]
        if self._reading is None:
            self._reading = asyncio.create_task(self._refresh())
            self._tasks.add(self._reading)
            self._reading.add_done_callback(self._ended)
        if age is not None and age < good_for + self._stale_s:
            return self._value  # type: ignore[return-value]
        # One caller that goes away must not fail the others.
        return await asyncio.shield(self._reading)

    def forget(self) -> None:
        """Read again at the next call: something was changed. A read that is under way may not have seen it."""
        self._read_at = None
        self._reading = None

    async def close(self) -> None:
        """End the reads that are under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _refresh(self) -> T:
        started_at = self._processor_clock()
        task = asyncio.current_task()
        value = await self._read()
        if self._reading is task:
            self._value, self._read_at = value, self._clock()
            self._read_took_s = self._processor_clock() - started_at
        return value

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if self._reading is task:
            self._reading = None
        if not task.cancelled():
            # Look at a failure that nobody waits for, or asyncio complains; the next caller reads again anyway.
            task.exception()
