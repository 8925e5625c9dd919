"""Offsets that are missing within a log: where compaction left them out they are fine, whatever the policy is now."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.storage.logs import append, make_batch, make_log, offsets

from ottla.broker.config import BrokerConfig
from ottla.broker.storage.compaction.compaction import CleanerLimits, compact
from ottla.broker.storage.directory_files import may_have_holes
from ottla.broker.storage.log import Log
from ottla.protocol.records import RecordBatch


@pytest.fixture
def compacted(tmp_path: Path) -> Log:
    """Return a log that was compacted, and not closed."""
    log = make_log(tmp_path / "orders-0", cleanup_policy="compact", segment_bytes=300)
    for _ in range(20):
        append(log, make_batch())
    log.advance_high_watermark(log.log_end_offset)
    compact(log, 0, CleanerLimits.of(BrokerConfig.of({})))
    return log


def test_a_log_with_holes_opens_under_another_policy(compacted: Log) -> None:
    """Also after an unclean stop, when all of it is read."""
    before = offsets(compacted)
    assert len(before) < 20

    opened = make_log(compacted.directory, cleanup_policy="delete", segment_bytes=300, was_clean=False)

    assert offsets(opened) == before


def test_a_follower_of_a_log_with_holes_keeps_them(compacted: Log, tmp_path: Path) -> None:
    """It never compacted anything itself."""
    follower = make_log(tmp_path / "follower-0", cleanup_policy="delete", segment_bytes=300)
    for offset in (0, 7, 9):
        batch = RecordBatch(bytearray(make_batch()))
        batch.patch(offset, 0)
        follower.append_as_follower(batch.view, 0)

    opened = make_log(follower.directory, cleanup_policy="delete", segment_bytes=300, was_clean=False)

    assert offsets(opened) == [0, 7, 9]


def test_a_log_that_leaves_nothing_out_has_no_note(tmp_path: Path) -> None:
    """The note is for those that need it."""
    log = make_log(tmp_path / "orders-0")
    append(log, make_batch())

    assert not may_have_holes(log.directory)
