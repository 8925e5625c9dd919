"""The segment that retention or compaction cannot remove is found, with what holds it back."""

from __future__ import annotations

from pathlib import Path

from tests.broker.storage.logs import NOW, append, make_batch, make_log
from tests.broker.storage.many_logs import batch as records

from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.stuck_segments import Holder, stuck_segment

DAY_MS = 86_400_000
SIZE = len(make_batch())


def log_of(tmp_path: Path, *timestamps: int, **options: object) -> Log:
    """Make a log with one batch in each segment."""
    log = make_log(tmp_path / "orders-0", segment_bytes=SIZE, **options)  # type: ignore[arg-type]
    for timestamp in timestamps:
        append(log, make_batch(timestamps=[timestamp]))
    log.advance_high_watermark(log.log_end_offset)
    return log


def test_a_future_timestamp_holds_back_what_lies_behind_it(tmp_path: Path) -> None:
    """Retention counts from that time, and segments go in order."""
    future = NOW + 30 * DAY_MS
    log = log_of(tmp_path, NOW - 9 * DAY_MS, future, NOW - 9 * DAY_MS, NOW, NOW, retention_ms=7 * DAY_MS)

    found = stuck_segment(log, NOW)

    assert found is not None
    assert (found.holder, found.base_offset, found.next_offset) == (Holder.FUTURE_TIMESTAMP, 1, 2)
    assert found.value == future
    assert found.held_bytes == 2 * SIZE
    assert found.path.name == "00000000000000000001.log"


def test_records_that_a_follower_lacks_hold_back_their_segments(tmp_path: Path) -> None:
    """They are old enough, and not committed."""
    log = log_of(tmp_path, *[NOW - 9 * DAY_MS] * 4, NOW, retention_ms=7 * DAY_MS)
    log.high_watermark = 2

    found = stuck_segment(log, NOW)

    assert found is not None
    assert (found.holder, found.base_offset) == (Holder.LAGGING_FOLLOWER, 2)
    assert found.held_bytes == 2 * SIZE


def test_an_open_transaction_holds_back_compaction(tmp_path: Path) -> None:
    """From the segment in which it begins."""
    log = make_log(tmp_path / "orders-0", segment_bytes=100, cleanup_policy="compact")
    log.append_as_leader(records(), 0)
    log.append_as_leader(records(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), 0)
    for _ in range(3):
        log.append_as_leader(records(), 0)
    log.advance_high_watermark(log.log_end_offset)

    found = stuck_segment(log, NOW)

    assert found is not None
    assert (found.holder, found.base_offset, found.value) == (Holder.OPEN_TRANSACTION, 1, 1)
    assert found.held_bytes == sum(segment.size for segment in log.segments[1:-1])


def test_what_the_options_keep_is_not_stuck(tmp_path: Path) -> None:
    """Young segments, logs without a limit, and the active segment, whatever its timestamps are."""
    assert stuck_segment(log_of(tmp_path / "young", NOW, NOW, NOW), NOW) is None
    assert stuck_segment(log_of(tmp_path / "forever", NOW + DAY_MS, NOW, retention_ms=-1), NOW) is None
    assert stuck_segment(log_of(tmp_path / "active", NOW + DAY_MS), NOW) is None
    assert stuck_segment(log_of(tmp_path / "skewed", NOW + 60_000, NOW), NOW) is None
