"""Times as commands print them."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

_UNITS_S: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def local_time(time_ms: int) -> str:
    """Return milliseconds since 1970 as local time, with its zone."""
    return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(" ", "seconds")


def ago(time_ms: int, now_ms: int | None = None) -> str:
    """Return how long ago a time was, in its largest unit; a clock that is ahead of ours does not matter."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    return f"{duration(max(0, now - time_ms))} ago"


def duration(duration_ms: int) -> str:
    """Return how long something takes, in its largest unit."""
    seconds = duration_ms // 1000
    return next((f"{seconds // size}{unit}" for unit, size in _UNITS_S if seconds >= size), "0s")
