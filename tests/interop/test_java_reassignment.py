"""Apache Kafka's tool for reassignments, against three brokers of ours."""

from __future__ import annotations

import json
from pathlib import Path

from tests.broker.moving_cluster import fill, folders, moving_cluster, values
from tests.kit.broker_process import MakeBroker, topic_name
from tests.kit.java_tools import RunTool
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def test_the_tool_moves_a_partition_with_a_throttle(
    run_tool: RunTool, make_broker: MakeBroker, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """It sets the throttles, lists and cancels what is on its way, and takes the throttles back when all is done."""
    cluster, topic = moving_cluster(make_broker, zookeeper), topic_name()
    cluster.create_topic(topic, [1])
    fill(cluster.bootstrap, topic, 6000, 1000)
    plan = tmp_path / "plan.json"
    at = ("--bootstrap-server", cluster.bootstrap)

    def write(target: list[int]) -> tuple[str, ...]:
        moved = {"topic": topic, "partition": 0, "replicas": target}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        return (*at, "--reassignment-json-file", str(plan))

    named = write([2, 3])
    started = run_tool(REASSIGN, *named, "--execute", "--throttle", "50000")
    assert "Successfully started partition reassignment" in started
    listed = run_tool(REASSIGN, *at, "--list")
    assert f"{topic}-0: replicas: 2,3,1. adding: 2,3. removing: 1." in listed
    assert "is still in progress" in run_tool(REASSIGN, *named, "--verify", "--preserve-throttles")
    assert "Successfully cancelled" in run_tool(REASSIGN, *named, "--cancel")
    until(lambda: not cluster.moving(), "the partition is back")
    assert cluster.metadata(topic)[1] == [1]

    run_tool(REASSIGN, *named, "--execute", "--throttle", "100000000")
    until(lambda: not cluster.moving(), "the partition has moved")
    verified = run_tool(REASSIGN, *named, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "Clearing broker-level throttles" in verified
    assert cluster.metadata(topic)[1:] == ([2, 3], [2, 3])
    assert len(values(cluster.bootstrap, topic, 6000)) == 6000
    until(lambda: not folders(cluster.brokers[1], topic), "the old replica is deleted")
