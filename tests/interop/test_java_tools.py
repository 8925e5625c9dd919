"""Apache Kafka's own tools: its Java clients talk to us, and its dump tool reads our files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import CODECS, Producing, Sent
from tests.interop.raw import RawConnection, retrying, stored_batches
from tests.kit.broker_process import BrokerProcess, MakeBroker, topic_name
from tests.kit.java_tools import TOOL_SECONDS_MAX, RunTool

PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
DUMP = "kafka.tools.DumpLogSegments"


def test_lines_go_from_the_console_producer_to_the_console_consumer(
    run_tool: RunTool, broker: BrokerProcess, topic: str
) -> None:
    """Java's producer, idempotent as it is by default, with keys and headers and lz4; and Java's consumer."""
    lines = [f"first:{number},second:two\tkey {number}\tvalue {number}" for number in range(100)]
    properties = ("parse.key=true", "parse.headers=true")
    options = [part for each in properties for part in ("--property", each)]
    at = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    run_tool(PRODUCER, *at, "--compression-codec", "lz4", *options, standard_input="\n".join(lines) + "\n")

    shown = [part for each in ("key", "headers", "offset") for part in ("--property", f"print.{each}=true")]
    limits = ("--max-messages", str(len(lines)), "--timeout-ms", str(TOOL_SECONDS_MAX * 1000))
    consumed = run_tool(CONSUMER, *at, "--partition", "0", "--offset", "earliest", *limits, *shown)

    assert consumed.splitlines() == [
        f"Offset:{number}\tfirst:{number},second:two\tkey {number}\tvalue {number}" for number in range(100)
    ]
    batches = stored_batches(broker.bootstrap, topic)
    assert {(batch.codec.name, batch.has_producer) for batch in batches} == {("LZ4", True)}
    values = [record.value for record in Confluent().consume(broker.bootstrap, topic, len(lines))]
    assert values == [b"value %d" % number for number in range(100)]


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_the_console_consumer_opens_what_the_broker_compressed(
    codec: str, run_tool: RunTool, broker: BrokerProcess
) -> None:
    """Java is strict about lz4 and snappy."""
    topic = topic_name()
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(topic, configs={"compression.type": codec}))
    values = [b"the same again and again %d" % (number % 3) for number in range(1000)]
    Confluent().produce(broker.bootstrap, topic, [Sent(value) for value in values], Producing(linger_ms=50))
    assert {batch.codec.config_name for batch in stored_batches(broker.bootstrap, topic)} == {codec}

    at = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest")
    limits = ("--max-messages", str(len(values)), "--timeout-ms", str(TOOL_SECONDS_MAX * 1000))
    assert run_tool(CONSUMER, *at, *limits).encode().splitlines() == values


def test_topics_are_made_and_described_with_kafka_topics(run_tool: RunTool, broker: BrokerProcess) -> None:
    """kafka-topics.sh and kafka-configs.sh, which use Java's admin client."""
    topic = topic_name()
    at = ("--bootstrap-server", broker.bootstrap)
    created = run_tool(
        TOPICS, *at, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=1234567"
    )
    assert f"Created topic {topic}" in created

    described = run_tool(TOPICS, *at, "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S+\s+PartitionCount: 2\s+ReplicationFactor: 1", described)
    assert "retention.ms=1234567" in described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 2

    entity = ("--entity-type", "topics", "--entity-name", topic)
    run_tool(CONFIGS, *at, "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete]")
    assert "cleanup.policy=compact,delete" in run_tool(CONFIGS, *at, "--describe", *entity)


def test_kafka_reads_the_files_of_a_log(run_tool: RunTool, make_broker: MakeBroker) -> None:
    """kafka-dump-log.sh finds every record in our segments, and nothing wrong with our indexes."""
    broker = make_broker("log.index.interval.bytes=100", "log.segment.bytes=4000")
    topic = topic_name()
    count = 0
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(topic))
    for codec in CODECS:
        records = [Sent(b"value %d" % number, b"key", (("codec", codec.encode()),)) for number in range(200)]
        how = Producing(codec=codec, idempotent=True, options=(("batch.num.messages", 20),))
        Confluent().produce(broker.bootstrap, topic, records, how)
        count += len(records)
    assert broker.stop() == 0

    folder = broker.partition_dir(topic)
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 1
    dumped = run_tool(DUMP, "--print-data-log", "--deep-iteration", "--files", ",".join(map(str, segments)))
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) .*payload: value", dumped, re.MULTILINE)]
    assert offsets == list(range(count))
    assert re.findall(r"isvalid: (\w+)", dumped)
    assert "isvalid: false" not in dumped

    _check_indexes(run_tool, folder)


def _check_indexes(run_tool: RunTool, folder: Path) -> None:
    offset_indexes = sorted(folder.glob("*.index"))
    time_indexes = sorted(folder.glob("*.timeindex"))
    assert any(index.stat().st_size for index in offset_indexes)
    checked = run_tool(DUMP, "--index-sanity-check", "--files", ",".join(map(str, offset_indexes)))
    assert checked.count("passed sanity check") == len(offset_indexes)
    both = ",".join(map(str, [*offset_indexes, *time_indexes]))
    verified = run_tool(DUMP, "--verify-index-only", "--files", both)
    for complaint in ("Mismatches", "not found", "out of order", "Non-consecutive", "Exception"):
        assert complaint not in verified
