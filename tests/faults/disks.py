"""Disks that can lose power: an ext4 file system in a file.

Whatever was not forced to the disk is not in the file, so a copy of the file, made while it is mounted, is what a
machine finds after its power was cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.kit.apache_kafka import UnavailableError

DISK_BYTES = 256 * 1024 * 1024
TOOLS = ("mkfs.ext4", "mount", "umount", "sync")
TIMEOUT_S = 60


class Disks:
    """Mounted file systems, each with its file."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise UnavailableError("mounting needs root")
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            raise UnavailableError(f"{', '.join(missing)} not found: run scripts/system-packages")
        self._folder = folder
        self._mounted: list[Path] = []

    def new(self, name: str) -> Path:
        """Make an empty disk; return where it is mounted."""
        image = self._image(name)
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(image))
        return self._mount(name)

    def after_power_loss(self, name: str, new_name: str) -> Path:
        """Copy what is on a disk now, without what is only in memory; return where the copy is mounted."""
        _run("cp", "--sparse=always", str(self._image(name)), str(self._image(new_name)))
        return self._mount(new_name)

    def flush(self) -> None:
        """Force to the disks what is only in memory."""
        for point in self._mounted:
            _run("sync", "--file-system", str(point))

    def close(self) -> None:
        """Unmount everything; no process may use it any more."""
        while self._mounted:
            _run("umount", "--lazy", str(self._mounted.pop()))

    def _image(self, name: str) -> Path:
        return self._folder / f"{name}.img"

    def _mount(self, name: str) -> Path:
        point = self._folder / name
        point.mkdir()
        try:
            _run("mount", "-o", "loop", str(self._image(name)), str(point))
        except subprocess.CalledProcessError as error:
            raise UnavailableError(f"cannot mount a file: {error.stderr}") from error
        self._mounted.append(point)
        return point


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
