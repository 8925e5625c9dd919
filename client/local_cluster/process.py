"""Processes by pid: check whether they run, start ones that outlive us, and read their logs.

A pid alone does not identify a process, because the system reuses pids. A pid with a start time does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.client.local_cluster.errors import ClusterError

LOG_BYTES_MAX = 16 * 1024 * 1024
LOG_CHUNK_BYTES = 64 * 1024
PS_TIMEOUT_S = 10

# Our own child processes by pid: when one ends, we must collect its exit status.
_children: dict[int, subprocess.Popen[bytes]] = {}


def start_time(pid: int) -> str | None:
    """Return the start time of a process, for comparison only; None if it has ended, even as a zombie."""
    return _start_time_linux(pid) if sys.platform == "linux" else _start_time_ps(pid)


def is_running(pid: int | None, started: str | None) -> bool:
    """Return whether exactly this process is still running."""
    running = pid is not None and started is not None and start_time(pid) == started
    # After the check, reap a process that has ended.
    if pid in _children:
        _children[pid].poll()
    return running


def send_signal(pid: int, started: str | None, number: signal.Signals) -> None:
    """Send a signal to exactly this process, if it is still running."""
    if not is_running(pid, started):
        return
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise ClusterError(f"Process {pid} belongs to another user.") from error


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """Start a process in its own session, so that Ctrl-C and the end of the terminal do not affect it."""
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(  # noqa: S603 - our own brokers
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
    except OSError as error:
        raise ClusterError(f"Cannot start {command[0]}: {error.strerror}.") from error
    _children[child.pid] = child
    return child.pid


def ending(pid: int) -> str:
    """Return how a process ended, as far as we know."""
    returncode = _children[pid].poll() if pid in _children else None
    if returncode is None:
        return "it is gone"
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


class LogTail:
    """What a process writes to its log from now on; output of earlier runs is skipped.

    A large log of earlier runs is renamed to `NAME.1`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        size = path.stat().st_size if path.exists() else 0
        if size > LOG_BYTES_MAX:
            path.replace(path.with_name(path.name + ".1"))
            size = 0
        self._start = self._position = size
        self._kept = b""

    def has(self, text: bytes) -> bool:
        """Return whether the text has arrived since the last call, even if it arrived in two parts."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            while chunk := file.read(LOG_CHUNK_BYTES):
                self._position += len(chunk)
                if text in self._kept + chunk:
                    return True
                self._kept = (self._kept + chunk)[-len(text) :]
        return False

    def last_lines(self, count: int) -> list[str]:
        """Return the end of what this run has written."""
        with self.path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._start, end - LOG_CHUNK_BYTES))
            return file.read(LOG_CHUNK_BYTES).decode(errors="replace").splitlines()[-count:]


def _start_time_linux(pid: int) -> str | None:
    """Read the ticks since boot, and the boot id. The name in the second field may have blanks and parentheses."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, ValueError):
        return None
    # Fields 4 and up follow the name and the state: field 20 is the number of threads, field 22 the start time.
    # The first thread may have ended while others still hold the ports.
    ended = state in "ZX" and int(fields[16]) <= 1
    return None if ended else f"{boot} {fields[18]}"


def _start_time_ps(pid: int) -> str | None:
    answer = subprocess.run(  # noqa: S603 - fixed arguments
        ["ps", "-o", "state=,lstart=", "-p", str(pid)],  # noqa: S607 - found on the PATH, as by a shell
        check=False,
        capture_output=True,
        text=True,
        timeout=PS_TIMEOUT_S,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if answer.returncode != 0 or state.startswith("Z") else " ".join(started.split())
