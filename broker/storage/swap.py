"""Putting cleaned segments in the place of those that they were made from, so that a crash cannot lose either.

    1. The new files are written as `<name>.cleaned` and forced to disk.
    2. They are renamed to `<name>.swap`, the log last: from then on the new segment counts.
    3. The old files are renamed to `.deleted`.
    4. The new ones take their final names, the log last.

A start finds `.cleaned` files after a crash in step 1 or 2 and removes them; `.log.swap` after one in step 3 or 4,
and repeats those steps. Every step may be repeated. The index of aborted transactions is written even when it is
empty, so that it replaces an old one that is not.
"""

from __future__ import annotations

import os
from pathlib import Path

from ottla.broker.storage.checkpoint import sync_directory
from ottla.broker.storage.errors import StorageError
from ottla.protocol.records import BATCH_HEADER, BATCH_HEADER_BYTES, BATCH_LENGTH_OVERHEAD

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
# The log is last: its name says how far the exchange has come.
SEGMENT_SUFFIXES = (".txnindex", ".timeindex", ".index", ".log")


def commit_cleaned(directory: Path, base_offset: int) -> None:
    """Step 2: make a written and synced set of `.cleaned` files count."""
    for suffix in SEGMENT_SUFFIXES:
        cleaned = _file(directory, base_offset, suffix, CLEANED_SUFFIX)
        os.rename(cleaned, _file(directory, base_offset, suffix, SWAP_SUFFIX))
    sync_directory(directory)


def put_in_place(directory: Path, base_offset: int) -> None:
    """Step 4: give the files of a `.swap` set their final names."""
    for suffix in SEGMENT_SUFFIXES:
        swap = _file(directory, base_offset, suffix, SWAP_SUFFIX)
        final = _file(directory, base_offset, suffix, "")
        if swap.exists():
            os.replace(swap, final)
    transactions = _file(directory, base_offset, ".txnindex", "")
    if transactions.exists() and transactions.stat().st_size == 0:
        transactions.unlink()
    sync_directory(directory)


def finish_swaps(directory: Path) -> None:
    """Repeat steps 3 and 4 where a crash interrupted them, and drop what was not committed."""
    for path in sorted(directory.glob(f"*.log{SWAP_SUFFIX}")):
        base_offset = int(path.name.split(".", 1)[0])
        last_offset = _last_offset(path)
        for old in directory.glob("*.log"):
            if old.stem.isdecimal() and base_offset < int(old.stem) <= last_offset:
                for suffix in SEGMENT_SUFFIXES:
                    _file(directory, int(old.stem), suffix, "").unlink(missing_ok=True)
        put_in_place(directory, base_offset)
    for path in directory.glob(f"*{SWAP_SUFFIX}"):
        path.unlink()


def _file(directory: Path, base_offset: int, suffix: str, state: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}{state}"


def _last_offset(path: Path) -> int:
    """Return the last offset in a complete log file; -1 where it is empty."""
    last_offset = -1
    with path.open("rb") as file:
        position = 0
        while len(header := file.read(BATCH_HEADER_BYTES)) == BATCH_HEADER_BYTES:
            base_offset, batch_length, _, _, _, _, last_offset_delta, *_ = BATCH_HEADER.unpack(header)
            last_offset = base_offset + last_offset_delta
            position += batch_length + BATCH_LENGTH_OVERHEAD
            file.seek(position)
        if header:
            raise StorageError(f"{path} ends within a batch although it was written completely")
    return last_offset
