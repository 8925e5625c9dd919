"""The logs of a broker are found, made and lost one by one; a disk that fails takes only its own."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.broker.storage.many_logs import (
    ORDERS,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    VIEWS,
    Broker,
    append,
    batch,
    break_disk,
    crash,
    os_error,
    raising,
)

from ottla.broker.storage import logs as logs_module
from ottla.broker.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from ottla.broker.storage.directory_files import read_topic_id
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.producers.producers import FROM_COORDINATOR
from ottla.broker.storage.recovery.startup import close_logs
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker with two directories."""
    return Broker(tmp_path)


@pytest.fixture
def logs(broker: Broker) -> Logs:
    """Its logs, none yet."""
    return broker.start()


def storage_error(words: str) -> pytest.RaisesExc[KafkaError]:
    return pytest.raises(KafkaError, match=f"KAFKA_STORAGE_ERROR.*{words}")


def test_a_created_log_is_found_with_its_directory(logs: Logs) -> None:
    """The log can be written and read, and knows its topic."""
    log = logs.create(ORDERS, TOPIC_ID)

    assert append(log) == 1
    assert logs.find(ORDERS) is logs.get(ORDERS) is log
    assert logs.dir_of(ORDERS) is logs.dirs[0]
    assert log.directory == logs.dirs[0].path / "orders-0"
    assert read_topic_id(log.directory) == logs.topic_id(ORDERS) == TOPIC_ID
    assert (len(logs), list(logs), logs.in_dir(logs.dirs[0])) == (1, [log], [log])


def test_a_partition_that_is_not_here_is_said_to_be_unknown(logs: Logs) -> None:
    """Asking for it is an error of the protocol, looking for it is none."""
    assert logs.find(ORDERS) is None
    assert logs.dir_of(ORDERS) is None
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        logs.get(ORDERS)


def test_creating_again_gives_the_same_log(logs: Logs) -> None:
    """The controller repeats itself."""
    assert logs.create(ORDERS, TOPIC_ID) is logs.create(ORDERS, TOPIC_ID)


def test_a_log_of_another_topic_of_that_name_is_not_handed_out(logs: Logs) -> None:
    """A topic that was deleted and made anew while this broker was away has another id."""
    logs.create(ORDERS, TOPIC_ID)

    with pytest.raises(KafkaError, match="INCONSISTENT_TOPIC_ID"):
        logs.create(ORDERS, OTHER_TOPIC_ID)


def test_a_log_that_was_not_told_its_topic_is_told(logs: Logs) -> None:
    """The file may have been lost, or the controller may not have known ids."""
    log = logs.create(ORDERS, None)
    assert logs.topic_id(ORDERS) is None

    logs.create(ORDERS, TOPIC_ID)

    assert read_topic_id(log.directory) == TOPIC_ID


def test_a_topic_id_that_cannot_be_read_is_a_storage_error(logs: Logs) -> None:
    """Nobody knows whose log that is."""
    log = logs.create(ORDERS, TOPIC_ID)
    (log.directory / "partition.metadata").write_text("nonsense")

    with storage_error("no version 0 and topic id"):
        logs.create(ORDERS, TOPIC_ID)


def test_new_partitions_go_where_the_fewest_are(logs: Logs) -> None:
    """Directories fill evenly, those low on space last."""
    first, second = logs.dirs
    for number in range(4):
        logs.create(TopicPartition("even", number), TOPIC_ID)
    assert (len(logs.in_dir(first)), len(logs.in_dir(second))) == (2, 2)

    first.client_refusal = "low on space"
    for number in range(4, 7):
        logs.create(TopicPartition("even", number), TOPIC_ID)
    assert (len(logs.in_dir(first)), len(logs.in_dir(second))) == (2, 5)


def test_threads_that_create_the_same_partition_get_the_same_log(logs: Logs) -> None:
    """One makes it, the others wait."""
    with ThreadPoolExecutor(4) as pool:
        created = set(pool.map(lambda _: logs.create(ORDERS, TOPIC_ID), range(20)))

    assert created == {logs.get(ORDERS)}
    assert len(logs) == 1


def test_options_reach_open_logs(logs: Logs, broker: Broker) -> None:
    """Those of the topic, and no others."""
    orders, views = logs.create(ORDERS, TOPIC_ID), logs.create(VIEWS, TOPIC_ID)
    before = views.config
    broker.configure("orders", {"retention.ms": "5"})

    logs.refresh_configs("orders")

    assert orders.config.retention_ms == 5
    assert views.config is before
    broker.configure("views", {"retention.ms": "6"})
    logs.refresh_configs()
    assert views.config.retention_ms == 6


