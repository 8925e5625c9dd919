"""Apache Kafka's tools move replicas between log directories, of a broker of ours as of one of Kafka's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.broker.moving_cluster import fill, values
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.java_tools import RunTool
from tests.kit.kafka_process import new_kafka
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.results import NewTopic, TopicPartitionReplica
from ottla.protocol.errors import ErrorCode
from ottla.sync import Admin

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


KINDS = ["ottla", "kafka-3.9"]


def broker_with_two_disks(kind: str, folder: Path, zookeeper_server: ZooKeeperServer) -> BrokerProcess:
    """Return a broker that is not started, of ours or of Kafka's; its directories are `disk-1` and `disk-2`."""
    options = (f"log.dirs={folder / 'disk-1'},{folder / 'disk-2'}",)
    if kind == "ottla":
        return BrokerProcess(folder / "broker", ZooKeeper(zookeeper_server).connect, *options)
    return new_kafka(kind, folder / "broker", zookeeper_server, *options)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tools_move_a_replica_and_see_it_on_its_way(
    run_tool: RunTool, zookeeper_server: ZooKeeperServer, tmp_path: Path, kind: str
) -> None:
    """Slowly, by a throttle that the tool sets; then without one."""
    paths = [tmp_path / "disk-1", tmp_path / "disk-2"]
    topic = topic_name()
    with broker_with_two_disks(kind, tmp_path, zookeeper_server) as broker:
        fill(broker.bootstrap, topic, 4000, 1000)
        at = ("--bootstrap-server", broker.bootstrap)

        def places() -> dict[str, Any]:
            """What kafka-log-dirs shows of the partition, by the name of the directory."""
            shown = run_tool(LOG_DIRS, *at, "--describe", "--topic-list", topic)
            (of_broker,) = json.loads(shown[shown.index("{") :])["brokers"]
            assert {each["error"] for each in of_broker["logDirs"]} == {None}
            return {Path(each["logDir"]).name: row for each in of_broker["logDirs"] for row in each["partitions"]}

        ((here, row),) = places().items()
        assert (row["partition"], row["isFuture"], row["offsetLag"]) == (f"{topic}-0", False, 0)
        there = next(path for path in paths if path.name != here)

        def named(path: str) -> tuple[str, ...]:
            moved = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [path]}
            plan = tmp_path / "plan.json"
            plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
            return (*at, "--reassignment-json-file", str(plan))

        elsewhere = run_tool(REASSIGN, *named(str(there)), "--verify")
        assert f"is not being moved from log dir {paths[0].parent / here} to {there}" in elsewhere
        slowly = (*named(str(there)), "--execute", "--replica-alter-log-dirs-throttle", "100000")
        assert f"Successfully started moving log directory to {there} for replica {topic}-0" in run_tool(
            REASSIGN, *slowly
        )
        on_its_way = places()
        assert (on_its_way[here]["isFuture"], on_its_way[there.name]["isFuture"]) == (False, True)
        assert 0 < on_its_way[there.name]["offsetLag"] <= 4000
        verified = run_tool(REASSIGN, *named(str(there)), "--verify", "--preserve-throttles")
        assert f"Reassignment of replica {topic}-0-1 is still in progress." in verified

        run_tool(
            REASSIGN, *named(str(there)), "--execute", "--additional", "--replica-alter-log-dirs-throttle", "1000000000"
        )
        until(lambda: [*places()] == [there.name], "the replica is moved")
        verified = run_tool(REASSIGN, *named(str(there)), "--verify")
        assert f"Reassignment of replica {topic}-0-1 completed successfully." in verified
        assert len(values(broker.bootstrap, topic, 4000)) == 4000


@pytest.mark.parametrize("kind", KINDS)
def test_moves_that_are_not_possible_are_refused_alike(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, kind: str
) -> None:
    """With the same codes."""
    topic = topic_name()
    with (
        broker_with_two_disks(kind, tmp_path, zookeeper_server) as broker,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        admin.create_topics([NewTopic(topic)])

        def move(name: str, partition: int, path: str) -> ErrorCode:
            replica = TopicPartitionReplica(name, partition, 1)
            (outcome,) = admin.alter_replica_log_dirs({replica: path}, raise_errors=False)
            return ErrorCode.NONE if outcome.error is None else outcome.error.code

        target = str(tmp_path / "disk-2")
        assert move(topic, 0, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        assert move(topic, 1, target) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert move("unknown", 0, target) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert move("x" * 249, 0, target) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert move(topic, 0, target) is ErrorCode.NONE
        assert move(topic, 0, target) is ErrorCode.NONE
