"""Sizes and rates as commands print them for people. Data for scripts has plain numbers of bytes."""

from __future__ import annotations

import re
from typing import Final

from ottla.client.cli.terminal.errors import CommandError

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP: Final = 1024
_SIZE: Final = re.compile(r"(\d{1,15})\s*(?:([KMGTP])(i?)B?|B)?", re.IGNORECASE)


def human_bytes(size_bytes: float) -> str:
    """Return a size in its largest unit, with one digit behind the point where that says more."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        # What would be rounded to 1024 belongs to the next unit.
        if abs(size) < _STEP - 0.05:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} {_UNITS[-1]}"


def read_bytes(text: str, option: str) -> int:
    """Read a size such as 1048576, 10MiB or 10MB; CommandError if it is none. MB has 1000 x 1000, MiB 1024 x 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise CommandError(f"{option} takes a number of bytes such as 1048576 or 10MiB, not {text!r}", 2)
    number, unit, binary = found.groups()
    if unit is None:
        return int(number)
    step = _STEP if binary else 1000
    return int(number) * int(step ** ("KMGTP".index(unit.upper()) + 1))
