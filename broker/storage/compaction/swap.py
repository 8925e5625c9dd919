"""Replacing segments by cleaned ones, in steps that survive a crash.

    1. The new files are written as `<name>.cleaned` and forced to disk.
    2. They are renamed to `<name>.swap`, the log last: from then on the new segment counts.
    3. The old files are renamed to `.deleted`.
    4. The new ones take their final names, the log last.

A start finds `.cleaned` files after a crash in step 1 or 2 and removes them; `.log.swap` after one in step 3 or 4,
and repeats those steps. Every step may be repeated. The index of aborted transactions is written even when it is
empty, so that it replaces an old one that is not.

The batches of a `.log.swap` show which old segments it replaces. An old segment at the end that lost all its batches
may thus survive the crash: the log then has records that later ones have superseded, until it is compacted again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ottla.broker.storage.checkpoint import sync_directory
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.open_files import OpenFile
from ottla.broker.storage.segment_file import batch_headers
from ottla.protocol.errors import CorruptBatchError

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
# The log is last: its name shows how far the exchange has come.
SEGMENT_SUFFIXES = (".txnindex", ".timeindex", ".index", ".log")


def commit_cleaned(directory: Path, base_offset: int) -> None:
    """Step 2: rename a complete and synced set of `.cleaned` files; none of them if the system refuses."""
    try:
        for suffix in SEGMENT_SUFFIXES:
            cleaned = segment_file(directory, base_offset, suffix, CLEANED_SUFFIX)
            os.rename(cleaned, segment_file(directory, base_offset, suffix, SWAP_SUFFIX))
        sync_directory(directory)
    except OSError:
        # The old segments stay in use: a start must not replace them by files made from an older state.
        _remove(directory, base_offset, SWAP_SUFFIX)
        raise


def discard_cleaned(directory: Path, base_offset: int) -> None:
    """Remove the files of a `.cleaned` set that exist."""
    _remove(directory, base_offset, CLEANED_SUFFIX)


def put_in_place(directory: Path, base_offset: int) -> None:
    """Step 4: give the files of a `.swap` set their final names. After a crash, `finish_swaps` repeats this."""
    for suffix in SEGMENT_SUFFIXES:
        swap = segment_file(directory, base_offset, suffix, SWAP_SUFFIX)
        final = segment_file(directory, base_offset, suffix, "")
        if swap.exists():
            os.replace(swap, final)
    transactions = segment_file(directory, base_offset, ".txnindex", "")
    if transactions.exists() and transactions.stat().st_size == 0:
        transactions.unlink()


def finish_swaps(directory: Path) -> None:
    """Repeat steps 3 and 4 if a crash interrupted them, and remove what was not committed."""
    for base_offset, path in _segment_files(directory, f".log{SWAP_SUFFIX}"):
        last_offset = _last_offset(path, base_offset)
        for old_offset, _ in _segment_files(directory, ".log"):
            if base_offset < old_offset <= last_offset:
                for suffix in SEGMENT_SUFFIXES:
                    segment_file(directory, old_offset, suffix, "").unlink(missing_ok=True)
        put_in_place(directory, base_offset)
        sync_directory(directory)
    for path in directory.glob(f"*{SWAP_SUFFIX}"):
        path.unlink()


def segment_file(directory: Path, base_offset: int, suffix: str, state: str) -> Path:
    """Return the path of a file of a segment in one of its states, "" for the final one."""
    return directory / f"{base_offset:020d}{suffix}{state}"


def _remove(directory: Path, base_offset: int, state: str) -> None:
    for suffix in reversed(SEGMENT_SUFFIXES):
        segment_file(directory, base_offset, suffix, state).unlink(missing_ok=True)


def _segment_files(directory: Path, ending: str) -> list[tuple[int, Path]]:
    """Return the files whose names are an offset of 20 digits and `ending`, by offset."""
    name = re.compile(r"([0-9]{20})" + re.escape(ending))
    matches = [(name.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match is not None)


def _last_offset(path: Path, base_offset: int) -> int:
    """Return the last offset in a complete log file; -1 if it is empty."""
    last_offset = -1
    file = OpenFile(path)
    try:
        for batch in batch_headers(file, path, 0, os.fstat(file.fd).st_size, base_offset):
            last_offset = batch.last_offset
    except CorruptBatchError as error:
        raise StorageError(f"{path} is damaged: {error}") from error
    return last_offset
