"""A full disk is an error in clear words: the log stays whole, and goes on when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DISK_BYTES = 4 * 1024 * 1024


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def mounted(point: Path, *command: str) -> Iterator[Path]:
    """Mount something for a while; where that is not allowed the test is skipped, except in CI."""
    point.mkdir()
    done = run(*command, str(point))
    if done.returncode:
        reason = f"mounting is not allowed here: {done.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield point
    finally:
        unmounted = run("umount", str(point))
        assert unmounted.returncode == 0, unmounted.stderr


@contextmanager
def small_disk(kind: str, directory: Path) -> Iterator[Path]:
    """A disk of a few megabytes: in memory, or a file with a real file system."""
    point = directory / "disk"
    if kind == "tmpfs":
        with mounted(point, "mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs") as disk:
            yield disk
        return
    image = directory / "image"
    with image.open("wb") as file:
        file.truncate(4 * DISK_BYTES)
    done = run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    if done.returncode:
        pytest.skip(f"no ext4 here: {done.stderr.strip()}")
    with mounted(point, "mount", "-o", "loop", str(image)) as disk:
        yield disk


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("where", ["within", "roll"])
def test_a_full_disk_is_survived(tmp_path: Path, kind: str, where: str) -> None:
    """Within a segment, and when a new one would begin; no signal, no torn batch, and writes resume."""
    with small_disk(kind, tmp_path) as disk:
        program = [sys.executable, "-m", "tests.broker.storage.filled_disk", str(disk), where]
        done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"
