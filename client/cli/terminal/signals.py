"""Wait for signals, so that no signal interrupts running code with an exception."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Within this context, Ctrl-C, SIGTERM and SIGHUP do nothing until `wait` reports them.

    Signals that were already ignored (nohup, a background job) stay ignored. The handlers write to a pipe, which is
    safe at any point of the program.
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
        """Wait at most this long; return whether a signal arrived since the last call that returned true."""
        readable, _, _ = select.select([self._reader], [], [], seconds)
        if readable:
            os.read(self._reader, 4096)
        return bool(readable)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            # The pipe is full of signals that were not waited for yet; one more adds nothing.
            return
