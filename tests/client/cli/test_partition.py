"""`ottla partition` on a cluster of two real brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import MakeBroker
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.results import PartitionDescription, TopicDescription
from ottla.client.cli.plans.reassigning import spread

VERIFY_MAX = 500


def test_a_topic_moves_to_another_broker(
    ottla: Ottla, make_broker: MakeBroker, zookeeper_server: ZooKeeperServer, topic: str, tmp_path: Path
) -> None:
    """Plan, execute, verify until it is done; then leaders are where they should be."""
    connect = ZooKeeper(zookeeper_server).connect
    at = make_broker(zookeeper=connect, broker_id=1).bootstrap
    make_broker(zookeeper=connect, broker_id=2)
    ottla("topic", "create", topic, "-p", "2", "-r", "1", bootstrap=at)

    planned = ottla("partition", "reassign", "plan", "--topic", topic, "--brokers", "2", bootstrap=at)
    assert json.loads(planned.out) == {
        "version": 1,
        "partitions": [{"topic": topic, "partition": number, "replicas": [2]} for number in (0, 1)],
    }
    file = tmp_path / "plan.json"
    file.write_text(planned.out)
    plan = str(file)
    assert ottla("partition", "reassign", "execute", plan, bootstrap=at).code == 2
    executed = ottla("partition", "reassign", "execute", plan, "--throttle", "10MiB", "--yes", bootstrap=at)
    assert (executed.code, f"in {plan}.rollback.json" in executed.err) == (0, True)
    back = json.loads((tmp_path / "plan.json.rollback.json").read_text())
    assert {tuple(row["replicas"]) for row in back["partitions"]} <= {(1,), (2,)}

    def options(kind: str, name: str) -> dict[str, str]:
        rows = ottla("config", "list", kind, name, "--format", "json", bootstrap=at).items
        return {row["name"]: row["value"] for row in rows if "throttled" in row["name"] and not row["is_default"]}

    assert set(options("topic", topic)) == {f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
    assert set(options("broker", "2").values()) == {str(10 * 1024 * 1024)}
    for _ in range(VERIFY_MAX):
        verified = ottla("partition", "reassign", "verify", plan, bootstrap=at)
        if verified.code == 0:
            break
    assert verified.rows == [[topic, "0", "done", "2", "2"], [topic, "1", "done", "2", "2"]]
    assert "The throttle was removed." in verified.err
    assert (options("topic", topic), options("broker", "1"), options("broker", "2")) == ({}, {}, {})
    cancelled = ottla("partition", "reassign", "cancel", plan, "--yes", bootstrap=at)
    assert (cancelled.code, "NO_REASSIGNMENT_IN_PROGRESS" in cancelled.err) == (1, True)

    assert [row[:4] for row in ottla("partition", "leaders", bootstrap=at).rows] == [
        [topic, "0", "2", "2"],
        [topic, "1", "2", "2"],
    ]
    assert ottla("partition", "leaders", "--not-preferred", "--format", "json", bootstrap=at).items == []
    elected = ottla("partition", "elect", "--topic", topic, bootstrap=at)
    assert (elected.code, [row[1:] for row in elected.rows]) == (0, [["not", "needed"]] * 2)
    assert ottla("partition", "elect", "--unclean", bootstrap=at).code == 2

    failed = ottla("partition", "reassign", "plan", "--topic", topic, "--brokers", "1,9", bootstrap=at)
    assert (failed.code, "not alive: 9" in failed.err) == (1, True)
    short = ottla("partition", "reassign", "plan", "-t", topic, "--brokers", "1", "-r", "2", bootstrap=at)
    assert (short.code, "needs 2 brokers" in short.err) == (1, True)


def test_what_is_not_a_plan_is_refused(ottla: Ottla, tmp_path: Path) -> None:
    """A file that is missing, not JSON, of another shape, or empty."""
    file = tmp_path / "plan.json"
    assert ottla("partition", "reassign", "verify", str(file)).code == 1
    for text in ("{", "[]", '{"partitions": [{"topic": 1, "partition": 0, "replicas": [1]}]}', '{"partitions": []}'):
        file.write_text(text)
        assert ottla("partition", "reassign", "verify", str(file)).code == 2
    assert ottla("partition", "reassign", "plan", "--topic", "x", "--brokers", "1,one").code == 2


@pytest.mark.parametrize(
    ("racks", "placed"),
    [
        ({}, [[1, 2], [2, 3], [3, 4], [4, 1]]),
        (dict.fromkeys((1, 2, 3, 4), "host"), [[1, 2], [2, 3], [3, 4], [4, 1]]),
        ({1: "a", 2: "a", 3: "b", 4: None}, [[1, 2], [2, 3], [3, 4], [4, 1]]),
        ({1: "a", 2: "a", 3: "b", 4: "b"}, [[1, 3], [3, 2], [2, 4], [4, 1]]),
        ({1: "a", 2: "a", 3: "a", 4: "b"}, [[1, 4], [4, 2], [2, 4], [3, 4]]),
    ],
)
def test_a_plan_keeps_replicas_in_different_racks(racks: dict[int, str | None], placed: list[list[int]]) -> None:
    """If all brokers have one; a single rack makes no difference."""
    partitions = tuple(PartitionDescription(number, 1, 0, (1, 2), (1, 2), ()) for number in range(4))
    topic = TopicDescription("orders", None, False, partitions)
    assert list(spread([topic], [1, 2, 3, 4], None, racks).values()) == placed
    tripled = spread([topic], [1, 2, 3, 4], 3, racks).values()
    assert all(len(set(replicas)) == 3 for replicas in tripled)
