"""One directory of `log.dirs`: its owner, its checkpoints, and whether it can be written.

    online    appends are accepted; while free space is low, some are refused (disk_space.py)
    offline   the disk failed; nothing is accepted until the broker restarts
    closed    the broker is stopping or has stopped

A disk has failed if any operation returns an error such as EIO or EROFS; if a flush returns any error, since the kernel
may have dropped the data; or if the directory cannot be read any more. A full disk and too many open files are not
failures: they pass.

There are two locks. `_state` protects the reasons for refusal and is the innermost lock: `failed` may be called with
the lock of a log held. `_writing` lets one thread at a time write checkpoints. It is the outermost lock, and the only
one that is held during disk work; no append waits for it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from ottla.broker.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
    write_offsets,
)
from ottla.broker.storage.directory_files import (
    DirectoryLock,
    MetaProperties,
    claim_directory,
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from ottla.broker.storage.disk_space import SpaceLevel, Watermark
from ottla.broker.storage.errors import NO_SPACE, CorruptCheckpointError, FlushError, StorageError
from ottla.protocol.identifiers import TopicPartition

logger = structlog.get_logger(__name__)

Offsets = Mapping[TopicPartition, int]

CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
_FAILURES: Final = {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EBADMSG, errno.ENOTCONN} | {
    # Known to Linux only.
    getattr(errno, name)
    for name in ("EREMOTEIO", "EUCLEAN", "ENOMEDIUM")
    if hasattr(errno, name)
}


class LogDir:
    """A log directory. Call `claim`, then `begin`, and `close` at the end."""

    def __init__(
        self,
        path: Path,
        watermark: Watermark = Watermark(),  # noqa: B008 - immutable
        *,
        on_trouble: Callable[[], None] = lambda: None,
        statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        self.path = path
        self.watermark = watermark
        # As of the last sample. Only `sample_space` changes them.
        self.free_bytes = 0
        self.total_bytes = 0
        self.space_level = SpaceLevel.ENOUGH
        # Why no append is accepted, and why none of some kind is (see log.AppendGuard).
        self.refusal: str | None = None
        self.client_refusal: str | None = None
        self.copy_refusal: str | None = None
        self.coordinator_refusal: str | None = None
        self.offline_reason: str | None = None
        # Whether the last shutdown was clean, and in which broker epoch that was.
        self.was_clean = False
        self.last_broker_epoch: int | None = None
        # Called when the directory goes offline or turns out to be full, perhaps with the lock of a log held.
        self._on_trouble = on_trouble
        self._statvfs = statvfs
        self._state = threading.Lock()
        self._writing = threading.Lock()
        # The content of each checkpoint file; no entry if it is missing or broken.
        self._checkpoints: dict[str, Offsets] = {}
        self._directory_lock: DirectoryLock | None = None

    def __repr__(self) -> str:
        return f"LogDir({self.path}, {self.refusal or self.client_refusal or 'online'})"

    @property
    def is_online(self) -> bool:
        """Whether the disk is believed to work."""
        return self.offline_reason is None

    @property
    def is_space_low(self) -> bool:
        """Whether appends of clients are refused because there is too little space."""
        return self.refusal is None and self.client_refusal is not None

    # Start and stop

    def claim(self, owner: MetaProperties) -> None:
        """Lock the directory and check that it belongs to `owner`; StorageError if it does not.

        A directory that cannot be used goes offline.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._directory_lock = DirectoryLock(self.path)
            claim_directory(self.path, owner)
        except StorageError:
            self.release()
            raise
        except OSError as error:
            self.take_offline(str(error))

    def begin(self) -> None:
        """Read the checkpoints, and read and remove the mark of a clean shutdown."""
        if not self.is_online:
            return
        try:
            self.last_broker_epoch = read_clean_shutdown(self.path)
            remove_clean_shutdown(self.path)
            self.was_clean = self.last_broker_epoch is not None
            for name in CHECKPOINTS:
                self._read_checkpoint(name)
        except OSError as error:
            self.take_offline(str(error))
        self.sample_space()

    def refuse(self, reason: str) -> None:
        """Refuse all appends from now on; used when the broker stops."""
        with self._state:
            self._refuse_all(self.offline_reason or reason)

    def close(self, broker_epoch: int | None) -> None:
        """Release the directory. With an epoch, first write the mark of a clean shutdown: all logs are on disk."""
        self.refuse(f"{self.path} is closed")
        try:
            if broker_epoch is not None and self.is_online:
                write_clean_shutdown(self.path, broker_epoch)
        finally:
            self.release()

    def release(self) -> None:
        """Let other processes in."""
        if self._directory_lock is not None:
            self._directory_lock.release()

    # Failures

    def failed(self, error: OSError) -> None:
        """Take note of a system error; go offline if it means that the disk has failed."""
        if isinstance(error, FlushError):
            self.take_offline(f"what was written could not be forced to disk: {error}")
        elif error.errno in _FAILURES:
            self.take_offline(str(error))
        elif error.errno in NO_SPACE:
            # It filled up faster than it is sampled.
            self._on_trouble()

    def take_offline(self, reason: str) -> None:
        """Refuse everything from now on. The first reason counts."""
        with self._state:
            if self.offline_reason is not None:
                return
            self.offline_reason = f"{self.path} is offline: {reason}"
            self._refuse_all(self.offline_reason)
        logger.error("log_directory_offline", directory=str(self.path), reason=reason)
        self._on_trouble()

    def _refuse_all(self, reason: str) -> None:
        self.refusal = self.client_refusal = self.copy_refusal = self.coordinator_refusal = reason

    # Space

    @property
    def watermark_bytes(self) -> int:
        """The space that is kept free, for a disk of this size."""
        return self.watermark.bytes_of(self.total_bytes)

    def sample_space(self) -> bool:
        """Measure the free space, and refuse appends while there is too little; return whether more are accepted now.

        Only one thread at a time may call it.
        """
        try:
            space = self._statvfs(self.path)
        except OSError as error:
            self.take_offline(str(error))
            return False
        self.free_bytes = space.f_bavail * space.f_frsize
        self.total_bytes = space.f_blocks * space.f_frsize
        with self._state:
            if self.refusal is not None:
                return False
            before = self.space_level
            level = self.watermark.level(self.free_bytes, self.total_bytes, before)
            if level is before:
                return False
            self.space_level = level
            self.client_refusal = self._told(level, SpaceLevel.NO_PRODUCERS, "no records of producers are accepted")
            self.copy_refusal = self._told(level, SpaceLevel.NO_COPIES, "followers copy no records to it")
            self.coordinator_refusal = self._told(level, SpaceLevel.NO_APPENDS, "no records at all are accepted")
        refusal = self.coordinator_refusal or self.copy_refusal or self.client_refusal
        if level > before:
            logger.warning("log_directory_low_on_space", directory=str(self.path), reason=refusal)
        else:
            logger.info(
                "log_directory_has_space_again",
                directory=str(self.path),
                free_bytes=self.free_bytes,
                still_refused=refusal,
            )
        return level < before

    def _told(self, level: SpaceLevel, from_level: SpaceLevel, what: str) -> str | None:
        if level < from_level:
            return None
        option = "bytes" if self.watermark_bytes == self.watermark.free_bytes else "percent"
        return (
            f"{self.path} has only {self.free_bytes:,} bytes free: {what}, because ottla.log.min.free.{option} keeps "
            f"{self.watermark_bytes:,}; delete topics, lower their retention, or enlarge the disk"
        )

    # Checkpoints

    def checkpoint(self, name: str) -> Offsets:
        """Return the content of a checkpoint file; empty if it was missing or broken."""
        return self._checkpoints.get(name, {})

    def checkpoints_of(self, partition: TopicPartition) -> dict[str, int]:
        """Return the partition's offset in each checkpoint file that has a row for it."""
        known = {name: self.checkpoint(name) for name in CHECKPOINTS}
        return {name: offsets[partition] for name, offsets in known.items() if partition in offsets}

    def may_tell_of(self, name: str, partition: TopicPartition) -> bool:
        """Whether a checkpoint file has a row for the partition, as far as is known."""
        known = self._checkpoints.get(name)
        return known is None or partition in known

    def write_checkpoint(self, name: str, offsets: Callable[[], Offsets]) -> bool:
        """Replace a checkpoint file if its content changes; return whether it did.

        `offsets` is called when it is this thread's turn, so that newer offsets are never replaced by older ones.
        """
        with self._writing:
            if not self.is_online:
                return False
            current = offsets()
            if current == self._checkpoints.get(name):
                return False
            try:
                write_offsets(self.path / name, current)
            except OSError as error:
                # The new file may exist nevertheless.
                self._checkpoints.pop(name, None)
                self.failed(error)
                raise
            self._checkpoints[name] = current
            return True

    def _read_checkpoint(self, name: str) -> None:
        path = self.path / name
        try:
            if path.exists():
                self._checkpoints[name] = read_offsets(path)
        except CorruptCheckpointError as error:
            logger.warning("checkpoint_unreadable", path=str(path), reason=str(error))
            if name == RECOVERY_POINT_CHECKPOINT:
                # Its files were changed or damaged: the mark of a clean shutdown is not trusted.
                self.was_clean = False
