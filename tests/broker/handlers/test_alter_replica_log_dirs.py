"""AlterReplicaLogDirs begins moves and says what keeps one from beginning; DescribeLogDirs shows how far they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

Rows = list[tuple[str, int, ErrorCode]]
VERSIONS = [0, 1, 2]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads `t`, in the first of two directories, and knows of `elsewhere`."""
    dirs = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with running_broker(tmp_path, {}, {"log.dirs": dirs}) as broker:
        broker.lead("t")
        partition = broker.services.partitions.get(TopicPartition("t", 0))
        partition.append(batch(b"a", b"b"), required_acks=1)
        broker.lead("elsewhere", leader=2, isr=(2,), replicas=(2, 1))
        broker.services.partitions.drop(TopicPartition("elsewhere", 0), delete=True)
        yield broker


def alter(broker: Broker, wanted: dict[str, dict[str, list[int]]], version: int = 2) -> Rows:
    """Ask for partitions to be moved, by directory and topic."""
    dirs = [
        AlterReplicaLogDir(
            path=path,
            topics=[AlterReplicaLogDirTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        for path, topics in wanted.items()
    ]
    response = broker.ask(Api.ALTER_REPLICA_LOG_DIRS, version, AlterReplicaLogDirsRequest(dirs=dirs))
    return [
        (topic.topic_name, row.partition_index, ErrorCode.of(row.error_code))
        for topic in response.results
        for row in topic.partitions
    ]


def described(broker: Broker) -> list[tuple[int, str, bool, int]]:
    """What is where: the number of the directory, the topic, whether it is a future log, and its lag."""
    results = broker.ask(Api.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None)).results
    return [
        (number, topic.name, row.is_future_key, row.offset_lag)
        for number, result in enumerate(results)
        for topic in result.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_move_begins_and_is_shown_until_it_is_done(broker: Broker, tmp_path: Path, version: int) -> None:
    """With the lag of the future log."""
    assert described(broker) == [(0, "t", False, 0)]

    assert alter(broker, {str(tmp_path / "two"): {"t": [0]}}, version) == [("t", 0, ErrorCode.NONE)]
    assert described(broker) == [(0, "t", False, 0), (1, "t", True, 2)]
    broker.services.log_dir_moves.advance()
    assert described(broker) == [(1, "t", False, 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_is_answered(broker: Broker, tmp_path: Path, version: int) -> None:
    """With what keeps it from being moved."""
    two = str(tmp_path / "two")
    wanted = {"/nowhere": {"t": [0]}, two: {"t": [0, 7], "elsewhere": [0], "x" * 249: [0]}}

    assert alter(broker, {"/nowhere": {"t": [0]}}, version) == [("t", 0, ErrorCode.LOG_DIR_NOT_FOUND)]
    # Where a partition is named twice, the last one counts.
    assert alter(broker, wanted, version) == [
        ("t", 0, ErrorCode.NONE),
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("elsewhere", 0, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("x" * 249, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_a_lost_directory_takes_nothing(broker: Broker, tmp_path: Path) -> None:
    """Nor is anything moved out of it."""
    logs = broker.services.partitions.logs
    logs.dirs[1].take_offline("pulled out")
    two = {str(tmp_path / "two"): {"t": [0]}}

    assert alter(broker, two) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert described(broker) == [(0, "t", False, 0)]


def test_a_replica_that_is_not_here_yet_is_created_where_it_is_wanted(broker: Broker, tmp_path: Path) -> None:
    """The answer says that it is not here; the tool that asked tries again until it is."""
    one = {str(tmp_path / "one"): {"elsewhere": [0]}}
    assert alter(broker, one) == [("elsewhere", 0, ErrorCode.REPLICA_NOT_AVAILABLE)]
    broker.lead("elsewhere", epoch=1, leader=2, isr=(2,), replicas=(2, 1))

    assert alter(broker, one) == [("elsewhere", 0, ErrorCode.NONE)]
    assert described(broker) == [(0, "t", False, 0), (0, "elsewhere", False, 0)]


def test_the_lag_of_a_copy_whose_log_is_lost_is_not_known(broker: Broker, tmp_path: Path) -> None:
    """The copy is still shown."""
    alter(broker, {str(tmp_path / "two"): {"t": [0]}})
    logs = broker.services.partitions.logs
    logs.dirs[0].take_offline("pulled out")
    logs.drop_offline()

    assert described(broker) == [(1, "t", True, -1)]
