"""A log gives out offsets, and rolls when it must."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.broker.storage.logs import (
    LEADER_EPOCH,
    NOW,
    append,
    append_marker,
    fill,
    make_batch,
    make_log,
    make_marker,
    names,
    offsets,
    read_all,
    topic_config,
)
from tests.kit.clock import FakeClock

from ottla.broker.storage import log as log_module
from ottla.broker.storage.log import Log
from ottla.broker.storage.producers.producers import FROM_COORDINATOR
from ottla.broker.storage.segment import Segment
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.records import RecordBatch

SIZE = len(make_batch())


class Guard:
    """A log directory that refuses what it is told to."""

    def __init__(self, refusal: str | None = None, client_refusal: str | None = None) -> None:
        self.refusal = refusal
        self.client_refusal = client_refusal
        self.copy_refusal = self.coordinator_refusal = refusal
        self.errors: list[OSError] = []

    def failed(self, error: OSError) -> None:
        self.errors.append(error)


def refusal(log: Log, data: bytes, leader_epoch: int = LEADER_EPOCH) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        append(log, data, leader_epoch)
    return refused.value


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# Appending


def test_batches_get_consecutive_offsets_and_the_leaders_epoch(tmp_path: Path) -> None:
    """In the log they carry both, and the CRC is as the producer made it."""
    log = make_log(tmp_path)
    first, second = append(log, make_batch(3)), append(log, make_batch(2))

    assert (first.first_offset, first.last_offset, second.first_offset, second.last_offset) == (0, 2, 3, 4)
    assert (first.log_append_time_ms, first.log_start_offset, first.is_duplicate) == (-1, 0, False)
    assert [(batch.base_offset, batch.partition_leader_epoch) for batch in read_all(log)] == [(0, 3), (3, 3)]


def test_the_time_of_appending_is_told_where_the_topic_wants_it(tmp_path: Path) -> None:
    """LogAppendTime."""
    log = make_log(tmp_path, message_timestamp_type="LogAppendTime")

    assert append(log, make_batch(timestamps=[5])).log_append_time_ms == NOW
    assert [record.timestamp for batch in read_all(log) for record in batch.records()] == [NOW]


def test_a_batch_that_nobody_else_needs_is_committed_at_once(tmp_path: Path) -> None:
    """So is a marker: its transaction no longer holds readers back."""
    log = make_log(tmp_path)
    batch = make_batch(producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    log.append_as_leader(RecordBatch(batch), LEADER_EPOCH)
    assert (log.high_watermark, log.last_stable_offset) == (0, 0)

    marker = RecordBatch(make_marker(ControlType.COMMIT, producer_id=7))
    log.append_as_leader(marker, LEADER_EPOCH, FROM_COORDINATOR, is_committed=True)
    assert (log.high_watermark, log.last_stable_offset) == (log.log_end_offset, log.log_end_offset)
    assert not log.producers.ended


def test_a_duplicate_is_answered_with_its_first_offsets(tmp_path: Path) -> None:
    """And is not appended again."""
    log = make_log(tmp_path)
    data = make_batch(2, producer_id=7)
    append(log, data)
    again = append(log, data)

    assert (again.is_duplicate, again.first_offset, again.last_offset, log.log_end_offset) == (True, 0, 1, 2)


def test_an_older_leader_is_fenced(tmp_path: Path) -> None:
    """Epochs never fall in a log: recovery would cut it there."""
    log = make_log(tmp_path)
    append(log, make_batch(), 5)

    assert refusal(log, make_batch(), 4).code is ErrorCode.FENCED_LEADER_EPOCH
    assert log.end_offset_for_epoch(5) == (5, 1)


def test_a_guard_refuses_clients_or_everybody(tmp_path: Path) -> None:
    """A directory with little room still takes what followers and coordinators write."""
    log = make_log(tmp_path)
    log.guard = Guard(client_refusal="little room")

    assert "little room" in str(refusal(log, make_batch()))
    append_marker(log, make_marker(ControlType.COMMIT, 1))
    log.append_as_follower(make_batch(base_offset=1, leader_epoch=3), 3)
    log.guard = Guard("offline", "offline")
    with pytest.raises(KafkaError, match="offline"):
        log.append_as_follower(make_batch(base_offset=2, leader_epoch=3), 3)


def test_a_refusing_system_is_a_storage_error_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard hears of it, and the log is as it was."""
    log = make_log(tmp_path)
    append(log, make_batch())
    log.guard = guard = Guard()
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "append", no_room)
        refused = refusal(log, make_batch())

    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in str(refused)
    assert [error.errno for error in guard.errors] == [errno.ENOSPC]
    assert append(log, make_batch()).first_offset == 1


