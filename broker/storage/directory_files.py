"""The small files that say who owns a directory, and the names of partition directories.

    <log dir>/meta.properties          version=0, broker.id, cluster.id: a directory belongs to one broker forever
    <log dir>/.lock                    held with flock while a broker runs
    <log dir>/.kafka_cleanshutdown     {"version":0,"brokerEpoch":N}: all logs were closed, so none needs a scan
    <log dir>/<topic>-<partition>/     or <topic>-<partition>.<32 hex digits>-delete, -future, -stray
    <partition dir>/partition.metadata version: 0, topic_id: 22 characters; distinguishes topics of the same name
    <partition dir>/moved-from-other-directory   unfinished or finished: which copy counts, see log_moves.py

Nothing here is thread-safe: a log directory has one owner.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import uuid
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

from ottla.broker.common.topic_names import check_topic_name
from ottla.broker.storage.checkpoint import sync_directory, write_atomically
from ottla.broker.storage.errors import StorageError
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import INT32_MAX, INT64_MAX, UUID_ZERO, uuid_from_text, uuid_to_text

META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
HOLES_FILE: Final = "offsets-with-holes"
MOVE_FILE: Final = "moved-from-other-directory"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
DIRECTORY_NAME_MAX: Final = 255

# Far larger than any of these files.
_FILE_BYTES_MAX: Final = 64 * 1024
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_PARTITION_METADATA: Final = re.compile(r"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")
_DIRECTORY_NAME: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})(?:\.[0-9a-f]{32}-(?P<kind>delete|future|stray))?"
)


class DirectoryKind(Enum):
    """What the name of a partition directory says about it; the value is its suffix."""

    CURRENT = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class MoveState(Enum):
    """How far the move of a partition from another log directory has come; the value is the file's content."""

    # If the other directory still has the partition, that copy counts.
    UNFINISHED = "unfinished"
    # This copy counts; any other is out of date.
    FINISHED = "finished"


class PartitionDirectory(NamedTuple):
    """A partition directory by its name; the topic of a DELETE or STRAY one may have been cut."""

    partition: TopicPartition
    kind: DirectoryKind


class MetaProperties(NamedTuple):
    """The owner of a log directory."""

    broker_id: int
    cluster_id: str


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Return the owner of the directory; None if it has none yet."""
    path = directory / META_PROPERTIES
    text = _read_text(path)
    if text is None:
        return None
    properties: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith(("#", "!")):
            # Java escapes some characters with a backslash.
            properties[key.strip()] = value.strip().replace("\\", "")
    if properties.get("version") != "0":
        raise StorageError(f"{path}: version 0 expected, which ZooKeeper-mode brokers write; use another directory")
    broker_id, cluster_id = properties.get("broker.id", ""), properties.get("cluster.id", "")
    if not cluster_id or _NUMBER.fullmatch(broker_id) is None or int(broker_id) > INT32_MAX:
        raise StorageError(
            f"{path}: broker.id {broker_id!r} or cluster.id {cluster_id!r} is no id; restore the file, "
            f"or delete it if you are sure that the directory is this broker's"
        )
    return MetaProperties(int(broker_id), cluster_id)


def claim_directory(directory: Path, owner: MetaProperties) -> None:
    """Check that a log directory belongs to `owner`; write the owner to a new one. StorageError if it does not."""
    path = directory / META_PROPERTIES
    known = read_meta_properties(directory)
    if known is None:
        lines = ("version=0", f"broker.id={owner.broker_id}", f"cluster.id={owner.cluster_id}", "")
        write_atomically(path, "\n".join(lines).encode())
        return
    if known.broker_id != owner.broker_id:
        raise StorageError(
            f"{path}: the directory belongs to broker {known.broker_id}, and this is broker {owner.broker_id}; "
            f"set broker.id={known.broker_id}, or give this broker another directory in log.dirs"
        )
    if known.cluster_id != owner.cluster_id:
        raise StorageError(
            f"{path}: the directory belongs to cluster {known.cluster_id}, and zookeeper.connect leads to cluster "
            f"{owner.cluster_id}; correct zookeeper.connect, or give this broker another directory in log.dirs"
        )


def read_topic_id(partition_directory: Path) -> bytes | None:
    """Return the topic id of the directory; None if the file is missing."""
    path = partition_directory / PARTITION_METADATA
    text = _read_text(path)
    if text is None:
        return None
    match = _PARTITION_METADATA.fullmatch(text)
    if match is not None:
        try:
            topic_id = uuid_from_text(match[1])
        except ValueError as error:
            raise StorageError(f"{path}: {error}") from error
        if topic_id != UUID_ZERO:
            return topic_id
    raise StorageError(f"{path}: no version 0 and topic id in it")


def write_topic_id(partition_directory: Path, topic_id: bytes) -> None:
    """Store the topic id of the directory; after a power loss the file may be missing, but is never torn."""
    text = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}\n"
    write_atomically(partition_directory / PARTITION_METADATA, text.encode(), durable=False)


def note_holes(partition_directory: Path) -> None:
    """Note that offsets may be missing within the log: it was compacted, or follows a compacted one.

    The topic's present options do not show that. Without the note, recovery takes a hole for a damaged offset.
    """
    path = partition_directory / HOLES_FILE
    if not path.exists():
        write_atomically(path, b"")


def may_have_holes(partition_directory: Path) -> bool:
    """Whether offsets may be missing within the log."""
    return (partition_directory / HOLES_FILE).exists()


def write_move_state(partition_directory: Path, state: MoveState) -> None:
    """Store durably how far a move from another log directory has come."""
    write_atomically(partition_directory / MOVE_FILE, f"{state.value}\n".encode())


def read_move_state(partition_directory: Path) -> MoveState | None:
    """Return how far a move has come; None if the directory was not moved, or the file cannot be read."""
    try:
        text = _read_text(partition_directory / MOVE_FILE)
    except StorageError:
        return None
    return next((state for state in MoveState if text == f"{state.value}\n"), None)


def remove_move_state(partition_directory: Path) -> None:
    """Remove the note of a move: no other directory has the partition any more."""
    (partition_directory / MOVE_FILE).unlink(missing_ok=True)


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    """Write the mark of a clean shutdown: every log of the directory is closed and on disk."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(directory / CLEAN_SHUTDOWN, text.encode())


