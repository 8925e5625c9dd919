"""What can be wrong with the files of a broker.

An operation that the system refuses (disk full, no permission) stays an `OSError`. These say that a file was read
and is not what it must be; the text names the file and, where there are lines, the line.
"""

from __future__ import annotations


class FlushError(OSError):
    """The disk did not take what was written. The kernel may have dropped it: a second try would wrongly succeed."""


class StorageError(Exception):
    """A file or directory that cannot be used as it is."""


class CorruptCheckpointError(StorageError):
    """A checkpoint file that is not well formed; start without it and rebuild what it held."""


class CorruptSnapshotError(StorageError):
    """A producer snapshot that is not well formed; an older one and the log give the same state."""


class CorruptIndexError(StorageError):
    """An index file that contradicts itself; the log gives it anew."""
