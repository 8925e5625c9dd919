"""A real broker moves a replica between its log directories while a producer goes on, and is killed on the way."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.broker.moving_cluster import Load, fill, values
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until

from ottla.client.admin.results import ConfigResource, LogDirReplica, TopicPartitionReplica
from ottla.protocol.config_resources import ConfigResourceType
from ottla.sync import Admin


def two_directories(make_broker: MakeBroker, tmp_path: Path, *options: str) -> tuple[BrokerProcess, list[Path]]:
    """Start a broker with two log directories."""
    paths = [tmp_path / "disk-1", tmp_path / "disk-2"]
    return make_broker(f"log.dirs={paths[0]},{paths[1]}", *options), paths


def replicas(admin: Admin, topic: str) -> dict[str, LogDirReplica]:
    """Where the topic's replica is, by the name of the directory."""
    return {
        Path(each.path).name: replica
        for each in admin.describe_log_dirs()
        for replica in each.replicas
        if replica.topic == topic
    }


def move(admin: Admin, topic: str, path: Path) -> None:
    """Begin to move the topic's replica."""
    admin.alter_replica_log_dirs({TopicPartitionReplica(topic, 0, 1): str(path)})


def other_directory(admin: Admin, topic: str, paths: list[Path]) -> Path:
    """The directory that the topic's replica is not in."""
    (here,) = replicas(admin, topic)
    return next(path for path in paths if path.name != here)


def is_only_in(admin: Admin, topic: str, path: Path) -> bool:
    """Whether the topic's replica was moved to a directory."""
    return [*replicas(admin, topic)] == [path.name]


def await_more(load: Load) -> None:
    """Wait until more is acknowledged."""
    seen = len(load.acknowledged)
    until(lambda: len(load.acknowledged) > seen + 20, "the load goes on")


def test_a_replica_moves_back_and_forth_under_load(make_broker: MakeBroker, tmp_path: Path, topic: str) -> None:
    """Nothing fails, nothing is lost, and nothing is there twice."""
    broker, paths = two_directories(make_broker, tmp_path, "log.segment.bytes=1048576")
    fill(broker.bootstrap, topic, 3000, 1000)
    load = Load(broker.bootstrap, topic)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for _ in range(4):
            there = other_directory(admin, topic, paths)
            move(admin, topic, there)
            until(partial(is_only_in, admin, topic, there), "the replica is moved")
            await_more(load)
    load.stop()

    assert not load.failures
    found = values(broker.bootstrap, topic, 3000 + len(load.acknowledged))
    loaded = [value for value in found if not value.endswith(b".")]
    assert loaded == [str(number).encode() for number in load.acknowledged]
    assert sum(value.endswith(b".") for value in found) == 3000


def test_a_move_goes_on_after_a_kill(make_broker: MakeBroker, tmp_path: Path, topic: str) -> None:
    """It is slow by its throttle, is killed on the way, and comes to its end when the throttle is lifted."""
    throttle = "replica.alter.log.dirs.io.max.bytes.per.second"
    broker, paths = two_directories(make_broker, tmp_path, f"{throttle}=100000")
    fill(broker.bootstrap, topic, 6000, 1000)
    with Admin(bootstrap_servers=broker.bootstrap, default_api_timeout_ms=30_000) as admin:
        there = other_directory(admin, topic, paths)
        move(admin, topic, there)
        until(lambda: replicas(admin, topic)[there.name].size_bytes > 0, "some of it is copied")
        broker.kill()
        broker.start()
        moving = until(lambda: replicas(admin, topic), "the broker is back")
        assert moving[there.name].is_future
        assert 0 < moving[there.name].offset_lag <= 6000
        assert len(moving) == 2

        admin.alter_configs({ConfigResource(ConfigResourceType.BROKER, "1"): {throttle: "1000000000"}})
        until(partial(is_only_in, admin, topic, there), "the replica is moved")
    assert len(values(broker.bootstrap, topic, 6000)) == 6000
