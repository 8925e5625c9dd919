"""A future log follows its log, wherever that begins, ends or is cut, and takes everything over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replication.moving_broker import MovingBroker, record, values
from tests.broker.storage.many_logs import ORDERS

from ottla.broker.replication.follower.steps import Fetched, Step, follow_position, take_fetched
from ottla.broker.replication.partition import EpochEndOffset
from ottla.broker.storage import log_moves
from ottla.broker.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from ottla.broker.storage.directory_files import note_holes
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import RecordBatch


@pytest.fixture
def broker(tmp_path: Path) -> MovingBroker:
    """A broker that leads `orders`, in the first of two directories."""
    broker = MovingBroker(tmp_path)
    broker.start()
    return broker


def test_a_log_without_records_is_moved(broker: MovingBroker) -> None:
    """Nothing has to be copied."""
    broker.move(1)
    broker.finish()

    assert broker.logs.dir_of(ORDERS) is broker.logs.dirs[1]
    assert values(broker.orders.log) == []
    assert values(broker.orders.log) + broker.append(2) == values(broker.orders.log)


def test_a_log_whose_records_are_all_deleted_keeps_its_offsets(broker: MovingBroker) -> None:
    """It goes on where it was."""
    broker.append(12)
    broker.orders.log.advance_log_start(12)
    broker.move(1)
    broker.finish()

    log = broker.orders.log
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    broker.restart()
    assert (broker.orders.log.log_start_offset, broker.orders.log.log_end_offset) == (12, 12)


def test_a_log_that_begins_within_a_batch_is_moved(broker: MovingBroker) -> None:
    """The batch is copied whole, and the start stays where it is, after a crash too."""
    broker.orders.append(record("a", "b", "c"), required_acks=1)
    broker.append(1)
    broker.orders.log.advance_log_start(2)
    broker.move(1)
    broker.finish()

    assert (broker.orders.log.log_start_offset, broker.orders.log.log_end_offset) == (2, 4)
    assert values(broker.orders.log)[:3] == ["a", "b", "c"]
    broker.restart()
    assert broker.orders.log.log_start_offset == 2


def test_a_log_whose_last_records_were_compacted_keeps_its_end(broker: MovingBroker) -> None:
    """No batch leads up to there, and the high watermark is behind the last one."""
    appended = broker.append(3)
    current = broker.orders.log
    note_holes(current.directory)
    with current.lock:
        current.roll_locked(8)
    current.advance_high_watermark(8)
    broker.move(1)
    broker.finish()

    moved = broker.orders.log
    assert moved is not current
    assert (moved.high_watermark, moved.log_end_offset) == (8, 8)
    assert values(moved) == appended
    appended += broker.append(1)
    broker.restart()
    assert values(broker.orders.log) == appended
    assert broker.orders.log.log_end_offset == 9


def test_the_future_log_begins_where_the_log_begins(broker: MovingBroker) -> None:
    """What is deleted during the move is not moved, whether it was copied or not."""
    broker.append(20)
    broker.move(1)
    broker.copy(2)
    future = broker.logs.future(ORDERS)
    assert future is not None
    copied = future.log.log_end_offset
    assert 0 < copied < 15
    broker.orders.log.advance_log_start(1)
    broker.copy(1)
    assert future.log.log_start_offset == 1
    broker.orders.log.advance_log_start(15)
    broker.copy(1)
    assert future.log.log_start_offset == 15

    broker.finish()
    assert (broker.orders.log.log_start_offset, broker.orders.log.log_end_offset) == (15, 20)


def follower_takes(broker: MovingBroker, records: bytes = b"", diverging: tuple[int, int] | None = None) -> Step:
    end = None if diverging is None else EpochEndOffset(*diverging)
    orders = broker.orders
    answer = Fetched(ErrorCode.NONE, orders.log.high_watermark, 0, end, records)
    return take_fetched(orders, broker.logs, follow_position(orders), answer)


def test_the_future_log_is_cut_where_the_log_is_cut(broker: MovingBroker) -> None:
    """Another broker leads, and does not have the last records; others come in their place."""
    appended = broker.append(20)
    broker.move(1)
    broker.copy(3)
    future = broker.logs.future(ORDERS)
    assert future is not None
    assert future.log.log_end_offset > 4

    broker.follow()
    assert follower_takes(broker, diverging=(1, 4)) is Step.TRUNCATED
    other = b"".join(record(f"other-{offset}", base_offset=offset, partition_leader_epoch=2) for offset in range(4, 12))
    assert follower_takes(broker, other) is Step.ADVANCED
    broker.finish()

    assert values(broker.orders.log) == appended[:4] + [f"other-{offset}" for offset in range(4, 12)]
    assert broker.orders.log.leader_epochs.entries == [(1, 0), (2, 4)]


def test_the_future_log_is_cut_by_epochs_that_the_log_no_longer_has(broker: MovingBroker) -> None:
    """This broker led twice; the next leader knows only the first part of the earlier time."""
    appended = broker.append(5)
    broker.lead()
    appended += broker.append(15)
    broker.move(1)
    broker.copy(4)
    future = broker.logs.future(ORDERS)
    assert future is not None
    assert future.log.leader_epochs.entries == [(1, 0), (2, 5)]

    broker.follow()
    assert follower_takes(broker, diverging=(1, 3)) is Step.TRUNCATED
    assert follower_takes(broker, record("other", base_offset=3, partition_leader_epoch=3)) is Step.ADVANCED
    broker.finish()

    assert values(broker.orders.log) == [*appended[:3], "other"]
    assert broker.orders.log.leader_epochs.entries == [(1, 0), (3, 3)]


def test_a_log_that_was_emptied_leaves_nothing_in_the_copy(broker: MovingBroker) -> None:
    """No epoch is known that could tell what both have."""
    broker.append(20)
    broker.move(1)
    broker.copy(2)
    broker.follow()
    broker.logs.truncate_fully_and_start_at({ORDERS: 3})
    broker.finish()

    assert (broker.orders.log.log_start_offset, broker.orders.log.log_end_offset) == (3, 3)
    assert values(broker.orders.log) == []


def test_a_cut_during_a_round_is_looked_at_in_the_next(broker: MovingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset that was to be read next is gone by then."""
    appended = broker.append(20)
    broker.move(1)
    broker.copy(2)
    broker.follow()
    future = broker.logs.future(ORDERS)
    assert future is not None
    advance = future.log.advance_high_watermark

    def interrupted(offset: int) -> None:
        monkeypatch.undo()
        advance(offset)
        assert follower_takes(broker, diverging=(1, 2)) is Step.TRUNCATED

    monkeypatch.setattr(future.log, "advance_high_watermark", interrupted)
    broker.finish()
    assert values(broker.orders.log) == appended[:2]


