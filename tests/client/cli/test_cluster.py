"""`ottla cluster`, `config` and `check` on real brokers."""

from __future__ import annotations

import json

from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer


def test_the_cluster_is_described(ottla: Ottla, broker: BrokerProcess) -> None:
    """Info, brokers, controller and APIs, as tables and JSON."""
    (info,) = ottla("cluster", "info", "--format", "json").items
    assert info["brokers"] == [{"broker_id": 1, "host": "127.0.0.1", "port": broker.port, "rack": None}]
    assert f"cluster id:  {info['cluster_id']}\ncontroller:  1\nbrokers:     1\n" in ottla("cluster", "info").out

    assert ottla("cluster", "brokers").rows[0][:5] == ["1", "127.0.0.1", str(broker.port), "-", "yes"]
    (item,) = ottla("cluster", "brokers", "--format", "json").items
    assert (item["is_controller"], item["out_of_sync"]) == (True, 0)
    assert ottla("cluster", "controller").rows == [["1", "127.0.0.1", str(broker.port), "-"]]

    apis = {item["name"]: item for item in ottla("cluster", "api-versions", "--format", "json").items}
    assert apis["Metadata"]["api_key"] == 3
    assert ["18", "ApiVersions"] in [row[:2] for row in ottla("cluster", "api-versions", "--broker", "1").rows]
    missing = ottla("cluster", "api-versions", "--broker", "9")
    assert (missing.code, "There is no broker 9; the live brokers are 1." in missing.err) == (1, True)


def test_health_and_checks_see_a_dead_broker(
    ottla: Ottla, make_broker: MakeBroker, zookeeper_server: ZooKeeperServer, topic: str
) -> None:
    """Healthy, then short of a replica, then without a leader; and nobody there at all."""
    connect = ZooKeeper(zookeeper_server).connect
    first = make_broker(zookeeper=connect, broker_id=1)
    second = make_broker(zookeeper=connect, broker_id=2)
    at = first.bootstrap
    ottla("topic", "create", topic, "-r", "2", "-c", "min.insync.replicas=1", bootstrap=at)
    assert ottla("cluster", "health", bootstrap=at).out.startswith("cluster:           healthy\n")
    assert ottla("check", "health", bootstrap=at).out == "OK: 2 brokers, 1 partitions, all replicas in sync\n"
    assert ottla("check", "topic", topic, bootstrap=at).code == 0

    assert second.stop() == 0
    unhealthy = ottla("cluster", "health", bootstrap=at)
    assert unhealthy.code == 1
    assert "missing brokers:   2\n" in unhealthy.out
    assert unhealthy.out.splitlines()[-1].split() == [topic, "0", "1", "1,2", "1", "under-replicated"] or (
        unhealthy.out.splitlines()[-1].split() == [topic, "0", "1", "2,1", "1", "under-replicated"]
    )
    (item,) = ottla("cluster", "health", "--format", "json", bootstrap=at).items
    assert (item["is_healthy"], item["missing_brokers"], len(item["under_replicated"])) == (False, [2], 1)
    check = ottla("check", "health", bootstrap=at)
    assert (check.code, check.out) == (1, "WARNING: 1 of 1 partitions are under-replicated; not alive: 2\n")
    assert ottla("check", "topic", topic, bootstrap=at).code == 1
    ottla("topic", "alter", topic, "-c", "min.insync.replicas=2", bootstrap=at)
    check = ottla("check", "topic", topic, bootstrap=at)
    assert (check.code, check.out.split(":")[0]) == (2, "CRITICAL")

    first.kill()
    check = ottla("check", "health", "--format", "json", bootstrap=at)
    assert (check.code, check.items[0]["status"]) == (2, "CRITICAL")
    assert ottla("check", "topic", topic, bootstrap=at).code == 3
    assert ottla("check", "lag", "group", bootstrap=at).code == 3


