"""Groups as monitoring and people see them: lag under kafka_exporter's names, and pages of JSON."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry
from tests.broker.groups.coordinating import GROUP, TOPIC, commit, coordinating_broker, stable_member
from tests.broker.handlers.data_path import BROKER_ID, NOW_MS, Broker, batch

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.groups.lag_lookups import LagLookups
from ottla.broker.observability.group_metrics import GroupCollector
from ottla.broker.observability.group_pages import GroupPages, assigned
from ottla.broker.observability.http_server import HttpServer
from ottla.protocol.codec import encode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from ottla.protocol.record_batch_builder import RecordBatchBuilder


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker with a group that has read two of three records."""
    with coordinating_broker(tmp_path) as broker:
        partition = broker.services.partitions.find(TopicPartition(TOPIC, 0))
        assert partition is not None
        partition.append(batch(b"a", b"b", b"c"), required_acks=1)
        member_id, generation = stable_member(broker)
        commit(broker, 2, member_id=member_id, generation_id_or_member_epoch=generation, metadata="x")
        yield broker


@pytest.fixture
def lookups(broker: Broker) -> Iterator[LagLookups]:
    """Look partitions and records up; nobody else is asked."""
    lookups = LagLookups(broker.services.partitions, broker.services.metadata, lambda leader, questions: {})
    lookups.start()
    yield lookups
    lookups.stop()


def test_lag_has_the_names_of_kafka_exporter(broker: Broker, lookups: LagLookups) -> None:
    """So that its dashboards work."""
    registry = CollectorRegistry()
    registry.register(GroupCollector(broker.services.groups, lookups))
    lines = generate_latest(registry).decode().splitlines()
    partition = f'consumergroup="{GROUP}",partition="0",topic="{TOPIC}"'
    topic = f'consumergroup="{GROUP}",topic="{TOPIC}"'
    assert {
        f"kafka_consumergroup_current_offset{{{partition}}} 2.0",
        f"kafka_consumergroup_lag{{{partition}}} 1.0",
        f"kafka_consumergroup_current_offset_sum{{{topic}}} 2.0",
        f"kafka_consumergroup_lag_sum{{{topic}}} 1.0",
        f'kafka_consumergroup_members{{consumergroup="{GROUP}"}} 1.0',
        "kafka_coordinator_group_groupmetadatamanager_numgroups 1.0",
        "kafka_coordinator_group_groupmetadatamanager_numoffsets 1.0",
    } <= set(lines)


def test_a_slow_group_is_behind_and_one_that_stopped_is_stalled(broker: Broker, lookups: LagLookups) -> None:
    """Both lags grow in time. But the slow group moves, and what the other one commits is the same offset again."""
    registry = CollectorRegistry()
    registry.register(GroupCollector(broker.services.groups, lookups))

    def seconds(metric: str, group: str) -> float | None:
        labels = {"consumergroup": group, "topic": TOPIC, "partition": "0"}
        return registry.get_sample_value(f"ottla_consumergroup_{metric}_seconds", labels)

    for group in ("slow", "stopped", "ready"):
        commit(broker, 1, group=group)
    broker.now_ms += 60_000
    commit(broker, 2, group="slow")
    commit(broker, 1, group="stopped")
    commit(broker, 3, group="ready")
    broker.now_ms += 1_000

    assert (seconds("lag", "slow"), seconds("stalled", "slow")) == (61, 1)
    assert (seconds("lag", "stopped"), seconds("stalled", "stopped")) == (61, 61)
    assert (seconds("lag", "ready"), seconds("stalled", "ready")) == (0, 0)


def test_a_group_that_waited_for_a_record_has_not_stalled_before_it(broker: Broker, lookups: LagLookups) -> None:
    """It may have been at the end for hours."""
    commit(broker, 3, group="quiet")
    partition = broker.services.partitions.find(TopicPartition(TOPIC, 0))
    assert partition is not None
    broker.now_ms += 3_600_000
    partition.append(batch_at(NOW_MS + broker.now_ms - 2_000), required_acks=1)
    (offsets,) = GroupPages(broker.services.groups, lookups)("quiet")["offsets"]  # type: ignore[index]
    assert (offsets["lag"], offsets["lag_ms"], offsets["stalled_ms"]) == (1, 2_000, 2_000)


def batch_at(timestamp_ms: int) -> bytes:
    """Build a batch of one record."""
    builder = RecordBatchBuilder()
    builder.append(timestamp_ms, b"k", b"v")
    return bytes(builder.build())


