"""`ottla apply` on a real broker, and files that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.client.cli.conftest import Ottla

from ottla.client.cli.plans.topic_files import WantedTopic, read_topics
from ottla.client.cli.terminal.errors import CommandError


def test_topics_are_made_as_the_file_says(ottla: Ottla, tmp_path: Path, topic: str) -> None:
    """Planned, created, found to be so, and changed."""
    file = tmp_path / "topics.toml"
    text = (
        f'[[topics]]\nname = "{topic}"\npartitions = 2\nreplication_factor = 1\nconfigs = {{"retention.ms" = 5000}}\n'
    )
    file.write_text(text)
    planned = ottla("apply", "-f", str(file), "--dry-run", "--format", "json")
    changes = ["partitions 2", "replication factor 1", "retention.ms 5000"]
    item = {"topic": topic, "action": "create", "changes": changes, "error": None, "status": "planned"}
    assert (planned.code, planned.items) == (0, [item])
    assert ottla("topic", "describe", topic).code == 1

    assert ottla("apply", "-f", str(file), "--format", "json").items == [{**item, "status": "done"}]
    assert ottla("apply", "-f", str(file)).rows == [[topic, "nothing", "-", "-"]]

    file.write_text(text.replace("= 2", "= 3").replace("5000", "6000"))
    changed = ottla("apply", "-f", str(file))
    assert changed.code == 0
    expected = f"{topic}  change  partitions 2 -> 3; retention.ms 5000 -> 6000  done"
    assert changed.out.splitlines()[1] == expected
    assert ottla("apply", "-f", str(file)).rows == [[topic, "nothing", "-", "-"]]
    (described,) = ottla("topic", "describe", topic, "--format", "json").items
    assert (len(described["partitions"]), described["configs"]) == (3, {"retention.ms": "6000"})


def test_an_option_goes_back_to_its_default_and_others_stay(ottla: Ottla, tmp_path: Path, topic: str) -> None:
    """Null takes it back; what the file does not name is left alone."""
    ottla("topic", "create", topic, "-c", "retention.ms=5000", "-c", "retention.bytes=7000")
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"topics": [{"name": topic, "configs": {"retention.ms": None}}]}))
    assert ottla("apply", "-f", str(file), "--format", "json").items[0]["changes"] == ["retention.ms 5000 -> default"]
    (described,) = ottla("topic", "describe", topic, "--format", "json").items
    assert described["configs"] == {"retention.bytes": "7000"}
    assert ottla("apply", "-f", str(file)).rows == [[topic, "nothing", "-", "-"]]


def test_if_one_topic_cannot_be_so_none_is_touched(ottla: Ottla, tmp_path: Path, topic: str) -> None:
    """Fewer partitions, and another replication factor."""
    ottla("topic", "create", topic, "-p", "3")
    file = tmp_path / "topics.json"
    rows = [{"name": topic, "partitions": 2}, {"name": f"{topic}-new"}]
    file.write_text(json.dumps({"topics": rows}))
    refused = ottla("apply", "-f", str(file))
    assert refused.code == 1
    assert [row[1] for row in refused.rows] == ["refuse", "create"]
    assert f"{topic} has 3 partitions and cannot have fewer; the file has 2" in refused.err
    assert ottla("topic", "describe", f"{topic}-new").code == 1

    file.write_text(json.dumps({"topics": [{"name": topic, "replication_factor": 2}]}))
    refused = ottla("apply", "-f", str(file), "--format", "json")
    assert (refused.code, refused.items[0]["status"]) == (1, "failed")
    assert refused.items[0]["error"]["name"] == "INVALID_REPLICATION_FACTOR"


def test_what_the_broker_refuses_is_told(ottla: Ottla, tmp_path: Path, topic: str) -> None:
    """By a dry run too, which creates nothing."""
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"topics": [{"name": topic, "configs": {"retention.ms": "soon"}}]}))
    for more in (("--dry-run",), ()):
        failed = ottla("apply", "-f", str(file), *more)
        assert (failed.code, failed.rows[0][-1], "INVALID_CONFIG" in failed.err) == (1, "failed", True)


def test_yaml_is_read(tmp_path: Path) -> None:
    """With an error that says where it is none."""
    file = tmp_path / "topics.yaml"
    file.write_text("topics:\n- name: a\n  configs: {retention.ms: 5, compression.type: zstd}\n")
    assert read_topics(file) == [WantedTopic("a", configs={"retention.ms": "5", "compression.type": "zstd"})]
    file.write_text("topics: [")
    with pytest.raises(CommandError, match="does not parse"):
        read_topics(file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "does not parse"),
        ("[]", 'must have a list "topics"'),
        ('{"topics": {}}', 'must have a list "topics"'),
        ('{"topics": [], "more": 1}', "nothing else"),
        ('{"topics": [{}]}', "topic 1 has no name"),
        ('{"topics": [{"name": "a"}, {"name": "a"}]}', "a more than once"),
        ('{"topics": [{"name": "a", "partition": 1}]}', "unknown keys: partition"),
        ('{"topics": [{"name": "a", "partitions": 0}]}', "partitions is a whole number from 1"),
        ('{"topics": [{"name": "a", "partitions": true}]}', "partitions is a whole number from 1"),
        ('{"topics": [{"name": "a", "replication_factor": 40000}]}', "from 1 to 32767"),
        ('{"topics": [{"name": "a", "configs": [1]}]}', "configs must map options to values"),
        ('{"topics": [{"name": "a", "configs": {"b": {}}}]}', "b must be a text"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    """With the place, before anything is asked of a broker."""
    file = tmp_path / "topics.json"
    file.write_text(content)
    with pytest.raises(CommandError, match=reason) as refused:
        read_topics(file)
    assert refused.value.exit_code == 2


def test_values_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    """Booleans, numbers and lists."""
    file = tmp_path / "topics.json"
    configs = {"a": True, "b": 0.5, "c": ["compact", "delete"]}
    file.write_text(json.dumps({"topics": [{"name": "t", "configs": configs}]}))
    assert read_topics(file)[0].configs == {"a": "true", "b": "0.5", "c": "compact,delete"}


def test_a_file_that_is_missing_or_of_another_kind_is_refused(ottla: Ottla, tmp_path: Path) -> None:
    """With exit code 2, as all that is wrong with the command line."""
    assert ottla("apply", "-f", str(tmp_path / "missing.json")).code == 2
    (tmp_path / "topics.txt").write_text("")
    assert ottla("apply", "-f", str(tmp_path / "topics.txt")).code == 2
    assert ottla("apply").code == 2