def test_an_abort_that_cannot_be_indexed_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its records would be read as committed; the coordinator tries again."""
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=7, transactional=True))
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "add_aborted", no_room)
        with pytest.raises(KafkaError, match="No space"):
            append_marker(log, make_marker(ControlType.ABORT, 7))

    assert (log.log_end_offset, log.last_stable_offset, log.aborted_transactions(0, 9)) == (1, 0, [])
    append_marker(log, make_marker(ControlType.ABORT, 7))
    assert (log.last_stable_offset, log.aborted_transactions(0, 9)) == (2, [(7, 0)])


# Appending as a follower


def test_a_follower_takes_whole_batches_as_they_are(tmp_path: Path) -> None:
    """With holes between them, and without the piece of one at the end."""
    log = make_log(tmp_path)
    group = [make_batch(2, base_offset=base, leader_epoch=4) for base in (0, 2, 9)]
    appended = log.append_as_follower(b"".join(group) + group[0][:50], 4)

    assert appended is not None
    assert (appended.first_offset, appended.last_offset, log.log_end_offset) == (0, 10, 11)
    assert b"".join(bytes(batch.view) for batch in read_all(log)) == b"".join(group)
    assert log.append_as_follower(group[0][:50], 4) is None


def test_a_follower_rolls_for_more_than_a_segment_holds(tmp_path: Path) -> None:
    """Batch by batch, each into a segment that it fits."""
    log = make_log(tmp_path, segment_bytes=250)
    log.append_as_follower(b"".join(make_batch(base_offset=base, leader_epoch=1) for base in range(6)), 1)

    assert names(tmp_path, ".log") == [0, 2, 4]
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


def test_a_hole_that_an_index_cannot_span_begins_a_segment(tmp_path: Path) -> None:
    """Relative offsets have 32 bits."""
    log = make_log(tmp_path, index_interval_bytes=0)
    far = 5_000_000_000
    log.append_as_follower(
        make_batch(leader_epoch=1) + b"".join(make_batch(base_offset=far + n, leader_epoch=1) for n in range(3)),
        1,
    )

    assert offsets(log) == [0, far, far + 1, far + 2]
    assert names(tmp_path, ".log") == [0, far]


def test_an_empty_segment_too_far_below_is_replaced(tmp_path: Path) -> None:
    """A follower that begins with a log whose start is far up."""
    log = make_log(tmp_path)
    log.append_as_follower(make_batch(base_offset=2**40, leader_epoch=1), 1)

    assert names(tmp_path, ".log") == [2**40]
    assert log.log_end_offset == 2**40 + 1


@pytest.mark.parametrize(
    "group",
    [
        make_batch(base_offset=1, leader_epoch=2) + make_batch(base_offset=1, leader_epoch=2),
        make_batch(base_offset=0, leader_epoch=2),
        make_batch(base_offset=1, leader_epoch=1),
        make_batch(base_offset=1, leader_epoch=3) + make_batch(base_offset=2, leader_epoch=2),
        make_batch(base_offset=1, leader_epoch=3) + make_batch(base_offset=2, leader_epoch=4),
        make_batch(base_offset=1, leader_epoch=2)[:-1] + b"!",
        make_marker(ControlType.COMMIT, 1, base_offset=1, leader_epoch=2)[:61] + b"\xff" * 17,
    ],
    ids=["overlap", "again", "older epoch", "falling epoch", "later epoch", "wrong CRC", "no marker"],
)
def test_a_follower_appends_nothing_of_what_does_not_continue_its_log(tmp_path: Path, group: bytes) -> None:
    """Not even the part that does."""
    log = make_log(tmp_path)
    log.append_as_follower(make_batch(leader_epoch=2), 2)
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(group, 3)

    assert offsets(log) == [0]


def test_timestamps_of_a_group_belong_to_their_batches(tmp_path: Path) -> None:
    """The largest one is not that of the last batch, only because they came together."""
    log = make_log(tmp_path)
    times = [NOW, NOW + 50, NOW + 20]
    log.append_as_follower(
        b"".join(make_batch(timestamps=[time], base_offset=n, leader_epoch=1) for n, time in enumerate(times)),
        1,
    )

    assert (log.active.largest_timestamp, log.active.first_timestamp) == ((NOW + 50, 1), NOW)


# Rolling


def test_append_rolls_when_segment_is_full(tmp_path: Path) -> None:
    """A batch is never split, and no segment is larger than the option says."""
    log = make_log(tmp_path, segment_bytes=3 * SIZE + 10)
    fill(log, 7)

    assert names(tmp_path, ".log") == [0, 3, 6]
    assert [path.stat().st_size for path in sorted(tmp_path.glob("*.log"))][:2] == [3 * SIZE, 3 * SIZE]
    assert names(tmp_path, ".snapshot") == [3, 6]


def test_append_rolls_when_the_batch_is_much_later_than_the_first(tmp_path: Path) -> None:
    """Time is what the batches say, not when they came."""
    log = make_log(tmp_path, segment_ms=100, segment_jitter_ms=0)
    for delta in (0, 50, 100, 101, 150, 201, 202):
        append(log, make_batch(timestamps=[NOW + delta]))

    assert names(tmp_path, ".log") == [0, 3, 6]


def test_without_timestamps_the_clock_counts(tmp_path: Path) -> None:
    """As long as the segment has been the active one."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, segment_ms=100, segment_jitter_ms=0)
    for _ in range(4):
        append(log, make_batch(timestamps=[-1]))
        clock.now += 60

    assert names(tmp_path, ".log") == [0, 2]


