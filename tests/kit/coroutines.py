"""How coroutine tests run: pytest-asyncio gives each of them a loop of its own, and this file a bound on its time.

A test runs on asyncio's own loop unless a mark of its module or its own says otherwise:

    pytestmark = BOTH_LOOPS  # each coroutine test of the module twice, once on each loop
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final

import pytest
import uvloop

# Bounds a hang, not the speed: longer than a wait of `waiting.py`, which says more of what is missing, and shorter than
# the limit of pytest-timeout, which ends the worker. A test with a `timeout` mark has the same share of that.
TIMEOUT_S = 180.0
_SHARE_OF_MARK = 0.6
LOOPS: Final[Mapping[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
BOTH_LOOPS = pytest.mark.loops(*LOOPS)
# The loop on which the broker runs.
UVLOOP = pytest.mark.loops("uvloop")


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loops on which a coroutine test runs, each time as a test of its own."""
    mark = item.get_closest_marker("loops")
    return {name: LOOPS[name] for name in (mark.args if mark else ("asyncio",))}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Bound the time of every coroutine test."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        mark = item.get_closest_marker("timeout")
        item.obj = bounded(item.obj, _SHARE_OF_MARK * mark.args[0] if mark else TIMEOUT_S)
    yield


def bounded(
    test: Callable[..., Coroutine[Any, Any, None]], seconds: float = TIMEOUT_S
) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return the same test, which fails where it takes longer; the failure shows where it waited."""

    @functools.wraps(test)
    async def in_time(*arguments: Any, **named: Any) -> None:
        bound = asyncio.timeout(seconds)
        try:
            async with bound:
                await test(*arguments, **named)
        except TimeoutError:
            if bound.expired():
                pytest.fail(f"the test still ran after {seconds:g} s")
            raise

    return in_time
