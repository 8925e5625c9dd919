"""`ottla group` on a real broker, with a real consumer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

from ottla.client.cli.health.lag import progress_of


@pytest.fixture
def member(broker: BrokerProcess) -> Iterator[Callable[..., Consumer]]:
    """Make a consumer and wait until it has partitions."""
    made = []

    def join(group: str, topic: str, **options: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "client.id": "reader",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        made.append(consumer)
        consumer.subscribe([topic])
        until(consumer.assignment, "the consumer has partitions", meanwhile=lambda: consumer.poll(0.1))
        return consumer

    yield join
    for consumer in made:
        consumer.close()


def test_offsets_are_set_shown_and_deleted(ottla: Ottla, topic: str) -> None:
    """A group without members: seek, lag, describe, list, delete."""
    group = f"group-{topic}"
    ottla("topic", "create", topic)
    ottla("topic", "produce", topic, "a", "b", "c")

    planned = ottla("group", "seek", group, "--to", "1", "--topic", topic, "--dry-run")
    assert planned.rows == [[topic, "0", "-", "1"]]
    assert ottla("group", "describe", group).code == 1
    sought = ottla("group", "seek", group, "--to", "1", "--topic", topic, "--yes")
    assert (sought.code, sought.rows) == (0, [[topic, "0", "-", "1"]])

    lag = ottla("group", "lag", group)
    assert lag.out.splitlines()[0].split()[:5] == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    (row,) = lag.rows
    assert row[:8] == [topic, "0", "1", "3", "2", "-", "-", "-"]
    assert re.fullmatch(r"\d+[smh]", row[8])
    (item,) = ottla("group", "lag", group, "--format", "json").items
    assert 0 <= item.pop("stalled_ms") <= item.pop("lag_ms") < 60 * 60 * 1000
    assert item == {
        "group_id": group,
        "topic": topic,
        "partition": 0,
        "current_offset": 1,
        "log_end_offset": 3,
        "lag": 2,
        "progress": "reading",
        "member_id": None,
        "client_host": None,
        "client_id": None,
    }
    described = ottla("group", "describe", group).out
    assert "state:        Empty\n" in described
    assert "total lag:    2\n" in described
    assert [group, "Empty", "classic"] in [row[:3] for row in ottla("group", "list", "--state", "empty").rows]

    (item,) = ottla("group", "seek", group, "--to", "end", "--yes", "--format", "json").items
    assert item == {"topic": topic, "partition": 0, "before": 1, "after": 3, "wanted": 3, "error": None}
    (item,) = ottla("group", "lag", group, "--format", "json").items
    assert (item["lag"], item["lag_ms"]) == (0, 0)
    assert ottla("group", "delete", group).code == 2
    assert ottla("group", "delete", group, "--yes").rows == [[group, "deleted"]]
    missing = ottla("group", "lag", group)
    assert (missing.code, "`ottla group list`" in missing.err) == (1, True)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_shown(ottla: Ottla, topic: str, member: Callable[..., Consumer], protocol: str) -> None:
    """Of classic groups and of those of KIP-848; what is committed may not be moved under them."""
    group = f"group-{topic}"
    ottla("topic", "create", topic, "-p", "2")
    ottla("topic", "produce", topic, "a", "-p", "0")
    member(group, topic, group_protocol=protocol)

    (shown,) = ottla("group", "members", group, "--format", "json").items
    assert shown["client_id"] == "reader"
    assert shown["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    (row,) = ottla("group", "members", group).rows
    assert row[2:5] == ["127.0.0.1", "reader", "2"]

    (described,) = ottla("group", "describe", group, "--format", "json").items
    assert (described["type"], described["state"]) == (protocol, "Stable")
    assert [each["client_id"] for each in described["partitions"]] == ["reader", "reader"]

    refused = ottla("group", "seek", group, "--to", "start", "--topic", topic, "--yes")
    assert (refused.code, "Stop them first" in refused.err) == (1, True)
    refused = ottla("group", "delete", group, "--yes")
    assert (refused.code, "Stop its members first" in refused.err) == (1, True)


def test_the_timeline_tells_why_a_group_rebalanced(ottla: Ottla, topic: str, member: Callable[..., Consumer]) -> None:
    """As the coordinator tells it over HTTP."""
    group = f"group-{topic}"
    ottla("topic", "create", topic)
    member(group, topic)

    items = ottla("group", "timeline", group, "--format", "json").items
    assert set(items[0]) == {"cause", "began_ms", "join_ms", "sync_ms", "generation", "members"}
    table = ottla("group", "timeline", group)
    assert table.code == 0
    assert items[0]["cause"] in table.out


def test_a_group_that_committed_nothing_needs_a_topic_to_seek_in(ottla: Ottla, topic: str) -> None:
    """The error says how."""
    failed = ottla("group", "seek", f"group-{topic}", "--to", "start", "--yes")

    assert (failed.code, "--topic" in failed.err) == (1, True)


def test_a_group_is_moved_by_a_number_or_to_the_offsets_of_a_file(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    """An offset that is not there becomes the nearest one, with a warning; offsets can be deleted."""
    group = f"group-{topic}"
    ottla("topic", "create", topic, "-p", "2")
    ottla("topic", "produce", topic, "-p", "0", "a", "b", "c")
    seek = ("group", "seek", group, "--topic", topic, "--yes")
    assert ottla(*seek, "--to", "1").code == 0

    moved = ottla(*seek, "--by", "1", "--partition", "0")
    assert (moved.code, moved.rows) == (0, [[topic, "0", "1", "2"]])
    far = ottla(*seek, "--shift-by", "100", "--partition", "0", "--dry-run")
    assert (far.rows, f"Warning: {topic}-0 ends at 3, not at 102." in far.err) == ([[topic, "0", "2", "3"]], True)
    before = ottla(*seek, "--by", "-100", "--partition", "0", "--format", "json")
    assert (before.items[0]["after"], before.items[0]["wanted"]) == (0, -98)
    assert "starts at 0" in before.err

    file = tmp_path / "offsets"
    file.write_text(f"{topic},0,2\n{topic},1,0\n")
    listed = ottla("group", "seek", group, "--from-file", str(file), "--yes")
    assert [row[3] for row in listed.rows] == ["2", "0"]
    file.write_text(ottla("group", "lag", group, "--format", "json").out)
    assert ottla("group", "seek", group, "--from-file", str(file), "--dry-run").rows == [
        [topic, "0", "2", "2"],
        [topic, "1", "0", "0"],
    ]
    file.write_text("what is this?\n")
    wrong = ottla("group", "seek", group, "--from-file", str(file))
    assert (wrong.code, "line 1" in wrong.err) == (2, True)
    assert ottla("group", "seek", group, "--to", "1", "--by", "1").code == 2
    assert ottla("group", "seek", group).code == 2

    deleted = ottla("group", "delete-offsets", group, "--topic", topic, "--partition", "1", "--yes")
    assert (deleted.code, deleted.rows) == (0, [[f"{topic}-1", "deleted"]])
    assert [row[1] for row in ottla("group", "lag", group).rows] == ["0"]


@pytest.mark.parametrize(
    ("lag", "stalled_ms", "has_reader", "progress"),
    [
        (None, None, True, None),
        (0, 90_000, False, "caught_up"),
        (5, 29_999, True, "reading"),
        (5, 30_000, True, "stopped"),
        # Clients that assign partitions to themselves are no members.
        (5, 1_000, False, "reading"),
        # Brokers of Apache Kafka do not say when an offset has moved.
        (5, None, True, "behind"),
        (5, None, False, "stopped"),
    ],
)
def test_a_group_that_stopped_is_told_from_one_that_is_slow(
    lag: int | None, stalled_ms: int | None, has_reader: bool, progress: str | None
) -> None:
    """By whether its offset has moved since there was something to read."""
    assert progress_of(lag, stalled_ms, has_reader=has_reader) == progress