def test_a_topic_needs_no_more_replicas_than_it_has(ottla: Ottla, topic: str) -> None:
    """With one replica, acks=all works whatever min.insync.replicas says, as in Kafka; so it is no alarm."""
    ottla("topic", "create", topic, "-r", "1", "-c", "min.insync.replicas=2")
    assert ottla("topic", "produce", topic, "x", "--acks", "all").code == 0
    check = ottla("check", "topic", topic)
    assert (check.code, check.out.split(":")[0]) == (0, "OK"), check.out


def test_lag_is_checked_against_limits(ottla: Ottla, topic: str) -> None:
    """Exit codes 0, 1, 2, and 3 for a group that does not exist."""
    group = f"group-{topic}"
    ottla("topic", "create", topic)
    ottla("topic", "produce", topic, "a", "b", "c")
    assert ottla("check", "lag", group).code == 3
    ottla("group", "seek", group, "--to", "start", "--topic", topic, "--yes")

    checked = ottla("check", "lag", group).out
    assert checked.startswith(f"OK: {group} is 3 records behind, Empty, 0 members; the oldest record waits for ")
    assert ottla("check", "lag", group, "--warning", "2").code == 1
    assert ottla("check", "lag", group, "--critical", "2").code == 2
    assert ottla("check", "lag", group, "--needs-members").code == 2
    assert ottla("check", "lag", group, "--warning-time", "1h", "--critical-time", "1d", "--stopped", "1h").code == 0
    assert ottla("check", "lag", group, "--warning-time", "0s").code == 1
    assert ottla("check", "lag", group, "--critical-time", "0s").code == 2
    assert ottla("check", "lag", group, "--stopped", "0s").code == 2
    assert ottla("check", "lag", group, "--stopped", "soon").code == 2
    assert ottla("check", "topic", "not-there").code == 2


def test_options_are_listed_set_and_unset(ottla: Ottla, topic: str) -> None:
    """Of a topic, and of a broker."""
    ottla("topic", "create", topic)
    assert ottla("config", "set", "topic", topic, "retention.ms=5000").rows == [[topic, "changed"]]
    assert ottla("config", "list", "topic", topic, "--changed").rows == [["retention.ms", "5000", "topic", "no"]]
    (item,) = ottla("config", "get", "topic", topic, "retention.ms", "--format", "json").items
    assert (item["value"], item["source"], item["is_default"]) == ("5000", "topic", False)
    assert ottla("config", "unset", "topic", topic, "retention.ms").code == 0
    assert ottla("config", "list", "topic", topic, "--changed").rows == []
    assert "ok to change" in ottla("config", "set", "topic", topic, "retention.ms=1", "--dry-run").out
    assert ottla("config", "list", "topic", topic, "--changed").rows == []

    assert ["broker.id", "1"] in [row[:2] for row in ottla("config", "list", "broker", "1").rows]
    assert ottla("config", "list", "broker", "all").code == 0


def test_options_that_make_no_sense_are_refused(ottla: Ottla, topic: str) -> None:
    """By us with 2, by the broker with 1."""
    ottla("topic", "create", topic)
    assert ottla("config", "list", "table", "x").code == 2
    assert ottla("config", "list", "broker", "one").code == 2
    assert ottla("config", "set", "topic", topic, "retention.ms").code == 2
    refused = ottla("config", "set", "topic", topic, "retention.ms=soon")
    assert (refused.code, "INVALID_CONFIG" in refused.err, "`ottla config list`" in refused.err) == (1, True, True)
    missing = ottla("config", "get", "topic", topic, "no.such.option")
    assert (missing.code, "There is no option no.such.option" in missing.err) == (1, True)
    assert ottla("config", "list", "topic", "not-there").code == 1
    assert ottla("config", "list", "broker", "9").code == 1


def test_log_directories_are_shown(ottla: Ottla, broker: BrokerProcess, topic: str) -> None:
    """With their replicas and sizes."""
    ottla("topic", "create", topic)
    (row,) = ottla("log", "dirs").rows
    assert (row[0], row[1], row[-1]) == ("1", str(broker.log_dir), "ok")
    (item,) = ottla("log", "dirs", "--format", "json").items
    assert topic in {each["topic"] for each in item["replicas"]}
    assert json.dumps(item["usable_bytes"]).isdigit()
