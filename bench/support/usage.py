"""What a process has used so far, as the system counts it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MB = 1e6


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the time on a processor, in user and system mode, over all threads of all processes."""
    return sum(_cpu_seconds(pid) for pid in pids)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pids: Iterable[int], field: str) -> float:
    """Return a line of /proc/PID/status in MB: VmRSS now, VmHWM at its peak, RssAnon without pages of files."""
    return sum(_memory_mb(pid, field) for pid in pids)


def _memory_mb(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / _MB
    raise KeyError(field)


def forget_peak(pids: Iterable[int]) -> None:
    """Let VmHWM begin again from what is resident now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
