"""LeaderAndIsr and StopReplica for many partitions, one of which fails in a way that nobody thought of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.broker.handlers.data_path import Broker, running_broker, topic_id

from ottla.broker.replication.partition import Partition
from ottla.broker.storage.logs import Errors, Logs
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState

TOPICS = ("first", "bad", "last")
FINE = {"first": ErrorCode.NONE, "last": ErrorCode.NONE}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker without partitions."""
    with running_broker(tmp_path, {}) as broker:
        yield broker


def lead_all(broker: Broker) -> dict[str, ErrorCode]:
    """Have the broker lead a partition of each topic; return its answers."""
    state = LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=0, isr=[1], partition_epoch=0, replicas=[1]
    )
    body = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[
            LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id(topic), partition_states=[state])
            for topic in TOPICS
        ],
        live_leaders=[],
    )
    response = broker.ask(Api.LEADER_AND_ISR, 7, body)
    assert response.error_code == 0
    names = {topic_id(topic): topic for topic in TOPICS}
    return {names[each.topic_id]: ErrorCode.of(each.partition_errors[0].error_code) for each in response.topics}


def stop_all(broker: Broker) -> dict[str, ErrorCode]:
    """Have the broker delete its partitions; return its answers."""
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True)
    body = StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[state]) for topic in TOPICS],
    )
    answers = broker.ask(Api.STOP_REPLICA, 4, body).partition_errors
    return {each.topic_name: ErrorCode.of(each.error_code) for each in answers}


def led(broker: Broker) -> set[str]:
    """The topics that the broker leads."""
    return {partition.partition.topic for partition in broker.services.partitions if partition.is_leader}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OSError("a disk"), ErrorCode.KAFKA_STORAGE_ERROR),
        (KafkaError(ErrorCode.CORRUPT_MESSAGE), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_role_that_cannot_be_taken_costs_no_other_its_own(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    """The partition is answered with a code, and taken when the controller offers it again."""
    take_role = Partition.take_role

    def fail(partition: Partition, *arguments: object) -> bool:
        if partition.partition.topic == "bad":
            raise error
        return take_role(partition, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "take_role", fail)
    assert lead_all(broker) == FINE | {"bad": code}
    assert led(broker) == {"first", "last"}
    monkeypatch.undo()
    assert lead_all(broker) == FINE | {"bad": ErrorCode.NONE}
    assert led(broker) == set(TOPICS)


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no ConfigNode"), RuntimeError("a bug")])
def test_a_topic_whose_options_cannot_be_read_costs_no_other_its_role(broker: Broker, error: Exception) -> None:
    """No log is made for it, which would have other options than the topic."""

    def read_options(topic: str) -> None:
        if topic == "bad":
            raise error

    broker.services.partitions._read_options = read_options
    assert lead_all(broker) == FINE | {"bad": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert led(broker) == {"first", "last"}
    assert broker.services.partitions.logs.find(TopicPartition("bad", 0)) is None


def test_a_replica_that_cannot_be_stopped_costs_no_other_its_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller tries again when the broker comes back."""
    lead_all(broker)
    delete = Logs.delete

    def fail(logs: Logs, partitions: list[TopicPartition], **options: Any) -> Errors:
        if partitions[0].topic == "bad":
            raise RuntimeError("a bug")
        return delete(logs, partitions, **options)

    monkeypatch.setattr(Logs, "delete", fail)
    assert stop_all(broker) == FINE | {"bad": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert {log.partition.topic for log in broker.services.partitions.logs} == {"bad"}


def test_a_request_that_fails_everywhere_has_one_line_in_the_log(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first error; there may be thousands."""

    def fail(_partition: Partition, _role: object) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Partition, "take_role", fail)
    with capture_logs() as lines:
        lead_all(broker)
    assert [(line["event"], line["partition"]) for line in lines if line["log_level"] == "error"] == [
        ("role_not_taken", "first-0")
    ]


@pytest.mark.parametrize("name", ["../elsewhere", "/etc/passwd", "..", "a/b", ""])
def test_a_name_that_is_no_topic_gets_no_role(tmp_path: Path, name: str) -> None:
    """From the controller as from anybody: nothing is created, inside the log directory or outside."""
    directory = tmp_path / "logs"
    directory.mkdir()
    with running_broker(directory, {}) as broker:
        before = {path for path in tmp_path.rglob("*") if path.is_dir()}
        with pytest.raises(AssertionError):
            broker.lead(name)
        assert {path for path in tmp_path.rglob("*") if path.is_dir()} == before
        broker.lead("t")
