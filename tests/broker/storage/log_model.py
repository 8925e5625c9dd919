"""What a log must hold, as plain lists: every batch that was appended and not cut, and what follows from them."""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.control_records import ControlType, read_marker
from ottla.protocol.records import RecordBatch


class Written(NamedTuple):
    """A batch as it lies in the log."""

    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    # (offset, timestamp) of each record.
    records: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, data: bytes, base_offset: int, leader_epoch: int) -> Written:
        """Note a batch with the offset and epoch that the log gave it."""
        copy = bytearray(data)
        batch = RecordBatch(copy)
        batch.patch(base_offset, leader_epoch)
        records = tuple((record.offset, record.timestamp) for record in batch.records())
        return cls(bytes(copy), base_offset, batch.last_offset, leader_epoch, records)

    @property
    def batch(self) -> RecordBatch:
        """The batch, to ask its header."""
        return RecordBatch(self.data)


class LogModel:
    """A log without files."""

    def __init__(self) -> None:
        # What was ever appended and not cut; retention moves `begin` over it.
        self.history: list[Written] = []
        # Below this nothing is left on disk; below `log_start_offset` nothing may be read.
        self.begin = 0
        self.log_start_offset = 0
        self.end = 0
        self.recovery_point = 0

    @property
    def present(self) -> list[Written]:
        """The batches that are on disk."""
        return [written for written in self.history if written.last_offset >= self.begin]

    @property
    def records(self) -> list[tuple[int, int]]:
        """(offset, timestamp) of every record that may be read."""
        return [record for written in self.present for record in written.records if record[0] >= self.log_start_offset]

    def append(self, written: Written) -> None:
        """Add a batch at the end."""
        assert written.base_offset >= self.end
        self.history.append(written)
        self.end = written.last_offset + 1

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset`, and all behind it."""
        if offset >= self.end:
            return
        if offset < self.log_start_offset:
            self.start_at(offset)
            return
        self.keep([written for written in self.history if written.last_offset < offset])
        if self.end < self.log_start_offset:
            self.start_at(self.log_start_offset)

    def keep(self, history: list[Written]) -> None:
        """Let the log end with the last batch of `history`."""
        self.history = history
        self.end = max(self.begin, history[-1].last_offset + 1 if history else 0)
        self.recovery_point = min(self.recovery_point, self.end)

    def start_at(self, offset: int) -> None:
        """Drop everything."""
        self.history = []
        self.begin = self.log_start_offset = self.end = offset
        self.recovery_point = min(self.recovery_point, offset)

    def delete_before(self, begin: int) -> None:
        """Retention took the segments below `begin`."""
        self.begin = begin
        self.log_start_offset = max(self.log_start_offset, begin)
        self.recovery_point = max(self.recovery_point, begin)

    def offset_for_timestamp(self, timestamp: int) -> int | None:
        """The first record that is as late."""
        return next((offset for offset, known in self.records if known >= timestamp), None)

    def offset_of_max_timestamp(self) -> int | None:
        """The first of the latest records."""
        timed = [record for record in self.records if record[1] >= 0]
        return max(timed, key=lambda record: (record[1], -record[0]))[0] if timed else None

    def next_sequence(self, producer_id: int) -> int:
        """What a producer goes on with."""
        last = self.last_batch_of(producer_id)
        return 0 if last is None else last.batch.last_sequence + 1

    def last_batch_of(self, producer_id: int) -> Written | None:
        """The last data batch of a producer."""
        for written in reversed(self.history):
            batch = written.batch
            if batch.producer_id == producer_id and not batch.is_control:
                return written
        return None

    def open_transactions(self) -> dict[int, int]:
        """Producer id to first offset."""
        return self._transactions()[0]

    def aborted(self) -> list[tuple[int, int, int]]:
        """(producer id, first offset, marker offset) of the aborted transactions whose marker is on disk."""
        return [entry for entry in self._transactions()[1] if entry[2] >= self.begin]

    def _transactions(self) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        ongoing: dict[int, int] = {}
        aborted = []
        for written in self.history:
            batch = written.batch
            if batch.is_control:
                marker = read_marker(batch)
                first = ongoing.pop(batch.producer_id, None)
                if first is not None and marker is not None and marker.control_type is ControlType.ABORT:
                    aborted.append((batch.producer_id, first, written.base_offset))
            elif batch.is_transactional:
                ongoing.setdefault(batch.producer_id, written.base_offset)
        return ongoing, aborted
