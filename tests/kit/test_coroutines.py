"""Coroutine tests have a bound on their time, and run on the loops that they ask for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop
from tests.kit.coroutines import BOTH_LOOPS, UVLOOP, bounded


async def test_a_test_that_takes_too_long_fails() -> None:
    """What it waits for is cancelled, and shown in the failure."""
    was_cancelled = []

    async def overlong() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise

    with pytest.raises(pytest.fail.Exception, match=r"still ran after 0\.01 s") as raised:
        await bounded(overlong, 0.01)()
    assert was_cancelled == [True]
    assert isinstance(raised.value.__context__, TimeoutError)


async def test_what_a_test_raises_in_time_stays_what_it_is() -> None:
    """Also a TimeoutError of its own; arguments reach the test."""

    async def failing(reason: str) -> None:
        raise TimeoutError(reason)

    with pytest.raises(TimeoutError, match="its own"):
        await bounded(failing)(reason="its own")


async def test_every_coroutine_test_is_bounded() -> None:
    """The hook has wrapped this one: the task runs the wrapper."""
    task = asyncio.current_task()
    assert task is not None
    running: Any = task.get_coro()
    wrapper: Any = bounded(test_every_coroutine_test_is_bounded)
    assert running.cr_code is wrapper.__code__


async def test_a_test_runs_on_the_loop_of_asyncio() -> None:
    """Unless it asks for another."""
    assert not isinstance(asyncio.get_running_loop(), uvloop.Loop)


@UVLOOP
async def test_a_test_may_run_on_the_loop_of_the_broker() -> None:
    """By a mark."""
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


@BOTH_LOOPS
async def test_a_test_may_run_on_both_loops(request: pytest.FixtureRequest) -> None:
    """Each has the name of its loop."""
    assert ("uvloop" in request.node.name) == isinstance(asyncio.get_running_loop(), uvloop.Loop)