def test_commits_and_rebalances_are_counted(broker: Broker, lookups: LagLookups) -> None:
    """One rebalance and one offset by now; a refused commit adds nothing, an offset that is deleted counts as such."""
    groups, registry = broker.services.groups, CollectorRegistry()
    registry.register(GroupCollector(groups, lookups))
    prefix = "kafka_server_group_coordinator_metrics"
    assert registry.get_sample_value(f"{prefix}_offset_commit_total") == 1
    assert registry.get_sample_value(f"{prefix}_group_completed_rebalance_total") == 1
    assert registry.get_sample_value(f"{prefix}_offset_deletion_total") == 0

    commit(broker, 3, member_id="nobody", generation_id_or_member_epoch=1)
    broker.services.group_offsets.partitions_deleted([TopicPartition(TOPIC, 0)])

    assert registry.get_sample_value(f"{prefix}_offset_commit_total") == 1
    assert registry.get_sample_value(f"{prefix}_offset_deletion_total") == 1
    assert registry.get_sample_value(f"{prefix}_offset_expiration_total") == 0
    assert registry.get_sample_value(f"{prefix}_offset_commit_rate") is not None


def test_every_metric_of_groups_is_in_the_documentation(broker: Broker, lookups: LagLookups) -> None:
    """With the name that a query uses."""
    page = (Path(__file__).parents[3] / "docs" / "METRICS.md").read_text()
    families = GroupCollector(broker.services.groups, lookups).collect()
    names = {sample.name for family in families for sample in family.samples}
    assert len(names) == 17
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_groups_are_shown_with_their_lag(broker: Broker, lookups: LagLookups) -> None:
    """All of them in short."""
    shown = GroupPages(broker.services.groups, lookups)("")
    assert shown is not None
    (group,) = shown["groups"]
    assert shown["is_loading"] is False
    assert (group["id"], group["type"], group["state"], group["generation"]) == (GROUP, "classic", "Stable", 1)
    assert (group["members"], group["lag"], group["coordinator"]) == (1, 1, BROKER_ID)


def test_a_group_is_shown_with_members_offsets_and_why_it_rebalanced(broker: Broker, lookups: LagLookups) -> None:
    """Times are in milliseconds since 1970."""
    shown = GroupPages(broker.services.groups, lookups)(GROUP)
    assert shown is not None
    (member,) = shown["members"]
    assert (member["client_id"], member["client_host"], member["instance_id"]) == ("test", "127.0.0.1", None)
    assert shown["offsets"] == [
        {
            "topic": TOPIC,
            "partition": 0,
            "offset": 2,
            "metadata": "x",
            "committed_ms": NOW_MS,
            "moved_ms": NOW_MS,
            "end_offset": 3,
            "lag": 1,
            "lag_ms": 0,
            "stalled_ms": 0,
        }
    ]
    (rebalance,) = shown["rebalances"]
    assert (rebalance["began_ms"], rebalance["generation"]) == (NOW_MS, 1)
    assert f"member {member['id']} joined from /127.0.0.1" in rebalance["cause"]
    json.dumps(shown)


def test_a_group_that_is_not_here_is_told_from_one_that_does_not_exist(broker: Broker, lookups: LagLookups) -> None:
    """The console asks another broker then."""
    pages = GroupPages(broker.services.groups, lookups)
    assert pages("unknown") is None
    broker.lead(CONSUMER_OFFSETS, epoch=1, leader=2, isr=(2,))
    assert pages("unknown") == {"id": "unknown", "error": "NOT_COORDINATOR"}


def test_an_assignment_is_shown_where_it_is_a_consumers() -> None:
    """Others keep theirs to themselves."""
    rows = [ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=[0, 2])]
    body = encode(ConsumerProtocolAssignment(assigned_partitions=rows), 0)
    assert assigned(b"\x00\x00" + body) == {"t": [0, 2]}
    assert assigned(b"\x00\x63" + body) == {"t": [0, 2]}
    assert (assigned(b""), assigned(b"assigned"), assigned(b"\xff\xff" + body)) == (None, None, None)


def test_pages_are_served_over_http(broker: Broker, lookups: LagLookups) -> None:
    """Names in the path are decoded; what is not there is 404."""
    pages = {"groups": GroupPages(broker.services.groups, lookups)}
    commit(broker, 1, group="with / slash")
    server = HttpServer(socket.create_server(("127.0.0.1", 0)), CollectorRegistry(), lambda: {"ready": True}, pages)
    server.start()

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as response:
            return json.load(response)

    try:
        assert len(get("/groups")["groups"]) == 2
        assert get("/groups/with%20%2F%20slash")["id"] == "with / slash"
        for path in ("/groups/unknown", "/nowhere"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(path)
            assert refused.value.code == 404
            refused.value.close()
    finally:
        server.stop()
