"""The one way in which tests wait for something that another thread or process does: ask until it holds.

    until(lambda: broker.has_ended, "the broker has ended")
    until(lambda: values, "a record", meanwhile=lambda: values.extend(poll(client)))
    until(lambda: state.controller() > 0, "a controller", not_yet=StateUnknownError)
    await until_async(lambda: consumer.assignment() == {...}, "the partitions are assigned")

A deadline bounds a hang, not the speed: it is far longer than anything here takes on a busy machine.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar, overload

DEADLINE_S = 90.0
PAUSE_S = 0.01
T = TypeVar("T")

What = str | Callable[[], object]


def until(
    condition: Callable[[], T | None],
    what: What = "what the test waits for",
    *,
    seconds: float = DEADLINE_S,
    pause_s: float = PAUSE_S,
    meanwhile: Callable[[], object] | None = None,
    not_yet: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Return the first true value of a condition; AssertionError with `what` where none comes in time.

    `what` may be a function, whose value is shown: the state at the end, say. `meanwhile` is done between two
    questions in place of a pause: a client's poll, say. Errors that are `not_yet` count as a no.
    """
    deadline = time.monotonic() + seconds
    while True:
        error: Exception | None = None
        try:
            if value := condition():
                return value
        except not_yet as raised:
            error = raised
        if time.monotonic() > deadline:
            _fail(what, seconds, error)
        if meanwhile is None:
            time.sleep(pause_s)
        else:
            meanwhile()


@overload
async def until_async(condition: Callable[[], Awaitable[T]], what: What = ..., *, seconds: float = ...) -> T: ...


@overload
async def until_async(condition: Callable[[], T], what: What = ..., *, seconds: float = ...) -> T: ...


async def until_async(
    condition: Callable[[], Any], what: What = "what the test waits for", *, seconds: float = DEADLINE_S
) -> Any:
    """Do the same in a coroutine; the condition may be one, too."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if value := await answer if inspect.isawaitable(answer) else answer:
            return value
        if time.monotonic() > deadline:
            _fail(what, seconds)
        await asyncio.sleep(PAUSE_S)


def _fail(what: What, seconds: float, error: Exception | None = None) -> NoReturn:
    raise AssertionError(f"after {seconds:g} s still not: {what() if callable(what) else what}") from error
