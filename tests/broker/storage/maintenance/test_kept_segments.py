"""Why a segment is still there: the same rules as for deleting it, in words."""

from __future__ import annotations

from pathlib import Path

from tests.broker.storage.logs import NOW, append, fill, make_batch, make_log
from tests.kit.clock import FakeClock

from ottla.broker.storage.maintenance.retention import delete_old_segments, kept_segments

PER_SEGMENT = 1000 // len(make_batch())
DAY_MS = 86_400_000


def test_a_young_segment_says_when_it_will_go(tmp_path: Path) -> None:
    """Deleting at that time does it, and not a millisecond earlier."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=1000)
    fill(log, 3 * PER_SEGMENT)
    clock.now += 500
    first, *_, active = kept_segments(log)
    assert first.why == "its newest record is younger than retention.ms"
    assert first.deleted_ms is not None
    assert (active.why, active.deleted_ms) == ("the active segment, which is still written", None)
    clock.now = first.deleted_ms - 1
    assert delete_old_segments(log) == []
    clock.now += 1
    assert kept_segments(log)[0].why == "older than retention.ms; the next check deletes it"
    assert [segment.base_offset for segment, _ in delete_old_segments(log)] == [0]


def test_a_segment_waits_for_an_older_one(tmp_path: Path) -> None:
    """Segments go in order: a record of the future keeps all that came after it."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=1000)
    append(log, make_batch(timestamps=[NOW + DAY_MS]))
    log.roll()
    append(log, make_batch(timestamps=[NOW]))
    log.roll()
    clock.now += 2000
    future, younger, _ = kept_segments(log)
    assert future.why == "its newest record has a timestamp in the future"
    assert younger.why.endswith("an older segment stays longer, and segments go in order")
    assert younger.deleted_ms == future.deleted_ms == NOW + DAY_MS + 1001


def test_what_is_not_replicated_says_so(tmp_path: Path) -> None:
    """Followers still want it, however old it is."""
    clock = FakeClock(NOW)
    log = make_log(tmp_path, clock, retention_ms=1000)
    fill(log, 3 * PER_SEGMENT)
    log.advance_high_watermark(1)
    clock.now += DAY_MS
    assert "above the high watermark" in kept_segments(log)[0].why


def test_without_limits_nothing_is_deleted(tmp_path: Path) -> None:
    """A compacted topic, one without any limit, and one that is only limited in size."""
    cases: list[tuple[dict[str, object], str]] = [
        ({"cleanup_policy": "compact"}, "the topic is compacted"),
        ({"retention_ms": -1}, "retention.ms and retention.bytes set no limit"),
        ({"retention_ms": -1, "retention_bytes": 10_000}, "the log is not larger than retention.bytes"),
    ]
    for number, (options, why) in enumerate(cases):
        log = make_log(tmp_path / f"orders-{number}", None, None, **options)  # type: ignore[arg-type]
        fill(log, 2 * PER_SEGMENT)
        first = kept_segments(log)[0]
        assert first.why.startswith(why)
        assert first.deleted_ms is None
