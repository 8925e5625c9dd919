"""What a process has used so far, as the system counts it."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MB = 1e6


def cpu_seconds(pid: int) -> float:
    """Return the time on a processor, in user and system mode, over all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pid: int, field: str) -> float:
    """Return a line of /proc/PID/status in MB: VmRSS now, VmHWM at its peak, RssAnon without pages of files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / _MB
    raise KeyError(field)


def forget_peak(pid: int) -> None:
    """Let VmHWM begin again from what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
