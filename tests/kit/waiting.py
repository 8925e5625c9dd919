"""The one way in which tests wait for something that another thread or process does: ask until it holds.

    until(lambda: broker.has_ended, "the broker has ended")
    await until_async(lambda: consumer.assignment() == {...}, "the partitions are assigned")

A deadline bounds a hang, not the speed: it is far longer than anything here takes on a busy machine.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

DEADLINE_S = 90.0
PAUSE_S = 0.01
T = TypeVar("T")


def until(
    condition: Callable[[], T],
    what: str | Callable[[], object] = "what the test waits for",
    *,
    seconds: float = DEADLINE_S,
    pause_s: float = PAUSE_S,
) -> T:
    """Return the first true value of a condition; fail the test with `what` where none comes in time.

    `what` may be a function, whose value is shown: the state at the end, say.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            _fail(what, seconds)
        time.sleep(pause_s)
    return value


async def until_async(
    condition: Callable[[], T | Awaitable[T]],
    what: str | Callable[[], object] = "what the test waits for",
    *,
    seconds: float = DEADLINE_S,
) -> T:
    """Do the same in a coroutine; the condition may be one, too."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        value: T = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > deadline:
            _fail(what, seconds)
        await asyncio.sleep(PAUSE_S)


def _fail(what: str | Callable[[], object], seconds: float) -> None:
    pytest.fail(f"after {seconds:.0f} s still not: {what() if callable(what) else what}")
