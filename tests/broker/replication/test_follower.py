"""A follower copies its leader's log, and cuts what the leader does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replication.replicas import NOW_MS, Replica, batch, fetched

from ottla.broker.replication.follower.steps import (
    Fetched,
    FetchPosition,
    Step,
    follow_position,
    restart_in_range,
    take_fetched,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.record_batch_builder import RecordBatchBuilder


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """Broker 1, which follows 2 in epoch 3."""
    replica = Replica(tmp_path)
    replica.follow(epoch=3)
    return replica


def take(replica: Replica, answer: Fetched, position: FetchPosition | None = None) -> Step:
    """Take an answer to what the follower would ask for now."""
    return take_fetched(replica.partition, replica.logs, position or follow_position(replica.partition), answer)


def copy(replica: Replica, *epochs: int) -> None:
    """Copy a record of each epoch, in turn."""
    for epoch in epochs:
        records = batch(base_offset=replica.log.log_end_offset, partition_leader_epoch=epoch)
        assert take(replica, fetched(records)) is Step.ADVANCED


def test_a_follower_asks_for_what_comes_next(replica: Replica) -> None:
    """It says how its log ends, and in which epoch it follows."""
    assert follow_position(replica.partition) == FetchPosition(0, -1, 3, 0)

    copy(replica, 1, 2)
    assert follow_position(replica.partition) == FetchPosition(2, 2, 3, 0)


def test_batches_are_copied_with_their_offsets_and_epochs(replica: Replica) -> None:
    """Byte for byte."""
    records = batch(b"a", base_offset=0, partition_leader_epoch=1) + batch(
        b"b", base_offset=1, partition_leader_epoch=2
    )

    assert take(replica, fetched(records)) is Step.ADVANCED
    piece = replica.log.read(0, 1000)
    assert piece is not None
    assert piece.read() == records
    assert replica.log.leader_epochs.entries == [(1, 0), (2, 1)]


def test_an_empty_answer_is_nothing_new(replica: Replica) -> None:
    """Ask again."""
    assert take(replica, fetched()) is Step.IDLE


def test_the_high_watermark_follows_as_far_as_the_log_reaches(replica: Replica) -> None:
    """The leader is further; and it never moves back."""
    copy(replica, 1, 1)
    take(replica, fetched(high_watermark=9))
    assert replica.log.high_watermark == 2

    take(replica, fetched(high_watermark=1))
    assert replica.log.high_watermark == 2


def test_the_log_start_follows_within_what_is_committed(replica: Replica) -> None:
    """What the leader has deleted is deleted here."""
    copy(replica, 1, 1)
    take(replica, fetched(high_watermark=1, log_start=1))

    assert replica.log.log_start_offset == 1


@pytest.mark.parametrize("start", [4, 5, 7])
def test_a_log_that_starts_inside_a_batch_is_copied_from_the_start_of_the_batch(replica: Replica, start: int) -> None:
    """DeleteRecords takes any offset, and a leader serves whole batches: a new follower must take the first one."""
    restart_in_range(replica.partition, replica.logs, follow_position(replica.partition), start, 8)
    assert follow_position(replica.partition).offset == start
    builder = RecordBatchBuilder()
    for number in range(5):
        builder.append(NOW_MS, None, b"%d" % number)
    records = bytes(builder.build(base_offset=3, partition_leader_epoch=1))
    answer = fetched(records, high_watermark=8)._replace(log_start_offset=start)

    assert take(replica, answer) is Step.ADVANCED
    log = replica.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (start, 8, 8)
    assert log.leader_epochs.entries[0][0] == 1
    piece = log.read(start, 1000)
    assert piece is not None
    assert piece.read() == records


def test_a_batch_that_lies_behind_the_log_is_refused(replica: Replica) -> None:
    """Only an empty log starts over, and only for a batch that holds its start."""
    copy(replica, 1, 1)
    again = batch(base_offset=1, partition_leader_epoch=1)
    assert take(replica, fetched(again)) is Step.RETRY
    assert replica.log.log_end_offset == 2

    restart_in_range(replica.partition, replica.logs, follow_position(replica.partition), 9, 12)
    assert take(replica, fetched(batch(base_offset=3, partition_leader_epoch=1))) is Step.RETRY
    assert replica.log.log_end_offset == 9


def test_an_answer_of_an_earlier_epoch_is_dropped(replica: Replica) -> None:
    """The leader that gave it may not lead any more."""
    position = follow_position(replica.partition)
    replica.follow(epoch=4)

    records = batch(base_offset=0, partition_leader_epoch=3)
    assert take(replica, fetched(records, high_watermark=1), position) is Step.FENCED
    assert replica.log.log_end_offset == 0


def test_batches_of_a_later_epoch_than_was_asked_in_are_refused(replica: Replica) -> None:
    """The leader has lost its office, and answers with what it copied from the next; nothing of that is taken."""
    records = batch(base_offset=0, partition_leader_epoch=3) + batch(base_offset=1, partition_leader_epoch=4)

    assert take(replica, fetched(records)) is Step.RETRY
    assert replica.log.log_end_offset == 0


def test_an_answer_is_dropped_by_who_leads_now(replica: Replica) -> None:
    """Nobody writes to its log but its own producers."""
    position = follow_position(replica.partition)
    replica.lead(epoch=4)

    assert take(replica, fetched(diverging=(1, 0)), position) is Step.FENCED


def test_an_answer_for_another_offset_is_dropped(replica: Replica) -> None:
    """The log was cut since: ask again."""
    position = follow_position(replica.partition)
    copy(replica, 1)

    records = batch(base_offset=0, partition_leader_epoch=1)
    assert take(replica, fetched(records), position) is Step.TRUNCATED
    assert replica.log.log_end_offset == 1


@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        # We have epoch 1 up to 2 and epoch 2 up to 4.
        ((2, 3), 3),
        ((2, 9), 4),
        ((1, 1), 1),
        ((1, 9), 2),
        # The leader names an epoch that we do not have: cut to the end of the one before, and ask again.
        ((0, 1), 0),
    ],
)
def test_a_log_is_cut_by_leader_epoch(replica: Replica, diverging: tuple[int, int], end: int) -> None:
    """To the smaller end of the epoch that both have; the high watermark does not matter."""
    copy(replica, 1, 1, 2, 2)

    assert take(replica, fetched(diverging=diverging)) is Step.TRUNCATED
    assert replica.log.log_end_offset == end


def test_an_epoch_that_the_follower_does_not_know_is_asked_for_again(replica: Replica) -> None:
    """The leader has epoch 2, we 1 and 3: all of 3 goes, and the next fetch tells the rest."""
    copy(replica, 1, 1, 3)

    assert take(replica, fetched(diverging=(2, 5))) is Step.TRUNCATED
    assert follow_position(replica.partition) == FetchPosition(2, 1, 3, 0)


def test_an_epoch_in_which_nothing_was_appended_is_forgotten(replica: Replica) -> None:
    """This broker led in epoch 4 without a record; the leader of 5 has never heard of that epoch."""
    copy(replica, 1)
    replica.lead(epoch=4)
    replica.follow(epoch=5)
    assert follow_position(replica.partition).last_fetched_epoch == 4

    take(replica, fetched(diverging=(1, 1)))
    assert follow_position(replica.partition) == FetchPosition(1, 1, 5, 0)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Step.OUT_OF_RANGE),
        (ErrorCode.FENCED_LEADER_EPOCH, Step.FENCED),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Step.RETRY),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Step.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_ID, Step.RETRY),
    ],
)
def test_errors_say_what_to_do_next(replica: Replica, error: ErrorCode, step: Step) -> None:
    """Ask for offsets, wait for the controller, or try again."""
    assert take(replica, fetched(error=error)) is step


def test_a_damaged_batch_is_asked_for_again(replica: Replica) -> None:
    """Nothing of it is kept."""
    records = bytearray(batch(base_offset=0, partition_leader_epoch=3))
    records[-1] ^= 1

    assert take(replica, fetched(bytes(records))) is Step.RETRY
    assert replica.log.log_end_offset == 0


def test_a_disk_that_fails_stops_the_follower(replica: Replica) -> None:
    """The directory is offline: the log cannot be written."""
    replica.logs.dirs[0].take_offline("it fails")

    assert take(replica, fetched(batch(base_offset=0, partition_leader_epoch=3))) is Step.FAILED


# Out of range


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "own_start", "own_end"),
    [
        # The leader was elected uncleanly, and lacks what we have.
        (0, 1, 0, 1),
        # It has deleted what we would need next.
        (7, 9, 7, 7),
        # It has our end: go on.
        (1, 9, 0, 3),
    ],
)
def test_a_common_offset_is_found_again(
    replica: Replica, leader_start: int, leader_end: int, own_start: int, own_end: int
) -> None:
    """We have 0 to 3."""
    copy(replica, 1, 1, 1)
    restart_in_range(replica.partition, replica.logs, follow_position(replica.partition), leader_start, leader_end)

    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (own_start, own_end)


def test_offsets_of_an_earlier_leader_change_nothing(replica: Replica) -> None:
    """They were asked for in epoch 3."""
    copy(replica, 1, 1)
    position = follow_position(replica.partition)
    replica.follow(epoch=4)
    restart_in_range(replica.partition, replica.logs, position, 0, 0)

    assert replica.log.log_end_offset == 2
