"""Signals as something to wait for: what runs is never torn in the middle by an exception."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Within its context, Ctrl-C, SIGTERM and the end of the terminal are not acted on but waited for.

    A signal that whoever started us chose to ignore (nohup, a job in the background) stays ignored. The handlers write
    to a pipe, the one thing that is safe at any point of the program.
    """

    def __enter__(self) -> StopSignals:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        for number, handler in self._handlers.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float) -> bool:
        """Wait this long at most; say whether a signal came, since the last call that said so."""
        readable, _, _ = select.select([self._reader], [], [], seconds)
        if readable:
            os.read(self._reader, 4096)
        return bool(readable)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            # The pipe is full of signals that nobody has waited for yet: one more says nothing new.
            return
