"""Who opened a socket that nobody closed.

The garbage collector finds such a socket in some later test, which fails for it. A note on the error names the test
that opened it, and where.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_FRAMES_MAX: Final = 12
_DESCRIPTOR: Final = re.compile(r"unclosed <\S*socket\S* fd=(\d+)")

# By descriptor: the latest socket with it is the one that can be open.
_openings: dict[int, str] = {}


def pytest_sessionstart() -> None:
    """Note each socket that is opened from now on. pytest's own hook for errors of the collector is there by now."""
    socket.socket.__init__ = _noting(socket.socket.__init__)  # type: ignore[method-assign]
    sys.unraisablehook = explaining(sys.unraisablehook)


def explaining(hook: Callable[[UnraisableHookArgs], Any]) -> Callable[[UnraisableHookArgs], Any]:
    """Return a hook that adds who opened the socket that an error is about, and calls another one."""

    def explain(unraisable: UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if isinstance(error, ResourceWarning) and (found := _DESCRIPTOR.search(str(error))) is not None:
            error.add_note(_openings.get(int(found[1]), "Nobody knows who opened the socket."))
        hook(unraisable)

    return explain


def _noting(init: Callable[..., None]) -> Callable[..., None]:
    def noting(self: socket.socket, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        frame = sys._getframe(1)
        stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_FRAMES_MAX, lookup_lines=False)
        test = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        where = "\n".join(f"  {each.filename}:{each.lineno} {each.name}" for each in stack)
        _openings[self.fileno()] = f"The socket was opened during {test}:\n{where}"

    return noting
