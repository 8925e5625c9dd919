"""A turn: a thread does several things in one go, and wakes others only when it has done them all.

    with Turn():
        ...
        if not put_off(key, action):        now if the thread has no turn, once at the end if it has
            action()

A client that has five requests in flight sends them nearly together, and a worker handles them one after another. If
each append woke the fetches that wait for records, a follower would fetch one record, then four. With a turn it fetches
five. In the same way, the one fetch that commits five records answers five requests, with one call to send.

Actions are carried out in the order in which their keys were put off, and may put off others: waking a fetch ends in
sending its response. They must not rely on a lock that the thread held when it put them off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Self

import structlog

log = structlog.get_logger(__name__)

Action = Callable[[], object]


class _Thread(threading.local):
    """What the current thread has put off; None while it has no turn."""

    put_off: dict[Hashable, Action] | None = None


_thread = _Thread()


def put_off(key: Hashable, action: Action) -> bool:
    """Put an action off to the end of this thread's turn, once for each key; return False if it has no turn."""
    actions = _thread.put_off
    if actions is None:
        return False
    actions[key] = action
    return True


def carry_out() -> None:
    """Do now what this thread has put off so far. The turn goes on."""
    actions = _thread.put_off
    while actions:
        action = actions.pop(next(iter(actions)))
        try:
            action()
        except Exception:  # the others must not be lost
            log.exception("put_off_action_failed")


class Turn:
    """A turn of the current thread. One that begins within another is a part of it."""

    __slots__ = ("_is_outer",)

    def __enter__(self) -> Self:
        self._is_outer = _thread.put_off is None
        if self._is_outer:
            _thread.put_off = {}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_outer:
            try:
                carry_out()
            finally:
                _thread.put_off = None
