"""Reading a log batch by batch after an unclean stop, to find where it ends.

The log ends before the first batch that is torn, fails its CRC, or contradicts the batch before it. Base offset and
leader epoch lie outside the CRC, so either of the two batches may be wrong. A batch that leaves a hole in the offsets,
or whose epoch change is not in the checkpoint, is in doubt until the next batch confirms it. If the next batch
contradicts it, the log ends before the doubtful batch.

The checkpoint has an epoch before the log has a batch of it. So a batch that contradicts the checkpoint is damaged, or
was cut earlier and came back after a power loss.

A crash only damages what was not flushed, or the very end of it on a disk that lies. Other damage is reported and not
cut: damage below the recovery point with more batches behind it, file names that do not match their batches, and
missing files.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.log import OFFSETS_IN_SEGMENT_MAX
from ottla.broker.storage.producers.producer_snapshot import snapshot_path
from ottla.broker.storage.segment import Segment
from ottla.broker.storage.segment_file import has_batch_behind
from ottla.protocol.records import NO_LEADER_EPOCH, RecordBatch


class _Place(NamedTuple):
    """Where a log may end: before the batch at `position`, with the epochs found so far."""

    segment: Segment
    position: int
    next_offset: int
    found_count: int


class RecoveryScan:
    """One pass over the last segments of a log."""

    def __init__(
        self, segments: list[Segment], epochs: LeaderEpochs | None, recovery_point: int, *, may_have_holes: bool
    ) -> None:
        """Take all segments of the log, and the checkpointed epochs if they can be trusted."""
        self.segments = segments
        # (leader epoch, start offset), as found in the batches.
        self.found: list[tuple[int, int]] = []
        # Whether the checkpointed epochs are wrong: several flushed batches in a row contradict them.
        self.contradicts_epochs = False
        self._epochs = epochs
        self._recovery_point = recovery_point
        self._may_have_holes = may_have_holes
        # The place before the last batch if that is in doubt, and whether the doubt is about a hole.
        self._doubt: _Place | None = None
        self._is_hole = False
        # The offset of the last batch if it was flushed, and it alone contradicts the checkpoint.
        self._odd_offset: int | None = None
        self._did_agree = True
        # Whether the log ends because a batch contradicts another.
        self._is_contradicted = False

    def run(self, first: int) -> None:
        """Read the segments from the index `first` on, and cut the log at its end."""
        segments = self.segments
        if self._epochs is not None:
            epoch = self._epochs.epoch_for(segments[first].base_offset - 1)
            if epoch != NO_LEADER_EPOCH:
                self.found.append((epoch, segments[first].base_offset))
        trimmed: list[_Place] = []
        for index, segment in enumerate(segments[first:], first):
            end = self._scan(segment)
            following = segments[index + 1] if index + 1 < len(segments) else None
            if following is None or not self._continues(end, following):
                break
            trimmed.append(end._replace(next_offset=following.base_offset))
        end = self._before_doubt(end)
        if end.next_offset < self._recovery_point and self._has_more_behind(end):
            raise StorageError(
                f"{end.segment.path}: the log was flushed up to offset {self._recovery_point}, but is damaged at "
                f"{end.next_offset}, position {end.position}"
            )
        if self._odd_offset is not None:
            raise self._odd_epoch(self._odd_offset)
        del self.found[end.found_count :]
        for place in trimmed:
            place.segment.cut(place.position, place.next_offset)
        end.segment.cut(end.position, end.next_offset)
        self._end_with(end.segment)
        for segment in segments[first:]:
            segment.rebuild_indexes()

    def _scan(self, segment: Segment) -> _Place:
        """Return where the good batches of a segment end."""
        position, next_offset = segment.recover(partial(self._accepts, segment))
        return _Place(segment, position, next_offset, len(self.found))

    def _accepts(self, segment: Segment, position: int, expected: int, batch: RecordBatch) -> bool:
        """Whether a whole batch continues the log; False ends the log before it, or before the doubtful batch."""
        base_offset, epoch = batch.base_offset, batch.partition_leader_epoch
        if position == 0 and base_offset < segment.base_offset:
            raise StorageError(
                f"{segment.path} begins with offset {base_offset}, which is below the offset in its name"
            )
        last_epoch = self.found[-1][0] if self.found else NO_LEADER_EPOCH
        has_epoch = epoch != NO_LEADER_EPOCH
        if (
            base_offset < expected
            or batch.last_offset_delta < 0
            or batch.last_offset - segment.base_offset > OFFSETS_IN_SEGMENT_MAX
            or (has_epoch and epoch < last_epoch)
        ):
            self._is_contradicted = True
            return False
        # The checkpoint has no entries below the log start.
        known_epoch = self._epochs.epoch_for(base_offset) if self._epochs is not None else NO_LEADER_EPOCH
        agrees = not has_epoch or known_epoch in (epoch, NO_LEADER_EPOCH)
        if not agrees and batch.next_offset > self._recovery_point:
            return False
        if agrees and self._odd_offset is not None:
            raise self._odd_epoch(self._odd_offset)
        self._odd_offset = base_offset if not agrees and self._did_agree else None
        self._did_agree = agrees
        self.contradicts_epochs = self.contradicts_epochs or not agrees
        self._doubt = None
        self._is_hole = base_offset > expected
        if self._is_hole or (has_epoch and epoch != last_epoch and epoch != known_epoch):
            self._doubt = _Place(segment, position, expected, len(self.found))
        if has_epoch and epoch > last_epoch:
            self.found.append((epoch, base_offset))
        return True

    def _continues(self, end: _Place, following: Segment) -> bool:
        """Whether the log continues with the next segment."""
        segment, begin = end.segment, following.base_offset
        if end.next_offset == begin:
            # Complete up to the next segment, even if the file was not trimmed when it was rolled.
            return not self._is_contradicted
        if end.next_offset < begin:
            if end.position < segment.size:
                return False
            if self._may_have_holes:
                return True
            # Appends leave no gap between segments: the end of this one is lost, or the segment after it.
            if segment.size and snapshot_path(segment.path.parent, end.next_offset).exists():
                raise StorageError(f"{segment.path.parent}: the segment from offset {end.next_offset} on is missing")
            return begin < self._recovery_point
        if self._doubt is None and following.path.stat().st_size:
            raise StorageError(f"{segment.path} reaches to offset {end.next_offset - 1}, into {following.path.name}")
        self._is_contradicted = True
        return False

    def _has_more_behind(self, end: _Place) -> bool:
        segment = end.segment
        return segment is not self.segments[-1] or has_batch_behind(
            segment.file.fd, end.position, segment.size, end.next_offset
        )

    def _before_doubt(self, end: _Place) -> _Place:
        """Return where the log really ends: before the last batch if that is in doubt and not confirmed."""
        doubt = self._doubt
        if doubt is None:
            return end
        is_flushed = end.next_offset <= self._recovery_point
        # Without a contradiction only a hole counts, in a log that should have none, and only if it was not flushed.
        if self._is_contradicted or (self._is_hole and not is_flushed and not self._may_have_holes):
            return doubt
        return end

    def _odd_epoch(self, offset: int) -> StorageError:
        assert self._epochs is not None
        return StorageError(
            f"{self._epochs.path} and the batch at offset {offset} have different leader epochs; "
            f"delete the file if the log is right, or the log if it has replicas"
        )

    def _end_with(self, last: Segment) -> None:
        """Remove the segments behind the last one."""
        index = self.segments.index(last)
        for later in self.segments[index + 1 :]:
            later.remove()
        del self.segments[index + 1 :]
