"""The command line against Apache Kafka's own broker, where it can be had."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.client.cli.conftest import INTERRUPTED, Ottla, producing_from_a_pipe
from tests.client.clusters import DEADLINE_S
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of Kafka, alone in its cluster; it indexes every batch."""
    process = new_kafka(request.param, tmp_path_factory.mktemp("kafka"), zookeeper_server, "log.index.interval.bytes=0")
    process.start_on_free_ports()
    yield process
    process.kill()


def test_topics_groups_and_options(ottla: Ottla, kafka: BrokerProcess, topic: str) -> None:
    """All that the broker answers reads as ours does."""
    run = partial(ottla, bootstrap=kafka.bootstrap)
    group = f"group-{topic}"
    assert run("topic", "create", topic, "-p", "2", "-c", "retention.ms=5000000").code == 0
    assert run("topic", "produce", topic, "a", "b", "c", "-p", "1", "-z", "lz4").code == 0
    assert run("topic", "consume", topic, "-e").out == "a\nb\nc\n"
    assert run("topic", "offsets", topic).rows == [[topic, "0", "0", "0", "0"], [topic, "1", "0", "3", "3"]]
    assert "retention.ms = 5000000\n" in run("topic", "describe", topic).out

    assert run("group", "seek", group, "--to", "start", "-t", topic, "--yes").code == 0
    items = run("group", "lag", group, "--format", "json").items
    assert [(item["lag"], item["progress"]) for item in items] == [(0, "caught_up"), (3, "stopped")]
    assert group in {item["group_id"] for item in run("group", "list", "--format", "json").items}
    assert run("group", "delete", group, "--yes").code == 0
    assert run("group", "lag", group).code == 1

    assert run("topic", "trim", topic, "-o", "1", "-p", "1", "--yes").code == 0
    assert run("topic", "consume", topic, "-e").out == "b\nc\n"
    assert run("config", "unset", "topic", topic, "retention.ms").code == 0
    (item,) = run("config", "get", "topic", topic, "retention.ms", "--format", "json").items
    assert item["is_default"]
    assert run("topic", "add-partitions", topic, "--total", "3").code == 0
    assert run("partition", "elect", "--topic", topic).code == 0
    assert run("cluster", "health").code == 0
    assert run("check", "topic", topic).code == 0
    assert run("cluster", "api-versions").code == 0
    assert run("log", "dirs").code == 0
    alone = run("broker", "safe-to-stop", str(kafka.broker_id))
    # Other tests have transactions on this broker.
    assert (alone.code, "It is the only broker." in alone.out, "transactional ids:" in alone.out) == (
        (1, True, True)
    ), alone
    assert run("broker", "safe-to-stop", str(kafka.broker_id), "--allow-unreplicated").code == 0
    assert run("cluster", "balance", "--dry-run").code == 0
    assert "does not know drained brokers" in run("broker", "drain", str(kafka.broker_id), "--dry-run").err
    assert run("topic", "delete", topic, "--yes").code == 0


def test_a_run_is_one_transaction(ottla: Ottla, kafka: BrokerProcess, topic: str) -> None:
    """Committed at the end, aborted on an error; who wants to sees aborted records, too."""
    run = partial(ottla, bootstrap=kafka.bootstrap)
    consume = partial(run, "topic", "consume", topic, "-e")
    write = partial(run, "topic", "produce", topic, "--transactional-id", topic)
    assert run("topic", "create", topic).code == 0

    committed = write(stdin=b"a\nb\n")
    assert (committed.code, committed.err.rstrip().endswith("s, committed")) == (0, True)
    until(lambda: consume().out == "a\nb\n", "the records are visible")
    aborted = write("-K", ":", stdin=b"k:c\nd\n")
    assert (aborted.code, "aborted" in aborted.err, "between key and value" in aborted.err) == (1, True, True)
    assert [item["offset"] for item in write("e", "--format", "json").items]
    until(lambda: consume().out == "a\nb\ne\n", "the records are visible")

    everything = consume("--isolation", "read-uncommitted").out.splitlines()
    assert [value for value in everything if value != "c"] == ["a", "b", "e"]
    assert consume("--isolation", "read-committed", "-o", "2").out == "e\n"


def test_ctrl_c_aborts_the_transaction(ottla: Ottla, kafka: BrokerProcess, topic: str) -> None:
    """Its records stay out of sight, and the next run with the same id goes on."""
    run = partial(ottla, bootstrap=kafka.bootstrap)
    consume = partial(run, "topic", "consume", topic, "-e")
    assert run("topic", "create", topic).code == 0
    with producing_from_a_pipe(kafka.bootstrap, topic, "--transactional-id", topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        until(lambda: consume("--isolation", "read-uncommitted").out == "one\n", "the record is written")
        assert consume().out == ""
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == INTERRUPTED
        assert process.stderr is not None
        assert "s, aborted" in process.stderr.read().decode()
    assert run("topic", "produce", topic, "two", "--transactional-id", topic).code == 0
    until(lambda: consume().out == "two\n", "the record is visible")


def test_segments_of_kafka_are_read(ottla: Ottla, kafka: BrokerProcess, topic: str) -> None:
    """Its batches, its indexes, and its internal topics."""
    run = partial(ottla, bootstrap=kafka.bootstrap)
    run("topic", "create", topic)
    for value in "abc":
        run("topic", "produce", topic, value)
    folder = kafka.partition_dir(topic)
    (segment,) = folder.glob("*.log")

    dumped = run("log", "dump", str(segment), "--records", "--format", "json").items

    assert [item["content"][0]["value"] for item in dumped] == ["a", "b", "c"]
    assert [item["offset"] for item in run("log", "dump", str(segment.with_suffix(".index")), "--format", "json").items]
    verified = run("log", "verify", str(kafka.log_dir), "--format", "json")
    assert (verified.code, verified.err) == (0, "")


def test_doctor_files_of_topics_and_measurements(
    ottla: Ottla, kafka: BrokerProcess, tmp_path: Path, topic: str
) -> None:
    """The disk is that of the machine, and may be full; all else is well."""
    run = partial(ottla, bootstrap=kafka.bootstrap)
    file = tmp_path / "topics.toml"
    file.write_text(f'[[topics]]\nname = "{topic}"\npartitions = 2\nconfigs = {{"retention.ms" = 5000000}}\n')
    assert run("apply", "-f", str(file)).rows[0][1] == "create"
    # A broker of Kafka 4 hears of the topic from its controller, a moment after the client.
    until(lambda: run("topic", "describe", topic).code == 0, "the broker knows the topic")
    assert run("apply", "-f", str(file)).rows[0][1] == "nothing"
    assert run("bench", "produce", topic, "-n", "100").rows[0][0] == "100"
    assert run("bench", "consume", topic).rows[0][0] == "100"
    assert run("bench", "e2e", topic, "-n", "10").rows[0][0] == "10"
    items = run("doctor", "--format", "json").items
    assert {item["status"] for item in items[:-1]} == {"ok"}


def test_doctor_knows_what_kafka_should_advertise(
    ottla: Ottla, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """By the broker's own options."""
    advertised = "advertised.listeners=PLAINTEXT://broker.invalid:9092"
    broken = new_kafka("kafka-3.9", tmp_path / "kafka", zookeeper_server, advertised)
    broken.start_on_free_ports()
    try:
        shown = ottla("doctor", bootstrap=broken.bootstrap)
    finally:
        broken.kill()
    assert shown.code == 2
    assert f"   advertised.listeners=PLAINTEXT://{broken.bootstrap}\n" in shown.out
