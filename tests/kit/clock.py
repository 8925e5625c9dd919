"""The one fake clock: time that stands still until a test moves it."""

from __future__ import annotations

from typing import Generic, TypeVar

Time = TypeVar("Time", int, float)


class FakeClock(Generic[Time]):
    """A clock in the unit of the value that it starts with; calling it returns the time.

    `monotonic` and `sleep` let it stand in for the module `time`: sleeping moves it, and `slept` has each duration.
    """

    def __init__(self, now: Time) -> None:
        self.now: Time = now
        self.slept: list[Time] = []

    def __call__(self) -> Time:
        return self.now

    def monotonic(self) -> Time:
        """Return the time."""
        return self.now

    def sleep(self, duration: Time) -> None:
        """Let time pass without waiting."""
        self.now += duration
        self.slept.append(duration)
