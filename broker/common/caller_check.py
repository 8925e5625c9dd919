"""A check that a thread repeats after it has waited, on behalf of whoever it works for.

A worker that makes a change may wait for ZooKeeper for half a minute. By then its client may have given up, and the
change must not be made behind its back. ZooKeeper's room does not know requests, so the worker leaves its check here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Check = Callable[[], None]

_thread = threading.local()


@contextmanager
def checking(check: Check) -> Iterator[None]:
    """Within this context, `check_caller` on this thread calls `check`, which raises to stop the work."""
    _thread.check = check
    try:
        yield
    finally:
        del _thread.check


def check_caller() -> None:
    """Call the check of this thread, if it has one."""
    check: Check | None = getattr(_thread, "check", None)
    if check is not None:
        check()
