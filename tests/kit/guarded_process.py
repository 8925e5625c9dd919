"""A process that never outlives the test run, however that ends: also when it is killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.kit.waiting import PAUSE_S

STOP_TIMEOUT_S = 60

# A shell waits for the process and for the end of its own standard input, of which we hold the other end.
_GUARD = """
exec 3<&0
"$@" 3<&- >&2 & process=$!
echo $process
exec >&-
(read -r _ <&3; kill -9 $process 2>&-) & guard=$!
wait $process
status=$?
kill $guard 2>&-
exit $status
"""


class GuardedProcess:
    """A process that is started when the object is made; its output is added to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        with log.open("ab") as output:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
            )
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())

    def poll(self) -> int | None:
        """Return the exit code once there is one; 128 and the signal's number where a signal ended it."""
        return self._shell.poll()

    def comes_up(self, is_ready: Callable[[], object], timeout_s: float) -> bool:
        """Wait until it is ready; return whether it was in time, and had not ended before."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if self.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_S)
        return True

    def end(self, number: signal.Signals, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Send a signal and return the exit code; a process that takes no notice is killed, and TimeoutExpired raised.

        Once it has ended, this only returns the exit code.
        """
        with self._shell:
            # While the shell waits for it, the pid cannot mean another process.
            if self._shell.poll() is None:
                os.kill(self.pid, number)
            try:
                return self._shell.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
                raise

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit code of a process that ends by itself."""
        try:
            return self._shell.wait(timeout_s)
        finally:
            self.end(signal.SIGKILL)
