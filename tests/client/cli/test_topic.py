"""`ottla topic` on a real broker."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.client.cli.conftest import INTERRUPTED, Ottla, producing_from_a_pipe
from tests.client.clusters import DEADLINE_S
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until


def test_the_life_of_a_topic(ottla: Ottla, topic: str) -> None:
    """Created, listed, described, changed, grown, deleted; as tables."""
    created = ottla("topic", "create", topic, "-p", "2", "-r", "1", "-c", "retention.ms=1000")
    assert (created.code, created.rows) == (0, [[topic, "created"]])

    listed = ottla("topic", "list")
    assert listed.out.splitlines()[0].split() == ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"]
    assert [topic, "2", "1"] in listed.rows
    assert all(not row[0].startswith("__") for row in listed.rows)

    described = ottla("topic", "describe", topic).out
    assert f"topic:               {topic}\n" in described
    assert "retention.ms = 1000\n" in described
    assert [line.split() for line in described.splitlines()[-2:]] == [
        ["0", "1", "0", "1", "1", "ok", "0", "0", "B"],
        ["1", "1", "0", "1", "1", "ok", "0", "0", "B"],
    ]

    assert ottla("topic", "alter", topic, "--unset", "retention.ms", "-c", "cleanup.policy=compact").code == 0
    (item,) = ottla("topic", "describe", topic, "--format", "json").items
    assert item["configs"] == {"cleanup.policy": "compact"}

    grown = ottla("topic", "add-partitions", topic, "--total", "3")
    assert grown.out.splitlines()[1].split(maxsplit=1) == [topic, "has 3 partitions"]

    assert ottla("topic", "delete", topic, "--yes").rows == [[topic, "deleted"]]
    assert ottla("topic", "describe", topic).code == 1


def test_topics_as_json_have_the_fields_that_scripts_rely_on(ottla: Ottla, topic: str) -> None:
    """One object a line."""
    (created,) = ottla("topic", "create", topic, "-p", "2", "--format", "json").items
    assert created == {
        "name": topic,
        "topic_id": created["topic_id"],
        "num_partitions": 2,
        "replication_factor": 1,
        "error": None,
    }
    (listed,) = ottla("topic", "list", "--regex", topic, "--format", "json").items
    assert listed == {
        "name": topic,
        "topic_id": created["topic_id"],
        "is_internal": False,
        "num_partitions": 2,
        "replication_factor": 1,
    }
    (described,) = ottla("topic", "describe", topic, "--format", "json").items
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "offline_replicas": [],
        "records": 0,
        "size_bytes": 0,
        "records_per_second": None,
        "bytes_per_second": None,
    }


def test_what_does_not_work_says_why_and_what_next(ottla: Ottla, topic: str) -> None:
    """Exit code 1, and nothing on standard output but results."""
    ottla("topic", "create", topic)

    again = ottla("topic", "create", topic)
    assert (again.code, again.out) == (1, "")
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert "`ottla topic describe` shows it" in again.err
    assert ottla("topic", "create", topic, "--if-not-exists").code == 0
    (told,) = ottla("topic", "create", topic, "--format", "json").items
    assert told["error"]["name"] == "TOPIC_ALREADY_EXISTS"

    missing = ottla("topic", "describe", "not-there")
    assert (missing.code, missing.out) == (1, "")
    assert "there is no topic 'not-there'" in missing.err
    assert "`ottla topic list` shows the topics that exist." in missing.err

    assert ottla("topic", "create", "a/b").code == 1
    assert ottla("topic", "create", "fine", "-r", "5").code == 1
    assert ottla("topic", "add-partitions", topic, "--total", "1").code == 1


def test_a_wrong_command_line_exits_with_2(ottla: Ottla, topic: str) -> None:
    """Before anything is asked of the broker."""
    assert ottla("topic", "create", topic, "-c", "retention.ms").code == 2
    assert ottla("topic", "list", "--regex", "(").code == 2
    assert ottla("topic", "alter", topic).code == 2
    assert ottla("topic", "nothing").code == 2
    unknown = ottla("topic", "list", "-X", "bootstrp.servers=x")
    assert (unknown.code, "did you mean bootstrap.servers?" in unknown.err) == (2, True)


def test_a_dry_run_creates_nothing(ottla: Ottla, topic: str) -> None:
    """It says that it would work."""
    assert "ok to create" in ottla("topic", "create", topic, "--dry-run").out
    assert ottla("topic", "describe", topic).code == 1


def test_what_destroys_asks_first(ottla: Ottla, topic: str) -> None:
    """Without a terminal there is nobody to ask, and nothing is done."""
    ottla("topic", "create", topic)

    refused = ottla("topic", "delete", topic)

    assert refused.code == 2
    assert "--yes" in refused.err
    assert ottla("topic", "describe", topic).code == 0


def test_no_cluster_is_said_in_plain_words(ottla: Ottla) -> None:
    """With where it was looked for, and how to say another place."""
    failed = ottla("topic", "list", bootstrap="127.0.0.1:1")

    assert (failed.code, failed.out) == (1, "")
    assert "No broker can be reached" in failed.err
    assert "127.0.0.1:1" in failed.err
    assert "-b HOST:PORT" in failed.err


def test_records_go_in_by_lines_and_come_out_by_lines(ottla: Ottla, topic: str) -> None:
    """The way of a newcomer."""
    ottla("topic", "create", topic)
    produced = ottla("topic", "produce", topic, stdin=b"one\ntwo\nthree")
    assert (produced.code, produced.out) == (0, "")
    assert f"3 records written to {topic}" in produced.err

    assert ottla("topic", "consume", topic, "-e").out == "one\ntwo\nthree\n"
    assert ottla("topic", "consume", topic, "-o", "1", "-n", "1").out == "two\n"
    assert ottla("topic", "consume", topic, "-o", "-1", "-e").out == "three\n"
    assert ottla("topic", "consume", topic, "-o", "end", "-e").out == ""
    assert ottla("topic", "consume", topic, "-o", "@-1h", "-e").out == "one\ntwo\nthree\n"
    assert ottla("topic", "tail", topic, "--lines", "2", "-n", "2").out == "two\nthree\n"


def test_keys_headers_and_nulls_go_through(ottla: Ottla, topic: str) -> None:
    """By a delimiter in lines, by format strings, and as JSON."""
    ottla("topic", "create", topic, "-p", "2")
    lines = b"a:1\nb:\n"
    options = ("-p", "1", "-K", ":", "--null-value", "-H", "x=y", "-z", "zstd", "--format", "json")
    produced = ottla("topic", "produce", topic, *options, stdin=lines).items
    assert [(each["partition"], each["offset"]) for each in produced] == [(1, 0), (1, 1)]

    text = ottla("topic", "consume", topic, "-e", "--null", "NULL", "-f", r"%t/%p/%o %k(%K)=%s(%S) %h%%\n").out
    assert text == f"{topic}/1/0 a(1)=1(1) x=y%\n{topic}/1/1 b(1)=NULL(-1) x=y%\n"
    first, second = ottla("topic", "consume", topic, "-e", "--json").items
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": produced[0]["timestamp"],
        "key": "a",
        "value": "1",
        "headers": [["x", "y"]],
    }
    assert second["value"] is None


def test_values_may_be_arguments_or_a_file(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    """A file is one record, with its line ends; bytes that are not text are base64 in JSON."""
    file = tmp_path / "value"
    file.write_bytes(b"\xff\n")
    ottla("topic", "create", topic)
    assert ottla("topic", "produce", topic, "hello", "world", "--key", "k", "--acks", "1").code == 0
    assert ottla("topic", "produce", topic, "--file", str(file)).code == 0

    items = ottla("topic", "consume", topic, "-e", "--format", "json").items

    assert [item["value"] for item in items] == ["hello", "world", {"base64": "/wo="}]
    assert ottla("topic", "produce", topic, "--file", f"{file}-missing").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("consume", "{topic}", "-o", "soon", "-e"), 2, "is not an offset"),
        (("consume", "{topic}", "-o", "@soon", "-e"), 2, "is not a time"),
        (("consume", "{topic}", "-f", "%q", "-e"), 2, "%q"),
        (("consume", "{topic}", "-f", "%s", "--json"), 2, "use only one"),
        (("consume", "{topic}", "-p", "7", "-e"), 1, "no partition 7"),
        (("consume", "not-there", "-e"), 1, "no topic 'not-there'"),
        (("produce", "{topic}", "x", "--acks", "2"), 2, "--acks"),
        (("produce", "{topic}", "x", "-K", ":"), 1, "between key and value"),
        (("produce", "{topic}", "x", "-p", "7"), 1, "partitions 0 to 0"),
        (("produce", "{topic}", "x", "-z", "rar"), 2, "compression_type"),
        (
            ("produce", "{topic}", "x", "--transactional-id", "id", "--acks", "1"),
            2,
            "transactional_id needs acks='all'",
        ),
        (("produce", "{topic}", "x", "--transactional-id", ""), 2, "transactional_id must not be empty"),
        (("consume", "{topic}", "-e", "--isolation", "read-all"), 2, "read-committed"),
    ],
)
def test_errors_of_reading_and_writing(
    ottla: Ottla, topic: str, arguments: tuple[str, ...], code: int, told: str
) -> None:
    """Each with its exit code and words."""
    ottla("topic", "create", topic)

    failed = ottla("topic", *(argument.format(topic=topic) for argument in arguments))

    assert (failed.code, failed.out) == (code, "")
    assert told in failed.err


def test_a_header_may_come_twice_and_a_delimiter_may_be_a_tab(ottla: Ottla, topic: str) -> None:
    """`-H b=2 -H b=3` are two headers; `-K '\\t'` is what a shell lets one type."""
    ottla("topic", "create", topic)
    assert ottla("topic", "produce", topic, "-K", r"\t", "-H", "b=2", "-H", "b=3", stdin=b"k\tv\n").code == 0
    assert ottla("topic", "consume", topic, "-e", "-f", r"%k %s %h\n").out == "k v b=2,b=3\n"


def test_what_consume_prints_is_written_again(ottla: Ottla, topic: str) -> None:
    """Keys, headers, timestamps, partitions and tombstones, of bytes that are not text as well."""
    ottla("topic", "create", topic, "-p", "2")
    lines = [
        {
            "key": "k",
            "value": None,
            "partition": 1,
            "timestamp": 1_700_000_000_000,
            "headers": [["a", "1"], ["a", None]],
        },
        {"value": {"base64": "/wo="}, "partition": 0, "timestamp": 1_700_000_000_001},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert ottla("topic", "produce", topic, "--json", stdin=text).code == 0
    first = ottla("topic", "consume", topic, "-e", "--json")

    copy = f"{topic}-copy"
    ottla("topic", "create", copy, "-p", "2")
    assert ottla("topic", "produce", copy, "--json", stdin=first.out.encode()).code == 0
    again = ottla("topic", "consume", copy, "-e", "--json")

    def content(item: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(item[name] for name in ("partition", "timestamp", "key", "value", "headers"))

    assert sorted(map(content, first.items), key=str) == sorted(map(content, again.items), key=str)
    elsewhere = b'{"value": "fine", "partition": 99}\n'
    missing = ottla("topic", "produce", copy, "--json", stdin=elsewhere)
    assert (missing.code, "not 99. Add partitions to the topic" in missing.err) == (1, True), missing.err
    assert "let --repartition choose" in missing.err
    assert ottla("topic", "produce", copy, "--json", "--repartition", stdin=elsewhere).code == 0

    wrong = ottla("topic", "produce", copy, "--json", stdin=b'{"value": "fine"}\nnot json\n')
    assert (wrong.code, "Record 2: a line is not JSON" in wrong.err) == (1, True)
    assert "never retrieved" not in wrong.err
    by_format = ottla("topic", "produce", copy, "-f", r"%p %T %k=%v\n", stdin=b"1 1700000000002 key=value\n")
    assert by_format.code == 0, by_format.err
    shown = ottla("topic", "consume", copy, "-p", "1", "-o", "-1", "-e", "-f", r"%p %T %k=%v").out
    assert shown == "1 1700000000002 key=value"
    both = ottla("topic", "produce", copy, "x", "--json", "-K", ":")
    assert (both.code, "use only one" in both.err) == (2, True)


def test_several_topics_patterns_and_ranges_are_read(ottla: Ottla, topic: str) -> None:
    """A range ends before its second offset or time."""
    other = f"{topic}-other"
    for name in (topic, other):
        ottla("topic", "create", name)
        assert ottla("topic", "produce", name, *(f"{name}-{number}" for number in range(5))).code == 0

    both = ottla("topic", "consume", topic, other, "-e").out.split()
    assert sorted(both) == sorted(f"{name}-{number}" for name in (topic, other) for number in range(5))
    matched = ottla("topic", "consume", "--regex", f"{topic}-ot.*", "-e", "-n", "2").out.split()
    assert matched == [f"{other}-0", f"{other}-1"]
    assert ottla("topic", "consume", "--regex", "no-such-.*", "-e").code == 1
    assert ottla("topic", "consume", "--regex", "(", "-e").code == 2

    assert ottla("topic", "consume", topic, "-o", "1:3").out.split() == [f"{topic}-1", f"{topic}-2"]
    assert ottla("topic", "consume", topic, "-o", ":2").out.split() == [f"{topic}-0", f"{topic}-1"]
    assert ottla("topic", "consume", topic, "-o", "-1:end").out.split() == [f"{topic}-4"]
    assert ottla("topic", "consume", topic, "-o", "@-2h:@-1h").out == ""
    assert len(ottla("topic", "consume", topic, "-o", "@-1h:end").out.split()) == 5


def test_a_group_reads_on_where_it_stopped(ottla: Ottla, topic: str) -> None:
    """What was printed is committed, and nothing else."""
    ottla("topic", "create", topic)
    ottla("topic", "produce", topic, "a", "b", "c")
    group = f"group-{topic}"

    assert ottla("topic", "consume", topic, "-g", group, "-n", "2").out == "a\nb\n"
    (lag,) = ottla("group", "lag", group, "--format", "json").items
    assert (lag["current_offset"], lag["lag"]) == (2, 1)
    assert ottla("topic", "consume", topic, "-g", group, "-e").out == "c\n"
    late = ottla("topic", "consume", "--regex", f"{topic}.*", "-g", f"late-{topic}", "-o", "end", "-e")
    assert (late.code, late.out) == (0, "")
    refused = ottla("topic", "consume", topic, "-g", group, "-o", "5")
    assert (refused.code, "group seek" in refused.err) == (2, True)


def test_sizes_and_rates_of_a_topic_are_shown(ottla: Ottla, topic: str) -> None:
    """Records and bytes of the leader's replica; rates only where one waits for them."""
    ottla("topic", "create", topic)
    ottla("topic", "produce", topic, "x" * 3000)
    shown = ottla("topic", "describe", topic, "--rates", "0.1").out.splitlines()
    assert shown[-2].split()[-4:] == ["RECORDS", "SIZE", "RECORDS/S", "SIZE/S"]
    assert shown[-1].split()[-6:] == ["1", "3.0", "KiB", "0.0", "0", "B"]
    (item,) = ottla("topic", "describe", topic, "--format", "json").items
    assert item["partitions"][0]["size_bytes"] > 3000


