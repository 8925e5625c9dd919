"""A replica is moved to another log directory: everything goes along, while it is led, followed, cut or deleted."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.broker.replication.moving_broker import MovingBroker, values
from tests.broker.storage.many_logs import ORDERS, TOPIC_ID, VIEWS, FakeSpace, os_error
from tests.kit.waiting import until

from ottla.broker.replication.log_dir_moves import RETRY_SECONDS
from ottla.broker.storage import log_moves
from ottla.broker.storage import logs as logs_module
from ottla.broker.storage.directory_files import MOVE_FILE, DirectoryKind, read_topic_id
from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

CURRENT, FUTURE, DELETE = DirectoryKind.CURRENT, DirectoryKind.FUTURE, DirectoryKind.DELETE


@pytest.fixture
def broker(tmp_path: Path) -> MovingBroker:
    """A broker that leads `orders`, in the first of two directories."""
    broker = MovingBroker(tmp_path)
    broker.start()
    return broker


def test_a_replica_is_moved_with_all_its_records(broker: MovingBroker) -> None:
    """Its log is another object, in the other directory; the old files are on their way out."""
    appended = broker.append(30)
    old = broker.orders.log

    broker.move(1)
    assert broker.names(1) == {FUTURE: 1}
    broker.finish()

    moved = broker.orders.log
    assert moved is not old
    assert moved is broker.logs.get(ORDERS)
    assert moved.directory == broker.paths[1] / "orders-0"
    assert values(moved) == appended
    assert moved.high_watermark == moved.recovery_point == 30
    assert moved.leader_epochs.entries == old.leader_epochs.entries
    assert read_topic_id(moved.directory) == TOPIC_ID
    assert (broker.names(0), broker.names(1)) == ({DELETE: 1}, {CURRENT: 1})
    assert not (moved.directory / MOVE_FILE).exists()


def test_a_moved_replica_takes_appends_and_is_found_after_any_stop(broker: MovingBroker) -> None:
    """Clean or not."""
    appended = broker.append(5)
    broker.move(1)
    broker.finish()
    appended += broker.append(5)
    broker.restart()
    appended += broker.append(5)
    broker.stop()
    broker.start()

    assert values(broker.orders.log) == appended
    assert broker.logs.dir_of(ORDERS) is broker.logs.dirs[1]


def test_the_old_files_are_removed_after_the_delay(broker: MovingBroker) -> None:
    """Who reads them still has them until then, also through the old object."""
    appended = broker.append(10)
    old = broker.orders.log
    slice_ = old.read(0, 100_000)
    broker.move(1)
    broker.finish()
    assert values(old) == appended

    broker.disks.clock.sleep(old.config.file_delete_delay_ms)
    assert broker.logs.remove_doomed_directories() == 1
    assert broker.names(0) == {}
    assert slice_ is not None
    assert slice_.read()


def test_records_that_come_during_the_move_are_moved_too(broker: MovingBroker) -> None:
    """Also the last ones, which are copied while appends wait."""
    appended = broker.append(20)
    broker.move(1)
    while broker.logs.future(ORDERS) is not None:
        appended += broker.append(1)
        broker.moves.advance()
        assert len(appended) < 500

    appended += broker.append(3)
    assert values(broker.orders.log) == appended


def test_who_waits_for_a_flush_of_the_old_log_is_told_that_it_is_on_disk(broker: MovingBroker) -> None:
    """The records are in the other directory, whatever becomes of the old one."""
    group_commit = GroupCommit(broker.logs.dirs, linger=lambda: None)
    told: list[object] = []
    broker.append(5)
    old = broker.orders.log
    group_commit.when_flushed(old, 5, told.append)
    broker.move(1)
    broker.finish()
    broker.logs.dirs[0].take_offline("pulled out")
    group_commit.workers[broker.logs.dirs[0]].run_once()
    group_commit.when_flushed(old, 5, told.append)
    assert told == [None, None]


def test_a_flush_that_a_move_overtakes_does_not_fail(broker: MovingBroker) -> None:
    """The directory that it is about to sync has another name by then."""

    def overtaken(log: Log) -> int:
        broker.finish()
        raise FileNotFoundError(log.directory)

    group_commit = GroupCommit(broker.logs.dirs, linger=lambda: None, flush=overtaken)
    told: list[object] = []
    broker.append(5)
    group_commit.when_flushed(broker.orders.log, 5, told.append)
    broker.move(1)
    group_commit.workers[broker.logs.dirs[0]].run_once()
    assert told == [None]
    assert broker.logs.dirs[0].is_online


def test_a_move_goes_on_after_a_stop(broker: MovingBroker) -> None:
    """What was copied before a clean stop is not copied again; after a crash it is checked."""
    appended = broker.append(20)
    broker.move(1)
    broker.copy(3)
    future = broker.logs.future(ORDERS)
    assert future is not None
    copied = future.log.log_end_offset
    broker.stop()
    broker.start()
    again = broker.logs.future(ORDERS)
    assert again is not None
    assert again.log.log_end_offset == copied
    broker.copy(1)
    broker.restart()
    broker.finish()

    assert values(broker.orders.log) == appended
    assert broker.names(1) == {CURRENT: 1}


def test_without_a_role_a_move_rests(broker: MovingBroker) -> None:
    """The controller has not spoken yet."""
    broker.append(5)
    broker.move(1)
    broker.stop()
    broker.start(with_role=False)
    broker.copy(5)
    assert broker.logs.future(ORDERS) is not None

    broker.lead()
    broker.finish()
    assert broker.logs.dir_of(ORDERS) is broker.logs.dirs[1]


def test_the_same_directory_changes_nothing(broker: MovingBroker) -> None:
    """Where it is, or where it is being moved to."""
    broker.append(5)
    broker.move(0)
    assert broker.logs.futures() == []
    broker.move(1)
    future = broker.logs.future(ORDERS)
    broker.move(1)
    assert broker.logs.future(ORDERS) is future


def test_the_directory_where_it_is_ends_a_move(broker: MovingBroker) -> None:
    """The copy is removed, and the log stays."""
    appended = broker.append(5)
    broker.move(1)
    broker.copy(1)
    broker.move(0)

    assert (broker.names(0), broker.names(1)) == ({CURRENT: 1}, {DELETE: 1})
    assert broker.logs.remove_doomed_directories() == 1
    broker.finish()
    assert values(broker.orders.log) == appended


def test_another_directory_replaces_a_move(tmp_path: Path) -> None:
    """It begins again there."""
    broker = MovingBroker(tmp_path, directories=3)
    broker.start()
    appended = broker.append(10)
    broker.move(1)
    broker.copy(1)
    broker.move(2)
    assert [broker.names(number) for number in range(3)] == [{CURRENT: 1}, {DELETE: 1}, {FUTURE: 1}]
    broker.finish()
    assert broker.logs.dir_of(ORDERS) is broker.logs.dirs[2]
    broker.move(1)
    broker.finish()
    broker.move(0)
    broker.finish()
    assert broker.logs.dir_of(ORDERS) is broker.logs.dirs[0]
    assert values(broker.orders.log) == appended


def refused(broker: MovingBroker, directory: str, partition: TopicPartition = ORDERS) -> ErrorCode:
    with pytest.raises(KafkaError) as info:
        broker.moves.move(partition, directory)
    return info.value.code


def test_a_move_that_is_not_possible_is_refused(broker: MovingBroker) -> None:
    """With the code that tells why."""
    target = str(broker.paths[1])
    assert refused(broker, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert refused(broker, target, VIEWS) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused(broker, target, TopicPartition("a" * 249, 0)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    broker.logs.dirs[1].take_offline("pulled out")
    assert refused(broker, target) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.logs.futures() == []


def test_nothing_is_moved_while_any_directory_is_offline(tmp_path: Path) -> None:
    """A future log of the partition may lie there."""
    broker = MovingBroker(tmp_path, directories=3)
    broker.start()
    broker.logs.dirs[2].take_offline("pulled out")

    assert refused(broker, str(broker.paths[1])) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_replica_that_comes_later_is_created_where_it_is_wanted(broker: MovingBroker) -> None:
    """Once; the second directory would have been the emptiest, too, so the first is asked for."""
    assert refused(broker, str(broker.paths[0]), VIEWS) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.lead(VIEWS)

    assert broker.logs.dir_of(VIEWS) is broker.logs.dirs[0]
    broker.partitions.drop(VIEWS, delete=True)
    broker.lead(VIEWS)
    assert broker.logs.dir_of(VIEWS) is broker.logs.dirs[1]


def test_the_oldest_wish_is_forgotten_when_there_are_too_many(
    broker: MovingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may ask for moves cannot fill the memory with them."""
    monkeypatch.setattr(logs_module, "PREFERRED_MAX", 1)
    refused(broker, str(broker.paths[0]), VIEWS)
    refused(broker, str(broker.paths[0]), TopicPartition("other", 0))
    broker.lead(VIEWS)

    assert broker.logs.dir_of(VIEWS) is broker.logs.dirs[1]