def test_jitter_makes_segments_roll_earlier(tmp_path: Path) -> None:
    """So that not all of a broker's logs roll at once."""
    log = make_log(tmp_path, segment_ms=1000, segment_jitter_ms=1000)
    append(log, make_batch(timestamps=[NOW]))
    append(log, make_batch(timestamps=[NOW + 1001]))

    assert names(tmp_path, ".log") == [0, 1]


def test_a_compacted_topic_rolls_in_time_to_be_compacted(tmp_path: Path) -> None:
    """max.compaction.lag.ms, where that is shorter than segment.ms."""
    log = make_log(tmp_path, cleanup_policy="compact", max_compaction_lag_ms=100)
    for delta in (0, 101):
        append(log, make_batch(timestamps=[NOW + delta]))

    assert names(tmp_path, ".log") == [0, 1]


def test_append_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    """However small the batches are."""
    log = make_log(tmp_path, segment_bytes=10**6, index_interval_bytes=0, segment_index_bytes=60)
    fill(log, 12)

    assert names(tmp_path, ".log") == [0, 5, 10]


def test_options_count_from_when_they_are_changed(tmp_path: Path) -> None:
    """For the segment that is being written, too."""
    log = make_log(tmp_path)
    fill(log, 3)
    log.config = topic_config(segment_bytes=2 * SIZE)
    fill(log, 3)

    assert names(tmp_path, ".log") == [0, 3, 5]


def test_rolling_an_empty_segment_does_nothing(tmp_path: Path) -> None:
    """There would be two of the same name."""
    log = make_log(tmp_path)
    log.roll()
    fill(log, 1)
    log.roll()
    log.roll()

    assert names(tmp_path, ".log") == [0, 1]
    assert log.roll_locked(1) is log.active


@pytest.mark.parametrize("step", ["write_snapshot", "finish", "create"])
def test_a_roll_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A smaller batch may still fit, and a clean start must not find the segment that was not begun."""
    log = make_log(tmp_path, segment_bytes=3 * SIZE)
    fill(log, 2)
    with monkeypatch.context() as patched:
        patched.setattr(log_module if step == "write_snapshot" else Segment, step, no_room)
        assert refusal(log, make_batch(3)).code is ErrorCode.KAFKA_STORAGE_ERROR

    assert names(tmp_path, ".log") == [0]
    fill(log, 2)
    assert (names(tmp_path, ".log"), offsets(log)) == ([0, 3], [0, 1, 2, 3])