def test_an_error_is_told_once(ottla: Ottla, topic: str) -> None:
    """The words of the broker and ours are the same; and each sentence ends with one full stop."""
    ottla("topic", "create", topic)
    told = ottla("topic", "create", topic).err
    assert told.startswith(f"Error: {topic}. A topic of this name exists, or is still being deleted. [TOPIC_ALREADY_EX")
    for failed in (ottla("topic", "create", "a/b"), ottla("config", "set", "topic", topic, "retention.m=1")):
        assert failed.code == 1
        assert ".." not in failed.err
        assert "?." not in failed.err


def test_names_are_completed(ottla: Ottla, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics, groups and brokers of the cluster that the line names; nothing if it does not answer."""
    ottla("topic", "create", topic)
    group = f"group-{topic}"
    ottla("group", "seek", group, "--to", "start", "--topic", topic, "--yes")

    def completed(*words: str, bootstrap: str = broker.bootstrap) -> list[str]:
        monkeypatch.setenv("_OTTLA_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["ottla", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        printed = ottla(bootstrap=bootstrap)
        monkeypatch.delenv("_OTTLA_COMPLETE")
        assert printed.err == ""
        return [line.partition(",")[2] for line in printed.out.split()]

    assert completed("topic", "describe", topic[:-3]) == [topic]
    assert completed("group", "lag", group[:-3]) == [group]
    assert completed("cluster", "api-versions", "--broker", "") == ["1"]
    assert completed("top") == ["topic"]
    assert completed("topic", "describe", "t", bootstrap="127.0.0.1:1") == []


@pytest.mark.parametrize("isolation", ["read-committed", "read-uncommitted"])
def test_records_without_transactions_are_for_all_readers(ottla: Ottla, topic: str, isolation: str) -> None:
    """Whatever they ask for."""
    ottla("topic", "create", topic)
    ottla("topic", "produce", topic, "a", "b")

    assert ottla("topic", "consume", topic, "-e", "--isolation", isolation).out == "a\nb\n"
    assert ottla("topic", "consume", topic, "-e", "-o", "-1", "--isolation", isolation).out == "b\n"
    assert ottla("topic", "tail", topic, "--lines", "1", "-n", "1", "--isolation", isolation).out == "b\n"


def test_ctrl_c_ends_a_producer_that_waits_for_input(ottla: Ottla, broker: BrokerProcess, topic: str) -> None:
    """At once, although nothing more comes; it tells what it has written."""
    ottla("topic", "create", topic)
    with producing_from_a_pipe(broker.bootstrap, topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        until(lambda: ottla("topic", "consume", topic, "-e").out == "one\n", "the record is written")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == INTERRUPTED
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert f"1 record written to {topic}" in said
    assert "Traceback" not in said


def test_offsets_and_trim(ottla: Ottla, topic: str) -> None:
    """Where partitions begin and end, before and after the oldest records are deleted."""
    ottla("topic", "create", topic)
    ottla("topic", "produce", topic, "a", "b", "c")

    assert ottla("topic", "offsets", topic).rows == [[topic, "0", "0", "3", "3"]]
    trimmed = ottla("topic", "trim", topic, "--offset", "2", "--yes")
    assert (trimmed.code, trimmed.rows) == (0, [[f"{topic}-0", "trimmed"]])
    (item,) = ottla("topic", "offsets", topic, "--time", "-1h", "--format", "json").items
    assert item == {"topic": topic, "partition": 0, "start": 2, "end": 3, "records": 1, "at_time": 2}
    assert ottla("topic", "trim", topic, "--offset", "end").code == 2
    (item,) = ottla("topic", "trim", topic, "--offset", "end", "--yes", "--format", "json").items
    assert item == {"topic": topic, "partition": 0, "low_watermark": 3, "error": None}