def test_a_partition_that_is_deleted_takes_its_future_log_with_it(broker: MovingBroker) -> None:
    """And another of the same name begins empty."""
    broker.append(10)
    broker.move(1)
    broker.copy(2)
    broker.partitions.drop(ORDERS, delete=True)

    assert broker.logs.futures() == []
    assert (broker.names(0), broker.names(1)) == ({DELETE: 1}, {DELETE: 1})
    broker.copy(3)
    broker.lead()
    assert values(broker.orders.log) == []


def test_a_replica_that_is_stopped_and_given_back_is_moved_on(broker: MovingBroker) -> None:
    """With another object for the partition."""
    appended = broker.append(10)
    broker.move(1)
    broker.copy(1)
    broker.partitions.drop(ORDERS, delete=False)
    broker.copy(2)
    assert broker.logs.future(ORDERS) is not None
    broker.lead()
    appended += broker.append(1)
    broker.finish()

    assert values(broker.orders.log) == appended
    assert broker.orders.log is broker.logs.get(ORDERS)


def test_a_replica_that_is_stopped_during_the_exchange_is_not_exchanged(
    broker: MovingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next object of the partition could have the log that was replaced."""
    broker.append(3)
    broker.move(1)
    prepare = log_moves.prepare

    def interrupted(*args: object) -> None:
        prepare(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(log_moves, "prepare", prepare)
        broker.partitions.drop(ORDERS, delete=False)
        broker.lead()

    monkeypatch.setattr(log_moves, "prepare", interrupted)
    broker.copy(2)
    assert broker.orders.log is broker.logs.get(ORDERS)
    assert broker.logs.future(ORDERS) is not None
    broker.finish()
    assert broker.orders.log is broker.logs.get(ORDERS)


def test_a_target_that_fails_leaves_the_replica_where_it_is(broker: MovingBroker) -> None:
    """Appends go on."""
    appended = broker.append(10)
    broker.move(1)
    broker.copy(1)
    broker.logs.dirs[1].failed(os_error(errno.EIO))
    broker.copy(1)
    assert broker.logs.drop_offline() == {broker.logs.dirs[1]: []}
    broker.copy(1)

    assert broker.logs.futures() == []
    appended += broker.append(1)
    assert values(broker.orders.log) == appended


def test_a_source_that_fails_takes_the_replica_with_it(broker: MovingBroker) -> None:
    """The copy lacks records. When the disk is back, the move goes on."""
    appended = broker.append(10)
    broker.move(1)
    broker.copy(1)
    broker.logs.dirs[0].failed(os_error(errno.EIO))
    broker.copy(1)
    assert broker.logs.drop_offline() == {broker.logs.dirs[0]: [ORDERS]}
    broker.clock.sleep(RETRY_SECONDS)
    broker.copy(1)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        broker.append(1)

    broker.restart()
    broker.finish()
    assert values(broker.orders.log) == appended


def test_a_replica_that_is_created_again_is_put_where_it_was_wanted(broker: MovingBroker) -> None:
    """The source was replaced by an empty disk; the old copy is of no use."""
    broker.append(10)
    broker.move(1)
    broker.copy(1)
    broker.stop()
    (broker.paths[0] / "orders-0").rename(broker.paths[0].parent / "taken-out")
    broker.start()

    assert broker.logs.dir_of(ORDERS) is broker.logs.dirs[1]
    assert values(broker.orders.log) == []
    assert broker.logs.futures() == []


def test_a_target_with_little_space_is_waited_for(tmp_path: Path) -> None:
    """As clients are."""
    broker = MovingBroker(tmp_path)
    space = broker.disks.statvfs = FakeSpace(1_000_000)
    broker.disks.settings["ottla.log.min.free.bytes"] = "1000"
    broker.start()
    broker.append(5)
    broker.move(1)
    space.free_bytes = 10
    broker.logs.dirs[1].sample_space()
    broker.copy(5)
    assert broker.logs.future(ORDERS) is not None

    space.free_bytes = 1_000_000
    broker.logs.dirs[1].sample_space()
    broker.clock.sleep(1)
    broker.finish()
    assert broker.logs.dir_of(ORDERS) is broker.logs.dirs[1]


def test_what_fails_is_tried_again_after_a_while(broker: MovingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """And said once."""
    appended = broker.append(5)
    broker.move(1)
    future = broker.logs.future(ORDERS)
    assert future is not None

    def failing(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    monkeypatch.setattr(future.log, "append_as_follower", failing)
    broker.copy(3)
    assert broker.moves.advance() == 1.0
    monkeypatch.undo()
    broker.copy(3)
    assert broker.logs.future(ORDERS) is future
    broker.clock.sleep(RETRY_SECONDS)
    broker.finish()
    assert values(broker.orders.log) == appended


def test_the_throttle_holds_moves_back(tmp_path: Path) -> None:
    """So many bytes a second; nothing is copied meanwhile."""
    broker = MovingBroker(tmp_path)
    broker.disks.settings["replica.alter.log.dirs.io.max.bytes.per.second"] = "100"
    broker.start()
    broker.append(40)
    size = broker.orders.log.size
    broker.move(1)
    seconds = 0
    while broker.logs.future(ORDERS) is not None:
        if broker.moves.advance() > 0:
            broker.clock.sleep(1)
            seconds += 1

    assert seconds >= size / 100 - 11
    assert seconds >= 10


def test_moves_take_turns(broker: MovingBroker) -> None:
    """A large one does not keep a small one waiting."""
    broker.append(50)
    broker.logs.prefer(VIEWS, broker.logs.dirs[0])
    broker.lead(VIEWS)
    broker.move(1)
    broker.move(1, VIEWS)
    broker.copy(4)

    assert broker.logs.dir_of(VIEWS) is broker.logs.dirs[1]
    assert broker.logs.future(ORDERS) is not None
    broker.finish()


def test_the_threads_do_it_by_themselves(broker: MovingBroker) -> None:
    """From the request on."""
    appended = broker.append(50)
    broker.moves.start()
    try:
        broker.move(1)
        until(lambda: broker.logs.dir_of(ORDERS) is broker.logs.dirs[1], "the replica is moved")
    finally:
        broker.moves.stop()
    assert values(broker.orders.log) == appended


def test_one_directory_needs_no_threads(tmp_path: Path) -> None:
    """There is nowhere to move to."""
    broker = MovingBroker(tmp_path, directories=1)
    broker.start()
    broker.moves.start()
    broker.moves.stop()
    broker.move(0)
    assert broker.logs.futures() == []
