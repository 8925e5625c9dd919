"""Logs of deleted topics that can be brought back: `ottla.topic.undelete.ms`.

A kept log lies in a `-delete` directory like any deleted one, so a broker of Apache Kafka would remove it. The file
`kept-for-undelete` in it makes the difference: until when it is kept, and what the checkpoints said of it.

    kept-for-undelete   JSON: version 0, kept_until_ms, topic, recovery_point, log_start_offset, high_watermark

It is written before the directory is renamed, and removed after the directory has its old name again and the
checkpoints have its offsets again. So a crash leaves a deleted log that is kept, or a current log with the file, whose
offsets then count where a checkpoint has none.

A kept log is removed when its time is over, or when its disk is below the watermark. Somebody may bring the topic back
at that moment, so `may_give_up` is asked first: once it has said yes, the topic comes back without this replica. No log
is opened again meanwhile: `KeptLogs.lock` is held for the question and for the way back. A log that cannot be kept at
all, on a full disk, is given up in the same way before its deletion counts as done.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from ottla.broker.storage.checkpoint import write_atomically
from ottla.broker.storage.directory_files import read_topic_id
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.log_dir import LogDir

logger = structlog.get_logger(__name__)

KEPT_FILE: Final = "kept-for-undelete"
_FILE_BYTES_MAX: Final = 4096
# Kept longer than the controller lets the topic come back, because clocks differ.
_GRACE_MS: Final = 10 * 60 * 1000


class KeptMark(NamedTuple):
    """Until when a log is kept, and what the checkpoints said of it."""

    kept_until_ms: int
    topic: str
    recovery_point: int
    log_start_offset: int
    high_watermark: int


class KeptLog(NamedTuple):
    """A log of a deleted topic that is kept."""

    topic_id: bytes
    partition: int
    path: Path
    log_dir: LogDir
    mark: KeptMark


def write_kept_mark(directory: Path, mark: KeptMark) -> None:
    """Store durably that a log is kept."""
    write_atomically(directory / KEPT_FILE, json.dumps({"version": 0, **mark._asdict()}).encode())


def read_kept_mark(directory: Path) -> KeptMark | None:
    """Return the mark of a kept log; None if there is none, or it cannot be read."""
    try:
        with open(directory / KEPT_FILE, "rb") as file:
            value: Any = json.loads(file.read(_FILE_BYTES_MAX))
        if value.pop("version") != 0:
            return None
        if any(type(each) is not int for name, each in value.items() if name != "topic"):
            return None
        return KeptMark(**value)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def remove_kept_mark(directory: Path) -> None:
    """Remove the mark of a log that is in use again."""
    (directory / KEPT_FILE).unlink(missing_ok=True)


class KeptLogs:
    """The kept logs of a broker, by topic id and partition."""

    def __init__(self) -> None:
        # Held while a log is given up or brought back. Outermost: other locks are taken inside.
        self.lock = threading.Lock()
        # Asked before a kept log is removed: whether the topic cannot come back with it any more.
        self.may_give_up: Callable[[KeptLog], bool] = lambda kept: True
        self._logs: dict[tuple[bytes, int], KeptLog] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def found(self, path: Path, partition: int, log_dir: LogDir) -> bool:
        """Add a deleted directory if it is a kept log; return whether it is."""
        mark = read_kept_mark(path)
        try:
            topic_id = read_topic_id(path)
        except (StorageError, OSError):
            return False
        if mark is None or topic_id is None:
            return False
        with self.lock:
            self._logs[topic_id, partition] = KeptLog(topic_id, partition, path, log_dir, mark)
        return True

    def take(self, topic_id: bytes | None, partition: int) -> KeptLog | None:
        """Take a kept log out, to bring it back. The caller holds the lock."""
        return None if topic_id is None else self._logs.pop((topic_id, partition), None)

    def put_back(self, kept: KeptLog) -> None:
        """Keep a log on that could not be brought back. The caller holds the lock."""
        self._logs[kept.topic_id, kept.partition] = kept

    def give_up_due(self, now_ms: int, remove: Callable[[KeptLog], None]) -> None:
        """Call `remove` with the logs whose time is over, or whose space is needed."""
        for kept in list(self._logs.values()):
            is_due = kept.mark.kept_until_ms + _GRACE_MS <= now_ms
            if not kept.log_dir.is_online or not (is_due or kept.log_dir.is_space_low):
                continue
            with self.lock:
                key = (kept.topic_id, kept.partition)
                if self._logs.get(key) is not kept or not self.may_give_up(kept):
                    continue
                del self._logs[key]
                logger.info(
                    "kept_log_given_up",
                    topic=kept.mark.topic,
                    partition=kept.partition,
                    reason="its time is over" if is_due else "the disk needs its space",
                )
                remove(kept)
