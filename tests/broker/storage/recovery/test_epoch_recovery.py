"""Leader epochs after a crash: the file holds what the log holds, and recovery takes no start for another."""

from __future__ import annotations

from pathlib import Path

from tests.broker.storage.compaction.compacting import LIMITS
from tests.broker.storage.logs import append, make_batch, make_log, offsets

from ottla.broker.storage.compaction.compaction import compact
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.broker.storage.log import Log


def copy(log: Log, leader_epoch: int) -> None:
    """Take a batch from the leader, as the follower of it."""
    log.append_as_follower(make_batch(base_offset=log.log_end_offset, leader_epoch=leader_epoch), leader_epoch)


def stored(log: Log) -> list[tuple[int, int]]:
    """The entries that a kill leaves behind."""
    return LeaderEpochs.load(log.leader_epochs.path).entries


def test_records_that_came_after_an_epoch_without_any_survive_a_kill(tmp_path: Path) -> None:
    """A leader of epoch 5 appends nothing, deletes records, and then follows one that still has more of epoch 3."""
    log = make_log(tmp_path)
    for _ in range(4):
        append(log, make_batch(), 3)
    log.leader_epochs.begin(5, 4)
    log.advance_log_start(2)
    log.truncate_to(4)
    for _ in range(3):
        copy(log, 3)
    reopened = make_log(tmp_path, log_start_offset=2)

    assert offsets(reopened) == [2, 3, 4, 5, 6]
    assert reopened.leader_epochs.entries == [(3, 2)]


def test_an_epoch_that_replaces_one_without_records_leaves_no_trace_of_it(tmp_path: Path) -> None:
    """A failed append has left epoch 4 in the file; epoch 5 begins at the same offset, and is given up as well."""
    log = make_log(tmp_path)
    append(log, make_batch(), 3)
    log.leader_epochs.assign(4, 1)
    log.leader_epochs.begin(5, 1)
    log.truncate_to(1)
    for _ in range(2):
        copy(log, 3)

    assert stored(log) == log.leader_epochs.entries == [(3, 0)]
    assert offsets(make_log(tmp_path)) == [0, 1, 2]


def test_batches_of_another_leader_take_the_place_of_an_epoch_that_only_began(tmp_path: Path) -> None:
    """What was appended before keeps its epoch, and its start."""
    log = make_log(tmp_path)
    append(log, make_batch(), 3)
    log.leader_epochs.begin(5, 1)
    copy(log, 3)
    copy(log, 6)

    assert stored(log) == log.leader_epochs.entries == [(3, 0), (6, 2)]


def test_an_epoch_begins_where_it_did_although_its_first_records_were_compacted(tmp_path: Path) -> None:
    """A follower that has other records there must be told to cut them, also by a leader that was killed."""
    log = make_log(tmp_path, cleanup_policy="compact")
    for epoch in (1, 2, 2, 2):
        append(log, make_batch(), epoch)
    log.roll()
    append(log, make_batch(), 2)
    compact(log, None, LIMITS)
    reopened = make_log(tmp_path, cleanup_policy="compact")

    assert offsets(reopened) == [3, 4]
    assert reopened.leader_epochs.entries == [(1, 0), (2, 1)]
    assert reopened.end_offset_for_epoch(1) == (1, 1)


def test_an_epoch_does_not_begin_before_its_first_record(tmp_path: Path) -> None:
    """A follower that began with a hole knows nothing of the epoch in it."""
    log = make_log(tmp_path, cleanup_policy="compact")
    log.append_as_follower(make_batch(base_offset=3, leader_epoch=5), 5)
    log.advance_high_watermark(4)
    reopened = make_log(tmp_path, cleanup_policy="compact")

    assert reopened.leader_epochs.entries == log.leader_epochs.entries == [(5, 3)]