def test_a_cut_between_the_last_copy_and_the_exchange_is_seen(
    broker: MovingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same length again by then, with other records."""
    appended = broker.append(4)
    broker.follow()
    broker.move(1)
    prepare = log_moves.prepare

    def interrupted(*args: object) -> None:
        prepare(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(log_moves, "prepare", prepare)
        assert follower_takes(broker, diverging=(1, 3)) is Step.TRUNCATED
        assert follower_takes(broker, record("other", base_offset=3, partition_leader_epoch=2)) is Step.ADVANCED

    monkeypatch.setattr(log_moves, "prepare", interrupted)
    broker.finish()

    assert values(broker.orders.log) == [*appended[:3], "other"]


def test_a_log_that_starts_anew_is_copied_anew(broker: MovingBroker) -> None:
    """The leader had deleted what was missing in between."""
    broker.append(10)
    broker.move(1)
    broker.copy(2)
    broker.follow()
    broker.logs.truncate_fully_and_start_at({ORDERS: 50})
    assert follower_takes(broker, record("new", base_offset=50, partition_leader_epoch=2)) is Step.ADVANCED
    broker.finish()

    assert values(broker.orders.log) == ["new"]
    assert broker.orders.log.log_start_offset == 50


def test_roles_may_change_during_a_move(broker: MovingBroker) -> None:
    """An epoch in which nothing was appended yet is known afterwards, in memory only."""
    broker.append(10)
    broker.move(1)
    broker.copy(1)
    broker.follow()
    broker.copy(1)
    broker.lead()
    broker.finish()

    log = broker.orders.log
    assert log.leader_epochs.entries == [(1, 0), (3, 10)]
    assert "3 10" not in (log.directory / "leader-epoch-checkpoint").read_text()


def test_the_checkpoints_move_along(broker: MovingBroker) -> None:
    """Before the log has its name, so that no crash finds it without."""
    broker.append(10)
    broker.orders.log.advance_log_start(3)
    broker.orders.log.flush()
    for log_dir in broker.logs.dirs:
        broker.logs.checkpoint(RECOVERY_POINT_CHECKPOINT, log_dir)
    broker.logs.note_cleaned(broker.orders.log, 5, 0)
    broker.move(1)
    broker.finish()

    rows = {
        name: read_offsets(broker.paths[1] / name).get(ORDERS)
        for name in (LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
    }
    assert list(rows.values()) == [3, 10, 5]
    assert broker.logs.cleaner_offset(ORDERS) == 5
    assert read_offsets(broker.paths[0] / CLEANER_OFFSET_CHECKPOINT) == {}


def test_producers_go_along(broker: MovingBroker) -> None:
    """A batch that is sent again is known as a duplicate, as are those of producers whose records were deleted."""
    for sequence in range(6):
        broker.orders.append(
            record(f"p-{sequence}", producer_id=9, producer_epoch=0, base_sequence=sequence), required_acks=1
        )
    broker.append(2)
    broker.orders.log.advance_log_start(7)
    broker.move(1)
    broker.finish()

    again = record("p-2", producer_id=9, producer_epoch=0, base_sequence=2)
    assert broker.orders.append(again, required_acks=1).appended.is_duplicate
    broker.stop()
    broker.start()
    last = record("p-5", producer_id=9, producer_epoch=0, base_sequence=5)
    assert broker.orders.append(last, required_acks=1).appended.is_duplicate


def test_aborted_transactions_go_along(broker: MovingBroker) -> None:
    """Readers of what is committed skip them, and an open one still holds them up."""
    header = {"producer_id": 9, "producer_epoch": 0}
    broker.orders.append_batch(RecordBatch(record("aborted", base_sequence=0, transactional=True, **header)))
    marker = build_marker_batch(EndTransactionMarker(ControlType.ABORT, 0), timestamp=1, **header)
    broker.orders.append_batch(RecordBatch(marker))
    broker.orders.append_batch(RecordBatch(record("open", base_sequence=1, transactional=True, **header)))
    broker.append(3)
    broker.move(1)
    broker.finish()

    log = broker.orders.log
    assert log.last_stable_offset == 2
    assert log.aborted_transactions(0, 2) == [(9, 0)]
    broker.restart()
    assert broker.orders.log.last_stable_offset == 2
    assert broker.orders.log.aborted_transactions(0, 2) == [(9, 0)]