def read_clean_shutdown(directory: Path) -> int | None:
    """Return the broker epoch of the last shutdown if it was clean; None if the logs must be scanned.

    A file that cannot be read proves nothing: scanning is the safe answer.
    """
    try:
        text = _read_text(directory / CLEAN_SHUTDOWN)
        value = json.loads(text) if text is not None else None
    except (StorageError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("version") != 0:
        return None
    broker_epoch = value.get("brokerEpoch")
    if type(broker_epoch) is not int or not -1 <= broker_epoch <= INT64_MAX:
        return None
    return broker_epoch


def remove_clean_shutdown(directory: Path) -> None:
    """Remove the mark durably: if it came back after a crash, a torn log would go unnoticed."""
    (directory / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    sync_directory(directory)


class DirectoryLock:
    """Keeps other processes out of a log directory until it is released, or this process ends."""

    __slots__ = ("_fd", "directory")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Not inherited: a child that outlives the broker must not keep the directory locked.
        fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                raise StorageError(
                    f"{directory} is in use by another broker; "
                    f"stop that one, or give this one another directory in log.dirs"
                ) from error
            raise
        self._fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock; doing so twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd != -1:
            os.close(fd)


def directory_name(partition: TopicPartition, kind: DirectoryKind = DirectoryKind.CURRENT) -> str:
    """Return a name for a partition's directory; one that is not CURRENT is new on each call.

    In names of deleted and stray directories, a topic that is too long is cut; the others need the whole name. Raises
    KafkaError for a name or number that is not one of a partition: this is where names from the network become paths.
    """
    check_topic_name(partition.topic)
    if not 0 <= partition.partition <= INT32_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{partition.partition} is not the number of a partition")
    if kind is DirectoryKind.CURRENT:
        topic_suffix = f"-{partition.partition}"
    else:
        topic_suffix = f"-{partition.partition}.{uuid.uuid4().hex}-{kind.value}"
    topic = partition.topic
    if len(topic) + len(topic_suffix) > DIRECTORY_NAME_MAX:
        if kind in (DirectoryKind.CURRENT, DirectoryKind.FUTURE):
            raise StorageError(f"the name of the {kind.name} directory of {partition} exceeds {DIRECTORY_NAME_MAX}")
        topic = topic[: DIRECTORY_NAME_MAX - len(topic_suffix)]
    return topic + topic_suffix


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """Parse the name of a directory; None if it is not a partition directory."""
    match = _DIRECTORY_NAME.fullmatch(name)
    if match is None or len(name) > DIRECTORY_NAME_MAX or int(match["partition"]) > INT32_MAX:
        return None
    return PartitionDirectory(
        TopicPartition(match["topic"], int(match["partition"])), DirectoryKind(match["kind"] or "")
    )


def _read_text(path: Path) -> str | None:
    """Return the text of a small file; None if it is missing."""
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(data) > _FILE_BYTES_MAX:
        raise StorageError(f"{path}: more than {_FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: not text") from error