def test_options_that_change_while_a_log_is_made_reach_it(
    logs: Logs, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that comes before the log can be found is not missed."""
    old = broker.config_of("orders")
    broker.configure("orders", {"retention.ms": "5"})
    answers = [old]
    monkeypatch.setattr(logs, "config_of", lambda topic: answers.pop() if answers else broker.config_of(topic))

    assert logs.create(ORDERS, TOPIC_ID).config.retention_ms == 5


def test_the_cleaner_forgets_a_topic_that_is_compacted_no_more(logs: Logs, broker: Broker) -> None:
    """Compacted again later, it must be cleaned from its start."""
    broker.configure("orders", {"cleanup.policy": "compact"})
    logs.note_cleaned(logs.create(ORDERS, TOPIC_ID), 5, 0)
    assert logs.cleaner_offset(ORDERS) == 5

    broker.configure("orders", {"cleanup.policy": "delete"})
    logs.refresh_configs("orders")

    assert logs.cleaner_offset(ORDERS) is None


def test_checkpoints_hold_the_offsets_of_their_directory(logs: Logs, broker: Broker) -> None:
    """Each of the four files has a row for each log that has something to say."""
    orders, views = logs.create(ORDERS, TOPIC_ID), logs.create(VIEWS, TOPIC_ID)
    append(orders, 3)
    orders.advance_high_watermark(2)
    orders.advance_log_start(1)
    orders.flush()
    logs.note_cleaned(orders, 1, 0)
    first, second = logs.dirs
    for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        logs.checkpoint(name, first)
        logs.checkpoint(name, second)
    logs.checkpoint(CLEANER_OFFSET_CHECKPOINT, first)

    assert views.log_end_offset == 0
    assert read_offsets(first.path / RECOVERY_POINT_CHECKPOINT) == {ORDERS: 3}
    assert read_offsets(first.path / LOG_START_OFFSET_CHECKPOINT) == {ORDERS: 1}
    assert read_offsets(first.path / HIGH_WATERMARK_CHECKPOINT) == {ORDERS: 2}
    assert read_offsets(first.path / CLEANER_OFFSET_CHECKPOINT) == {ORDERS: 1}
    assert read_offsets(second.path / HIGH_WATERMARK_CHECKPOINT) == {VIEWS: 0}


def test_a_disk_that_fails_takes_its_logs_and_no_others(
    logs: Logs, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends there are refused with the reason; the other directory works on and takes what is new."""
    orders, views = logs.create(ORDERS, TOPIC_ID), logs.create(VIEWS, TOPIC_ID)
    append(orders)
    break_disk(monkeypatch, logs.dirs[0].path, errno.EIO)

    with storage_error("Input/output error"):
        append(orders)
    with storage_error("is offline"):
        orders.append_as_follower(batch(base_offset=1, partition_leader_epoch=0).view, 0)
    with storage_error("is offline"):
        logs.get(ORDERS)
    assert append(views) == 1
    assert logs.attention.is_set()

    assert logs.drop_offline() == {logs.dirs[0]: [ORDERS]}
    assert logs.drop_offline() == {}
    assert logs.find(ORDERS) is None
    assert logs.dir_of(ORDERS) is logs.dirs[0]
    with storage_error("is offline"):
        logs.create(ORDERS, TOPIC_ID)
    new = TopicPartition("new", 0)
    logs.create(new, TOPIC_ID)
    assert logs.dir_of(new) is logs.dirs[1]
    close_logs(logs, 1)


def test_a_full_disk_refuses_the_append_and_nothing_more(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes: the next append after that is taken."""
    log = logs.create(ORDERS, TOPIC_ID)
    with monkeypatch.context() as patch:
        break_disk(patch, logs.dirs[0].path, errno.ENOSPC)
        with storage_error("No space left"):
            append(log)

    assert append(log) == 1


def test_low_space_stops_producers_alone(logs: Logs) -> None:
    """Followers, the broker's own records and readers go on."""
    log = logs.create(ORDERS, TOPIC_ID)
    logs.dirs[0].client_refusal = "low on space"

    with storage_error("low on space"):
        append(log)
    log.append_as_leader(batch(), 0, origin=FROM_COORDINATOR)
    log.append_as_follower(batch(base_offset=1, partition_leader_epoch=0).view, 0)
    assert log.read(0, 10_000) is not None


def test_what_may_lie_in_a_lost_directory_is_not_made_a_second_time(logs: Logs) -> None:
    """An old partition waits for its directory, a new one does not."""
    logs.dirs[0].failed(os_error(errno.EIO))

    with storage_error("may lie in a directory that cannot be used"):
        logs.create(ORDERS, TOPIC_ID, is_new=False)
    logs.create(ORDERS, TOPIC_ID, is_new=True)


def test_with_all_directories_lost_nothing_is_made(logs: Logs) -> None:
    """The error names every directory."""
    for log_dir in logs.dirs:
        log_dir.failed(os_error(errno.EIO))

    with storage_error("no log directory is usable.*data-1.*data-2"):
        logs.create(ORDERS, TOPIC_ID)
    assert logs.online_dirs == []


def test_a_disk_that_fails_while_a_log_is_made_is_lost(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition cannot be used, and the next one goes elsewhere."""
    logs.create(ORDERS, TOPIC_ID)
    with monkeypatch.context() as patch:
        patch.setattr(logs_module, "sync_directory", raising(errno.EIO))
        logs.sync_created()

    with storage_error("Input/output"):
        logs.get(ORDERS)
    assert logs.online_dirs == [logs.dirs[1]]


def test_the_names_of_many_logs_are_synced_at_once(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of thousands of partitions does not wait for the disk thousands of times."""
    synced: list[Path] = []
    monkeypatch.setattr(logs_module, "sync_directory", synced.append)
    for number in range(10):
        logs.create(TopicPartition("many", number), TOPIC_ID)
    logs.sync_created()
    logs.sync_created()

    assert sorted(synced) == [log_dir.path for log_dir in logs.dirs]


def test_rows_of_an_earlier_partition_do_not_meet_a_new_one(logs: Logs, broker: Broker) -> None:
    """After a crash the new log would otherwise begin at the old start, above its own end, and be emptied."""
    stale = {ORDERS: 500}
    for log_dir in logs.dirs:
        log_dir.write_checkpoint(LOG_START_OFFSET_CHECKPOINT, lambda: stale)
        log_dir.write_checkpoint(RECOVERY_POINT_CHECKPOINT, lambda: stale)
    append(logs.create(ORDERS, TOPIC_ID), 3)
    crash(logs)

    log = broker.start().get(ORDERS)

    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
