"""Reading a log batch by batch after an unclean stop, to find where it ends.

The log is cut before the first batch that is torn, fails its CRC, or contradicts the one before it. Base offset and
leader epoch lie outside the CRC, so a contradiction may be the fault of either batch. One that leaves a hole in the
offsets, or has another epoch than the checkpoint says, is in doubt until the next one bears it out; where that
contradicts it, or where it is the last one and was not known to be on disk, the log is cut before the doubtful batch.

What no crash explains is not cut away but reported: files whose names do not fit their batches, and missing files.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.log import OFFSETS_IN_SEGMENT_MAX
from ottla.broker.storage.producer_snapshot import snapshot_path
from ottla.broker.storage.segment import Segment
from ottla.protocol.records import NO_LEADER_EPOCH, RecordBatch


class _Doubt(NamedTuple):
    """A batch that may be wrong about its offset or its epoch, and what was known before it."""

    segment: Segment
    position: int
    next_offset_before: int
    found_before: int
    next_offset: int
    is_about_epoch: bool


class RecoveryScan:
    """One pass over the last segments of a log."""

    def __init__(self, segments: list[Segment], epochs: LeaderEpochs | None, recovery_point: int) -> None:
        """Take all segments of the log, and the checkpointed epochs if they can be believed."""
        self.segments = segments
        # (leader epoch, start offset) as the batches tell.
        self.found: list[tuple[int, int]] = []
        self._epochs = epochs
        self._recovery_point = recovery_point
        self._doubt: _Doubt | None = None
        self._is_contradicted = False
        self._did_agree = True

    def run(self, first: int, *, may_have_holes: bool) -> None:
        """Read the segments from the index `first` on, and cut the log where it ends."""
        segments = self.segments
        if self._epochs is not None:
            epoch = self._epochs.epoch_for(segments[first].base_offset - 1)
            if epoch != NO_LEADER_EPOCH:
                self.found.append((epoch, segments[first].base_offset))
        for index, segment in enumerate(segments[first:], first):
            was_whole = segment.recover(partial(self._accepts, segment))
            following = segments[index + 1] if index + 1 < len(segments) else None
            if following is None or not self._continues(segment, following, was_whole, may_have_holes):
                self._end_with(segment)
                break
            segment.next_offset = following.base_offset
        doubt = self._doubt
        if doubt is not None:
            is_hole = not doubt.is_about_epoch
            is_flushed = doubt.next_offset <= self._recovery_point
            if self._is_contradicted or not (is_flushed or (is_hole and may_have_holes)):
                doubt.segment.cut(doubt.position, doubt.next_offset_before)
                del self.found[doubt.found_before :]
                self._end_with(doubt.segment)
        for segment in segments[first:]:
            segment.rebuild_indexes()

    def _accepts(self, segment: Segment, position: int, expected: int, batch: RecordBatch) -> bool:
        """Decide about a batch that is whole; False ends the log before it, or before the doubtful one."""
        base_offset, epoch = batch.base_offset, batch.partition_leader_epoch
        if position == 0 and base_offset < segment.base_offset:
            raise StorageError(f"{segment.path} begins with offset {base_offset}, which its name excludes")
        has_epoch = epoch != NO_LEADER_EPOCH
        # Below the log start the checkpoint knows nothing.
        known_epoch = self._epochs.epoch_for(base_offset) if self._epochs is not None else NO_LEADER_EPOCH
        agrees = not has_epoch or known_epoch in (epoch, NO_LEADER_EPOCH)
        doubt = self._doubt
        if (
            base_offset < expected
            or batch.last_offset_delta < 0
            or batch.last_offset - segment.base_offset > OFFSETS_IN_SEGMENT_MAX
            or (has_epoch and self.found and epoch < self.found[-1][0])
            or (doubt is not None and doubt.is_about_epoch and agrees)
        ):
            self._is_contradicted = True
            return False
        is_epoch_odd = not agrees and self._did_agree
        self._doubt = None
        if is_epoch_odd or base_offset > expected:
            self._doubt = _Doubt(segment, position, expected, len(self.found), batch.next_offset, is_epoch_odd)
        self._did_agree = agrees
        if has_epoch and (not self.found or epoch > self.found[-1][0]):
            self.found.append((epoch, base_offset))
        return True

    def _continues(self, segment: Segment, following: Segment, was_whole: bool, may_have_holes: bool) -> bool:
        """Whether the log goes on with the next segment."""
        end, begin = segment.next_offset, following.base_offset
        if end == begin:
            # Whole up to where the next one begins, even if it was not trimmed when it was rolled.
            return not self._is_contradicted
        if end < begin:
            if not was_whole or self._is_contradicted:
                return False
            if may_have_holes:
                return True
            # Appends leave no gap between segments: the end of this one is lost, or one behind it.
            if segment.size and snapshot_path(segment.path.parent, end).exists():
                raise StorageError(f"{segment.path.parent}: the segment that began at offset {end} is missing")
            return begin < self._recovery_point
        if self._doubt is None and following.path.stat().st_size:
            raise StorageError(f"{segment.path} reaches to offset {end - 1}, into {following.path.name}")
        self._is_contradicted = True
        return False

    def _end_with(self, last: Segment) -> None:
        """Remove the segments behind the last one."""
        index = self.segments.index(last)
        for later in self.segments[index + 1 :]:
            later.discard()
            later.unlink()
        del self.segments[index + 1 :]
