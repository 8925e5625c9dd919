"""The directory of a cluster: its record, which is written atomically, and the lock for changes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.record import ClusterRecord, ProcessRecord

if TYPE_CHECKING:
    from ottla.client.local_cluster.security import ClusterSecurity

RECORD_NAME = "cluster.json"
LOCK_NAME = ".lock"
RECORD_BYTES_MAX = 1024 * 1024
LOCK_POLL_S = 0.05


class ClusterDir:
    """A directory that holds a cluster or will hold one."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def security(self) -> ClusterSecurity:
        """The files that a secure cluster has created for its brokers and clients."""
        from ottla.client.local_cluster.security import ClusterSecurity

        return ClusterSecurity(self.path / "security")

    def folder(self, process: ProcessRecord) -> Path:
        """Return the folder of a process."""
        return self.path / process.folder_name

    def log(self, process: ProcessRecord) -> Path:
        """Return the file that a process writes its output to."""
        return self.path / process.log

    def read(self) -> ClusterRecord | None:
        """Return the record; None if no cluster was ever started."""
        path = self.path / RECORD_NAME
        try:
            with path.open("rb") as file:
                content = file.read(RECORD_BYTES_MAX)
            return msgspec.json.decode(content, type=ClusterRecord)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ClusterError(f"Cannot read {path}: {error.strerror}.") from error
        except msgspec.MsgspecError as error:
            raise ClusterError(
                f"{path} is damaged: {error}. Stop the processes in it manually, then remove the file; the data stays."
            ) from error

    def write(self, record: ClusterRecord) -> None:
        """Replace the record atomically: a reader sees the old one or the new one."""
        path = self.path / RECORD_NAME
        new = path.with_suffix(".json.new")
        try:
            new.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
            os.replace(new, path)
        except OSError as error:
            raise ClusterError(f"Cannot write {path}: {error.strerror}.") from error

    @contextmanager
    def locked(self, timeout_s: float, pause: Callable[[float], bool]) -> Iterator[None]:
        """Keep other commands from starting or stopping processes; the lock is released even if a command is killed."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ClusterError(
                f"Cannot use {self.path}: {error.strerror}. Choose another directory with --dir."
            ) from error
        try:
            deadline = time.monotonic() + timeout_s
            while not _try_lock(descriptor):
                if time.monotonic() > deadline or pause(LOCK_POLL_S):
                    raise ClusterError(f"Another command is still starting or stopping the cluster in {self.path}.")
            yield
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
