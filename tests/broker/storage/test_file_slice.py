"""Open files and slices of them."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import pytest

from ottla.broker.storage.open_files import OpenFile


def test_a_file_that_is_being_closed_is_not_found_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may look while the descriptor is closed; it must not get hold of it again."""
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    file = OpenFile(path)
    found, fd = weakref.ref(file), file.fd
    seen: list[tuple[int, OpenFile | None]] = []
    close = os.close

    def watched_close(descriptor: int) -> None:
        seen.append((descriptor, found()))
        close(descriptor)

    monkeypatch.setattr(os, "close", watched_close)
    del file
    monkeypatch.undo()

    assert seen == [(fd, None)]


def test_a_file_that_cannot_be_opened_leaves_nothing_to_close(tmp_path: Path) -> None:
    """The error is the system's own."""
    with pytest.raises(FileNotFoundError):
        OpenFile(tmp_path / "missing")
