"""Where each leader epoch begins in a log. Replicas use this to find the point from which they differ.

Entries are (leader epoch, start offset), and both rise strictly from one to the next. The file
`leader-epoch-checkpoint` holds the same rows.

An entry is durable before the log has a batch of its epoch: the recovery point may pass that batch at any later time,
and then nothing would correct the file. Until then `begin` keeps the entry in memory, so that an election without
appends costs no write. The file never has an entry of an epoch that only began: recovery would cut the records that an
earlier epoch wrote there after all. Removing an entry at the end is durable at once. `truncate_from_start` does not
sync the directory: opening a log calls it again with the log start offset, and `truncate_from_end` with the end.

Memory changes only after the file has changed, so that a failed write can be repeated.

Not thread-safe: the partition's lock protects it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ottla.broker.storage.checkpoint import read_epochs, write_epochs
from ottla.protocol.records import NO_LEADER_EPOCH

UNDEFINED_END_OFFSET: Final = -1


class LeaderEpochs:
    """The leader epochs of one log. `path` is updated when the partition's directory is renamed."""

    __slots__ = ("_epochs", "_is_stored", "_start_offsets", "path", "stored_epoch")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._set([], [], is_stored=True)

    @classmethod
    def load(cls, path: Path) -> LeaderEpochs:
        """Read the file; after a CorruptCheckpointError, begin with `LeaderEpochs(path)` and assign from the log."""
        loaded = cls(path)
        entries = read_epochs(path)
        epochs = [epoch for epoch, _ in entries]
        loaded._set(epochs, [start_offset for _, start_offset in entries], is_stored=True)
        return loaded

    def _set(self, epochs: list[int], start_offsets: list[int], *, is_stored: bool) -> None:
        self._epochs = epochs
        self._start_offsets = start_offsets
        # False while the last entry is in memory only; the file has all others.
        self._is_stored = is_stored
        # The newest epoch if the file has it: a batch of this epoch can be appended without a write.
        self.stored_epoch = epochs[-1] if epochs and is_stored else NO_LEADER_EPOCH

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries})"

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or NO_LEADER_EPOCH."""
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def epoch_for(self, offset: int) -> int:
        """Return the epoch in which an offset was, or will be, written; NO_LEADER_EPOCH if it is before all entries."""
        index = bisect_right(self._start_offsets, offset)
        return self._epochs[index - 1] if index else NO_LEADER_EPOCH

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to the requested one, and the offset at which it ended.

        (a) no epoch requested: undefined; (b) the latest: it ends where the log ends; (c) one above the latest:
        undefined; (d) one below all entries: it ended where the first entry begins; (e) otherwise the next higher
        epoch gives the end.
        """
        epochs = self._epochs
        if requested_epoch == NO_LEADER_EPOCH:  # (a)
            return NO_LEADER_EPOCH, UNDEFINED_END_OFFSET
        if epochs and requested_epoch == epochs[-1]:  # (b)
            return requested_epoch, log_end_offset
        higher = bisect_right(epochs, requested_epoch)
        if higher == len(epochs):  # (c)
            return NO_LEADER_EPOCH, UNDEFINED_END_OFFSET
        if higher == 0:  # (d)
            return requested_epoch, self._start_offsets[0]
        return epochs[higher - 1], self._start_offsets[higher]  # (e)

    def begin(self, epoch: int, start_offset: int) -> None:
        """Note in memory that an epoch begins; after a crash it is as if it had not begun."""
        epochs, start_offsets = self._with([(epoch, start_offset)])
        if epochs is self._epochs:
            return
        if not self._is_stored and (epochs, start_offsets) == (self._epochs[:-1], self._start_offsets[:-1]):
            # The latest epoch in the file again: all that goes is the one that only began after it.
            self._store(epochs, start_offsets)
            return
        # Entries that contradict it are removed from the file too: otherwise they would be back if it is dropped.
        self._store(epochs[:-1], start_offsets[:-1])
        self._set(epochs, start_offsets, is_stored=False)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that an epoch begins at an offset; return whether the file changed.

        The latest epoch again, or no epoch, is ignored. Entries that contradict the new one are dropped: an epoch or
        a start offset that is not below it, and an epoch that only began, since another one has the batch there.
        """
        return self.assign_all(((epoch, start_offset),))

    def assign_all(self, entries: Iterable[tuple[int, int]]) -> bool:
        """Assign in turn, with one write at the end: the epochs of several batches, or of a whole log."""
        known = [entry for entry in entries if entry[0] >= 0]
        return bool(known) and self._store(*self._with(known))

    def _with(self, entries: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
        """Return the columns with further entries; the present columns if nothing changes."""
        epochs, start_offsets = self._epochs, self._start_offsets
        if not self._is_stored and entries[0][0] != epochs[-1]:
            epochs, start_offsets = epochs[:-1], start_offsets[:-1]
        for epoch, start_offset in entries:
            if epochs and epoch == epochs[-1] and start_offset >= start_offsets[-1]:
                continue
            keep = min(bisect_left(epochs, epoch), bisect_left(start_offsets, start_offset))
            epochs, start_offsets = [*epochs[:keep], epoch], [*start_offsets[:keep], start_offset]
        return epochs, start_offsets

    def copy_from(self, other: LeaderEpochs) -> None:
        """Take the entries of another copy of the log; an epoch that only began is in memory only, here too."""
        count = len(other._epochs) if other._is_stored else len(other._epochs) - 1
        self._store(other._epochs[:count], other._start_offsets[:count])
        self._set(list(other._epochs), list(other._start_offsets), is_stored=other._is_stored)

    def truncate_from_end(self, offset: int) -> None:
        """Drop the entries that begin at `offset` or later."""
        keep = bisect_left(self._start_offsets, offset)
        if keep < len(self._epochs):
            self._store(self._epochs[:keep], self._start_offsets[:keep])

    def truncate_from_start(self, offset: int) -> None:
        """Drop what lies below `offset`; the epoch that holds it begins there from now on."""
        index = bisect_right(self._start_offsets, offset) - 1
        if index >= 0 and (index > 0 or self._start_offsets[0] != offset):
            is_stored = self._is_stored
            epochs, start_offsets = self._epochs[index:], [offset, *self._start_offsets[index + 1 :]]
            count = len(epochs) if is_stored else len(epochs) - 1
            self._store(epochs[:count], start_offsets[:count], durable=False)
            self._set(epochs, start_offsets, is_stored=is_stored)

    def clear(self) -> None:
        """Drop all entries; the log restarts at another offset."""
        self._store([], [])

    def _store(self, epochs: list[int], start_offsets: list[int], *, durable: bool = True) -> bool:
        """Set the entries in memory and in the file; return whether the file changed."""
        if epochs is self._epochs and self._is_stored:
            return False
        count = len(self._epochs) if self._is_stored else len(self._epochs) - 1
        is_news = epochs != self._epochs[:count] or start_offsets != self._start_offsets[:count]
        if is_news:
            write_epochs(self.path, zip(epochs, start_offsets, strict=True), durable=durable)
        self._set(epochs, start_offsets, is_stored=True)
        return is_news
