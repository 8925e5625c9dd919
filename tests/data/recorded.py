"""Frames that Kafka's clients and brokers really sent; `scripts/record_frames.py` says how they were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "frames"


class RecordedFrame(NamedTuple):
    """One frame without its size: the header, then the body."""

    client: str
    direction: str
    api_key: int
    api_name: str
    api_version: int
    frame: bytes

    def __str__(self) -> str:
        """Name the frame in a test's id."""
        return f"{self.client}-{self.direction}-{self.api_name}-v{self.api_version}-{len(self.frame)}"


def recorded_frames() -> list[RecordedFrame]:
    """Read all recorded frames, in the order of clients, directions, APIs and versions."""
    frames = []
    for path in sorted(FOLDER.glob("*.tsv")):
        for line in path.read_text().splitlines():
            direction, api_key, api_name, api_version, text = line.split("\t")
            frames.append(
                RecordedFrame(path.stem, direction, int(api_key), api_name, int(api_version), bytes.fromhex(text))
            )
    return frames
