"""A log does what a plain list would, through rolls, cuts, deletions, clean stops and crashes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.broker.storage.log_model import LogModel, Written
from tests.broker.storage.logs import (
    NOW,
    append,
    append_marker,
    make_batch,
    make_log,
    make_marker,
    memory_directory,
    read_all,
)
from tests.kit.clock import FakeClock
from tests.kit.examples import examples

from ottla.broker.storage.maintenance.retention import Reason, delete_old_segments, remove_doomed
from ottla.broker.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp
from ottla.broker.storage.open_files import FileSlice, OpenFiles
from ottla.broker.storage.recovery.recovery import close_log
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import RecordBatch, batches

RETENTION_MS = 50_000
RETENTION_BYTES = 4000

times_of_records = st.integers(-1, 2000).map(lambda delta: NOW + delta if delta >= 0 else -1)
timestamps = st.lists(times_of_records, min_size=1, max_size=4)
values = st.integers(0, 120).map(bytes)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])
producer_ids = st.integers(1, 3)
fractions = st.floats(0, 1)


class LogMachine(RuleBasedStateMachine):
    """Drives a log and its model side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-log-", dir=memory_directory()))
        self.clock = FakeClock(NOW)
        self.model = LogModel()
        self.epoch = 1
        self.lent: list[tuple[FileSlice, bytes]] = []

    @initialize(index_interval=st.sampled_from([0, 150, 4096]), segment_bytes=st.sampled_from([600, 1500]))
    def open(self, index_interval: int, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.options: dict[str, Any] = {
            "index_interval_bytes": index_interval,
            "segment_bytes": segment_bytes,
            "segment_index_bytes": 200,
            "retention_ms": RETENTION_MS,
            "retention_bytes": RETENTION_BYTES,
        }
        self.log = make_log(self.directory, self.clock, OpenFiles(2), **self.options)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def reopen(self, *, was_clean: bool) -> None:
        self.log = make_log(
            self.directory,
            self.clock,
            OpenFiles(2),
            recovery_point=self.model.recovery_point,
            log_start_offset=self.model.log_start_offset,
            was_clean=was_clean,
            **self.options,
        )

    # Appending

    @rule(times=timestamps, value=values, codec=codecs)
    def append(self, times: list[int], value: bytes, codec: Codec) -> None:
        data = make_batch(timestamps=times, value=value, codec=codec)
        appended = append(self.log, data, self.epoch)

        assert appended.first_offset == self.model.end
        self.model.append(Written.of(data, self.model.end, self.epoch))

    @rule(times=timestamps, producer_id=producer_ids, transactional=st.booleans())
    def append_in_sequence(self, times: list[int], producer_id: int, transactional: bool) -> None:
        is_open = producer_id in self.model.open_transactions()
        data = make_batch(
            timestamps=times,
            producer_id=producer_id,
            sequence=self.model.next_sequence(producer_id),
            transactional=transactional or is_open,
        )
        append(self.log, data, self.epoch)
        self.model.append(Written.of(data, self.model.end, self.epoch))

    @rule(producer_id=producer_ids)
    def append_again(self, producer_id: int) -> None:
        last = self.model.last_batch_of(producer_id)
        if last is not None:
            data = bytearray(last.data)
            RecordBatch(data).patch(0, -1)
            appended = append(self.log, bytes(data), self.epoch)

            assert appended.is_duplicate
            assert (appended.first_offset, appended.last_offset) == (last.base_offset, last.last_offset)

    @rule(producer_id=producer_ids)
    def append_with_a_gap(self, producer_id: int) -> None:
        if self.model.last_batch_of(producer_id) is not None:
            sequence = self.model.next_sequence(producer_id) + 1
            data = make_batch(producer_id=producer_id, sequence=sequence, transactional=True)
            with pytest.raises(KafkaError) as refused:
                append(self.log, data, self.epoch)

            assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer_id=producer_ids, control_type=st.sampled_from(ControlType))
    def end_transaction(self, producer_id: int, control_type: ControlType) -> None:
        data = make_marker(control_type, producer_id)
        append_marker(self.log, data, self.epoch)
        self.model.append(Written.of(data, self.model.end, self.epoch))

    @rule(times=st.lists(timestamps, min_size=1, max_size=5), holes=st.lists(st.integers(0, 3), min_size=5, max_size=5))
    def append_as_follower(self, times: list[list[int]], holes: list[int]) -> None:
        group = []
        offset = self.model.end
        for some, hole in zip(times, holes, strict=False):
            data = make_batch(timestamps=some)
            group.append(Written.of(data, offset + hole, self.epoch))
            offset = group[-1].last_offset + 1
        self.log.append_as_follower(b"".join(written.data for written in group), self.epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)
        for written in group:
            self.model.append(written)

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # Cutting and deleting

    @precondition(lambda self: self.model.end > self.model.log_start_offset)
    @rule(fraction=fractions, below=st.booleans())
    def truncate(self, fraction: float, below: bool) -> None:
        start = self.model.log_start_offset
        offset = start - 1 if below and start else start + round((self.model.end - start) * fraction)
        self.log.truncate_to(offset)
        self.model.truncate_to(offset)

    @rule(ahead=st.integers(0, 20))
    def truncate_fully(self, ahead: int) -> None:
        if ahead < 5:
            offset = self.model.end + ahead
            self.log.truncate_fully_and_start_at(offset)
            self.model.start_at(offset)

    @rule(fraction=fractions)
    def advance_log_start(self, fraction: float) -> None:
        start = self.model.log_start_offset
        offset = start + round((self.model.end - start) * fraction * 0.5)
        self.log.advance_log_start(offset)
        self.model.log_start_offset = offset

    @rule(elapsed_ms=st.sampled_from([0, RETENTION_MS, 2 * RETENTION_MS]))
    def retain(self, elapsed_ms: int) -> None:
        self.clock.now += elapsed_ms
        begin = self.model.begin
        for segment, reason in delete_old_segments(self.log):
            gone = [written for written in self.model.present if begin <= written.base_offset < segment.next_offset]
            times = [timestamp for written in gone for _, timestamp in written.records]
            if reason is Reason.LOG_START:
                assert segment.next_offset <= self.model.log_start_offset
            elif reason is Reason.TIME and max(times) >= 0:
                assert max(times) < self.clock.now - RETENTION_MS
            begin = segment.next_offset
        self.model.delete_before(self.log.segments[0].base_offset)
        remove_doomed(self.log)

        assert self.log.size < RETENTION_BYTES + self.segment_bytes

    # Stopping

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.model.end
        self.model.recovery_point = self.log.recovery_point

    @rule()
    def release(self) -> None:
        for segment in self.log.segments:
            assert segment.release()

    @rule(index=st.integers(0, 5), at=st.integers(0, 200), bit=st.integers(0, 7))
    def damage_an_offset_index(self, index: int, at: int, bit: int) -> None:
        segment = self.log.segments[index % len(self.log.segments)]
        segment.release()
        path = segment.offset_index.path
        data = bytearray(path.read_bytes() if path.exists() else b"")
        if at < len(data):
            data[at] ^= 1 << bit
            path.write_bytes(data)
        else:
            path.unlink(missing_ok=True)

    @rule()
    def stop_and_start(self) -> None:
        self.lent.clear()
        close_log(self.log)
        self.model.recovery_point = self.model.end
        self.reopen(was_clean=True)

        assert self.log.recovery_point == self.model.end

    @rule(fraction=fractions, behind=st.sampled_from([b"", bytes(200), b"\xff" * 100]))
    def crash(self, fraction: float, behind: bytes) -> None:
        self.lent.clear()
        kept = self.lose_what_was_not_flushed(fraction, behind)
        self.reopen(was_clean=False)

        size = sum(len(written.data) for written in kept if written.last_offset >= self.model.begin)
        if self.hole_before_the_last(kept) and self.log.size < size:
            # Its offset is not to be trusted, where it leaves a hole and nothing comes behind it.
            assert kept[-1].last_offset >= self.model.recovery_point
            kept = kept[:-1]
        self.model.keep(kept)
        if self.model.end < self.model.log_start_offset:
            self.model.start_at(self.model.log_start_offset)

    def hole_before_the_last(self, kept: list[Written]) -> int:
        """How many offsets lie between the last two batches."""
        if not kept or kept[-1].base_offset < self.model.begin:
            return 0
        before = kept[-2].last_offset + 1 if kept[1:] else self.model.begin
        return kept[-1].base_offset - max(before, self.model.begin)

    def lose_what_was_not_flushed(self, fraction: float, behind: bytes) -> list[Written]:
        """Cut the last file at a byte that no flush covered, and put something behind it; return what is left."""
        active = self.log.active
        there = [written for written in self.model.history if written.base_offset >= active.base_offset]
        flushed = [written for written in there if written.last_offset < self.model.recovery_point]
        flushed_size = sum(len(written.data) for written in flushed)
        size = flushed_size + round((active.size - flushed_size) * fraction)
        data = active.path.read_bytes()
        left = data if size == active.size else data[:size] + behind
        active.path.write_bytes(left)
        kept, position = self.model.history[: len(self.model.history) - len(there)], 0
        for written in there:
            # What lies behind may happen to be what was lost.
            if left[position : position + len(written.data)] != written.data:
                break
            position += len(written.data)
            kept.append(written)
        return kept

    # Reading

    @rule(fraction=fractions, upper=fractions, max_bytes=st.integers(1, 2000), at_least_one=st.booleans())
    def read(self, fraction: float, upper: float, max_bytes: int, at_least_one: bool) -> None:
        start, end = self.model.log_start_offset, self.model.end
        offset = start + round((end - start) * fraction)
        bound = offset + round((end - offset) * upper)
        piece = self.log.read(offset, max_bytes, bound, at_least_one=at_least_one)
        expected = [written for written in self.model.present if written.last_offset >= offset]
        below = [written for written in expected if written.last_offset < bound]
        if offset >= bound or not below or (not at_least_one and len(below[0].data) > max_bytes):
            assert piece is None
            return
        assert piece is not None
        data = piece.read()
        count = len(list(batches(data, strict=True)))

        assert data == b"".join(written.data for written in below[:count])
        assert len(data) <= max_bytes or count == 1
        if count < len(below) and len(data) + len(below[count].data) <= max_bytes:
            begins = [segment.base_offset for segment in self.log.segments]
            assert any(below[0].last_offset < begin <= below[count].base_offset for begin in begins)
        self.lent = [*self.lent[-4:], (piece, data)]

    @rule(delta=st.integers(-10, 2010))
    def look_up_a_timestamp(self, delta: int) -> None:
        found = offset_for_timestamp(self.log, NOW + delta)

        assert (found.offset if found else None) == self.model.offset_for_timestamp(NOW + delta)

    @rule()
    def look_up_the_largest_timestamp(self) -> None:
        found = offset_of_max_timestamp(self.log)

        assert (found.offset if found else None) == self.model.offset_of_max_timestamp()

    @rule(fraction=fractions, upper=fractions)
    def ask_for_aborted_transactions(self, fraction: float, upper: float) -> None:
        start, end = self.model.begin, self.model.end
        from_offset = start + round((end - start) * fraction)
        bound = from_offset + round((end - from_offset) * upper)
        expected = [
            (producer_id, first)
            for producer_id, first, last in self.model.aborted()
            if last >= from_offset and first < bound
        ]
        expected.sort(key=lambda entry: entry[1])

        assert self.log.aborted_transactions(from_offset, bound) == expected

    # Always

    @invariant()
    def is_like_the_model(self) -> None:
        log, model = self.log, self.model

        assert (log.log_start_offset, log.log_end_offset) == (model.log_start_offset, model.end)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        assert log.size == sum(len(written.data) for written in model.present)
        assert [batch.base_offset for batch in read_all(log)] == [
            written.base_offset for written in model.present if written.last_offset >= model.log_start_offset
        ]
        for written in model.present:
            if written.base_offset >= model.log_start_offset:
                assert log.leader_epochs.epoch_for(written.base_offset) == written.leader_epoch
        assert log.last_stable_offset == max(
            min([*model.open_transactions().values(), model.end]), model.log_start_offset
        )

    @invariant()
    def slices_stay_as_they_were(self) -> None:
        for piece, data in self.lent:
            assert piece.read() == data


TestLog = LogMachine.TestCase
TestLog.settings = examples(200, stateful_step_count=40)
