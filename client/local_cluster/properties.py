"""Write Java's properties format, which both ZooKeeper and the broker read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a file that only its owner can read, because a value may be a password."""
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def _escaped(value: str) -> str:
    """Escape special characters, and everything but printable ASCII as UTF-16 units."""
    units = value.replace("\\", "\\\\").encode("utf-16-be", "surrogatepass")
    characters = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    text = "".join(chr(unit) if 32 <= unit < 127 else f"\\u{unit:04x}" for unit in characters)
    return "\\" + text if text.startswith(" ") else text
