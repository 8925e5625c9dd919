"""What can be wrong with the files of a broker.

An operation that the system refuses (disk full, no permission) stays an `OSError`. A `StorageError` means that a file
was read and its content is wrong; the message names the file and, for text files, the line.
"""

from __future__ import annotations

import errno
from typing import Final

from ottla.protocol.errors import KafkaError

# The disk, or the share of it that this user may have, is full.
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoSpaceError(KafkaError):
    """An append was refused for want of space. That passes; the log is as it was."""


class FlushError(OSError):
    """The disk did not take what was written. The kernel may have dropped it: a second try would wrongly succeed."""


class StorageError(Exception):
    """A file or directory cannot be used as it is."""


class CorruptCheckpointError(StorageError):
    """A checkpoint file is malformed; start without it and rebuild its content."""


class CorruptSnapshotError(StorageError):
    """A producer snapshot is malformed; an older snapshot and the log give the same state."""


class CorruptIndexError(StorageError):
    """An index file contradicts itself or the log; it can be rebuilt from the log."""
