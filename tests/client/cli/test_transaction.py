"""`ottla transaction` and what `ottla doctor` says of transactions, on Apache Kafka and on our broker.

Brokers do not verify here that a partition is part of a transaction. So a raw Produce leaves one open that no
coordinator knows: it hangs, as it did with brokers before Kafka 3.6.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from tests.client.cli.conftest import Ottla
from tests.interop.raw import PRODUCE_VERSION, RawConnection, one_record, produce_request
from tests.kit.broker_process import BrokerProcess
from tests.kit.java_tools import RunTool
from tests.kit.kafka_process import new_kafka
from tests.kit.waiting import DEADLINE_S, until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.results import OffsetSpec
from ottla.client.errors import TransactionalIdNotFoundError
from ottla.client.types import TopicPartition
from ottla.protocol.api import Api
from ottla.protocol.messages.produce import ProduceRequest
from ottla.sync import Admin

TOOL = "org.apache.kafka.tools.TransactionsCommand"
OPTIONS = ("transaction.partition.verification.enable=false", "transaction.state.log.num.partitions=3")
LISTED = {"transactional_id", "producer_id", "state", "coordinator"}
DESCRIBED = {*LISTED, "producer_epoch", "timeout_ms", "start_time_ms", "partitions", "error"}
PRODUCERS = {
    *("topic", "partition", "producer_id", "producer_epoch", "last_sequence", "last_timestamp"),
    *("coordinator_epoch", "transaction_start_offset"),
}
HANGING = {
    *("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset", "last_timestamp"),
    *("is_hanging", "transactional_id", "state", "start_time_ms", "timeout_ms", "error"),
}


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka-3.9", marks=pytest.mark.long)])
def broker(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker that is alone in its cluster; commands of this file are for it."""
    folder = tmp_path_factory.mktemp("broker")
    if request.param == "ottla":
        process = BrokerProcess(folder, ZooKeeper(zookeeper_server).connect, *OPTIONS)
    else:
        process = new_kafka(request.param, folder, zookeeper_server, *OPTIONS)
    process.start_on_free_ports()
    yield process
    process.kill()


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """A blocking admin client."""
    with Admin(bootstrap_servers=broker.bootstrap) as started:
        yield started


class Writer:
    """A transactional producer of librdkafka with an open transaction in both partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.transactional_id = f"id-{uuid4().hex}"
        self.topic = topic
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": 300_000,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(DEADLINE_S)
        self.begin()

    def begin(self) -> None:
        """Begin a transaction with a record in each partition."""
        self.producer.begin_transaction()
        for partition in (0, 1):
            self.producer.produce(self.topic, b"value", partition=partition)
        assert self.producer.flush(DEADLINE_S) == 0

    def commit(self) -> None:
        """Commit the transaction."""
        self.producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        """Abort what is still open, for the sake of tests that look at the whole cluster."""
        with suppress(KafkaException):
            self.producer.abort_transaction(DEADLINE_S)


@pytest.fixture
def two_partitions(ottla: Ottla, topic: str) -> str:
    """A topic with two partitions."""
    assert ottla("topic", "create", topic, "-p", "2").code == 0
    return topic


@pytest.fixture
def writer(broker: BrokerProcess, two_partitions: str) -> Iterator[Writer]:
    """A producer with an open transaction in the topic."""
    made = Writer(broker.bootstrap, two_partitions)
    yield made
    made.abort()


def hang(broker: BrokerProcess, topic: str, producer_id: int, sequence: int = 0) -> int:
    """Write one record of long ago, in a transaction that no coordinator knows; return its offset."""
    batch = one_record(
        b"hanging", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    request = ProduceRequest(
        transactional_id="unknown",
        acks=-1,
        timeout_ms=30_000,
        topic_data=produce_request(topic, batch).topic_data,
    )
    with RawConnection(broker.bootstrap) as connection:
        response = connection.request(Api.PRODUCE, PRODUCE_VERSION, request)
    row = response.responses[0].partition_responses[0]
    assert row.error_code == 0
    offset: int = row.base_offset
    return offset


@pytest.fixture
def producer_id() -> int:
    """A producer id that no transactional id has; the tests share the broker, not the ids."""
    return 1_000_000_000 + uuid4().int % 1_000_000_000


@pytest.fixture
def hanging(ottla: Ottla, broker: BrokerProcess, two_partitions: str, producer_id: int) -> Iterator[str]:
    """A topic whose first partition has a transaction that hangs, from offset 3; it is gone after the test."""
    ottla("topic", "produce", two_partitions, "a", "b", "c", "-p", "0")
    assert hang(broker, two_partitions, producer_id) == 3
    yield two_partitions
    line = ("--producer-id", str(producer_id), "--producer-epoch", "0", "--coordinator-epoch", "0", "--yes")
    ottla("transaction", "abort", f"{two_partitions}:0", *line)


def offsets(admin: Admin, topic: str) -> tuple[int, int]:
    """Return the last stable offset and the high watermark of the first partition."""
    wanted = {TopicPartition(topic, 0): OffsetSpec.LATEST}
    (stable,) = admin.list_offsets(wanted, isolation_level="read_committed")
    (end,) = admin.list_offsets(wanted)
    return stable.offset, end.offset


def table(text: str) -> list[dict[str, str]]:
    """Read a table of Kafka's tool."""
    headings, *rows = (line.split() for line in text.splitlines() if line.strip())
    return [dict(zip(headings, row, strict=False)) for row in rows]


def formats(ottla: Ottla, *line: str) -> list[dict[str, Any]]:
    """Return the items of a command as JSON, which are the same as YAML."""
    as_json = ottla(*line, "--format", "json")
    assert as_json.code == 0, as_json.err
    assert yaml.safe_load(ottla(*line, "--format", "yaml").out) == as_json.items
    return as_json.items


def test_an_open_transaction_is_listed_until_it_ends(ottla: Ottla, writer: Writer) -> None:
    """By its state, its age and its producer id."""
    (item,) = [
        each for each in formats(ottla, "transaction", "list") if each["transactional_id"] == writer.transactional_id
    ]
    assert (set(item), item["state"], item["coordinator"]) == (LISTED, "Ongoing", 1)
    producer_id = str(item["producer_id"])
    row = [writer.transactional_id, producer_id, "Ongoing", "1"]
    shown = ottla("transaction", "list", "--state", "ongoing", "--producer-id", producer_id)
    assert shown.out.splitlines()[0].split() == ["TRANSACTIONAL-ID", "PRODUCER-ID", "STATE", "COORDINATOR"]
    assert shown.rows == [row]
    assert row in ottla("transaction", "list", "--duration-ms", "0").rows
    assert row not in ottla("transaction", "list", "--older-than", "1h").rows
    assert row not in ottla("transaction", "list", "--state", "Empty", "--state", "PrepareAbort").rows

    writer.commit()

    def is_committed() -> bool:
        return [*row[:2], "CompleteCommit", "1"] in ottla("transaction", "list").rows

    until(is_committed, "the transaction is committed")
    assert not [each for each in ottla("transaction", "list", "--duration-ms", "0").rows if each[1] == producer_id]


def test_a_transaction_is_described(ottla: Ottla, admin: Admin, writer: Writer) -> None:
    """With its partitions, until they have their markers; what does not exist is told with a next step."""
    name, topic = writer.transactional_id, writer.topic
    (item,) = formats(ottla, "transaction", "describe", name)
    assert (set(item), item["state"], item["timeout_ms"], item["error"]) == (DESCRIBED, "Ongoing", 300_000, None)
    assert item["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert abs(item["start_time_ms"] - time.time() * 1000) < 300_000

    shown = ottla("transaction", "describe", name, "missing")
    assert (shown.code, shown.err.count("\n")) == (1, 2)
    assert shown.err.startswith("Error: there is no transactional id 'missing'. ")
    assert shown.err.endswith("`ottla transaction list` shows the transactional ids that exist.\n")
    assert f"transactional id:  {name}\nstate:             Ongoing\n" in shown.out
    assert "\ntimeout:           300000 ms\nbegan:             20" in shown.out
    assert shown.rows[-2:] == [["TOPIC", "PARTITIONS"], [topic, "0,1"]]

    writer.abort()
    until(lambda: admin.describe_transactions([name])[0].state == "CompleteAbort", "the transaction is aborted")
    assert admin.describe_transactions([name])[0].partitions == ()
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions(["missing"])


def test_producers_of_partitions_are_shown(ottla: Ottla, writer: Writer) -> None:
    """With the offset at which their transactions start, as long as these are open."""
    topic = writer.topic
    items = formats(ottla, "transaction", "producers", topic)
    assert [set(item) for item in items] == [PRODUCERS, PRODUCERS]
    assert [(item["partition"], item["transaction_start_offset"]) for item in items] == [(0, 0), (1, 0)]
    assert items[0]["coordinator_epoch"] is None

    shown = ottla("transaction", "producers", f"{topic}:1", "--broker-id", "1")
    assert shown.out.splitlines()[0].split()[:4] == ["PARTITION", "PRODUCER-ID", "EPOCH", "SEQUENCE"]
    (row,) = shown.rows
    assert row[:4] == ["1", str(items[0]["producer_id"]), "0", "0"]
    assert row[5:] == ["ago", "-", "0"]
    assert max(map(len, shown.out.splitlines())) <= 80

    writer.commit()

    def is_ended() -> bool:
        ended = ottla("transaction", "producers", f"{topic}:1", "--format", "json").items[0]
        return ended["transaction_start_offset"] is None and ended["coordinator_epoch"] == 0

    until(is_ended, "the transaction has ended in the partition")


def test_a_transaction_that_hangs_is_found_and_aborted(
    ottla: Ottla, broker: BrokerProcess, admin: Admin, hanging: str, producer_id: int
) -> None:
    """Its records stay hidden; what was written after it can be read."""
    ottla("topic", "produce", hanging, "d", "-p", "0")
    assert offsets(admin, hanging) == (3, 5)

    (item,) = formats(ottla, "transaction", "find-hanging", "--topic", hanging)
    assert set(item) == HANGING
    assert (item["partition"], item["start_offset"], item["transactional_id"]) == (0, 3, None)
    found = ottla("transaction", "find-hanging", "--broker-id", "1")
    assert found.out.split()[:3] == ["PARTITION", "PRODUCER-ID", "EPOCH"]
    assert [f"{hanging}:0", str(producer_id), "0", "3"] in [row[:4] for row in found.rows]
    assert "To end the first one: ottla transaction abort topic-" in found.err
    none = ottla("transaction", "find-hanging", "-t", hanging, "--max-transaction-timeout", "99999d")
    assert (none.code, none.out, none.err) == (0, "", "No transaction hangs.\n")

    place = f"{hanging}:0"
    assert "repeat the command with --yes" in ottla("transaction", "abort", place, "--start-offset", "3").err
    wrong = ottla("transaction", "abort", place, "--start-offset", "4", "--yes")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err == (
        f"Error: {hanging}-0 has no open transaction that starts at offset 4; "
        f"`ottla transaction producers {place}` shows what is open.\n"
    )
    assert offsets(admin, hanging) == (3, 5)
    aborted = ottla("transaction", "abort", place, "--start-offset", "3", "--yes")
    assert (aborted.code, aborted.rows) == (0, [[f"{hanging}-0", "aborted"]])

    assert offsets(admin, hanging) == (6, 6)
    assert ottla("transaction", "find-hanging", "-t", hanging).err == "No transaction hangs.\n"
    read = ottla("topic", "consume", hanging, "--exit")
    assert read.out == "a\nb\nc\nd\n"


def test_a_transaction_is_aborted_by_its_producer(
    ottla: Ottla, broker: BrokerProcess, admin: Admin, hanging: str
) -> None:
    """Looked up, or with all numbers given. An older epoch of the coordinator is refused."""
    items = ottla("transaction", "producers", f"{hanging}:0", "--format", "json").items
    (item,) = [item for item in items if item["transaction_start_offset"] is not None]
    line = ("transaction", "abort", f"{hanging}:0", "--producer-id", str(item["producer_id"]), "--yes")
    other = ottla(*line, "--producer-epoch", "7")
    assert (other.code, "of producer" in other.err, "with epoch 7" in other.err) == (1, True, True)
    (outcome,) = ottla(*line, "--coordinator-epoch", "5", "--format", "json").items
    assert outcome == {"topic": hanging, "partition": 0, "error": None}
    assert offsets(admin, hanging) == (5, 5)

    hang(broker, hanging, item["producer_id"], sequence=1)
    given = (*line, "--producer-epoch", "0", "--coordinator-epoch")
    refused = ottla(*given, "4", "--format", "json")
    assert (refused.code, refused.items[0]["error"]["name"]) == (1, "TRANSACTION_COORDINATOR_FENCED")
    assert offsets(admin, hanging) == (5, 6)
    assert ottla(*given, "5").rows == [[f"{hanging}-0", "aborted"]]
    assert offsets(admin, hanging) == (7, 7)


def test_a_transaction_that_its_coordinator_will_end_is_not_torn(ottla: Ottla, admin: Admin, writer: Writer) -> None:
    """It does not hang, however long it lasts. Abort wants --force, and names the command that aborts all of it."""
    place, name = f"{writer.topic}:0", writer.transactional_id
    found = ottla("transaction", "find-hanging", "-t", writer.topic, "--max-transaction-timeout", "0s")
    assert (found.code, found.err) == (0, "No transaction hangs.\n")
    refused = ottla("transaction", "abort", place, "--start-offset", "0", "--yes")
    assert refused.code == 1
    assert f"knows this transaction of '{name}' (Ongoing)" in refused.err
    assert f"`ottla transaction fence {name}` aborts it at once" in refused.err
    assert offsets(admin, writer.topic) == (0, 1)

    fenced = ottla("transaction", "fence", name, "--yes")
    assert (fenced.code, fenced.rows) == (0, [[name, "fenced"]])
    assert offsets(admin, writer.topic) == (2, 2)
    with pytest.raises(KafkaException) as raised:
        writer.commit()
    assert raised.value.args[0].fatal()


def test_a_part_of_a_transaction_is_aborted_only_by_force(ottla: Ottla, admin: Admin, writer: Writer) -> None:
    """For the case that nothing else helps."""
    forced = ottla("transaction", "abort", f"{writer.topic}:0", "--start-offset", "0", "--force", "--yes")
    assert (forced.code, offsets(admin, writer.topic)) == (0, (2, 2))


def test_ids_are_fenced_one_by_one(ottla: Ottla, writer: Writer) -> None:
    """With a new epoch for each; an id that does not exist is not made by a typo."""
    name = writer.transactional_id
    (before,) = ottla("transaction", "describe", name, "--format", "json").items
    assert ottla("transaction", "fence", name).code == 2
    missing = ottla("transaction", "fence", name, "missing", "--yes")
    assert (missing.code, "there is no transactional id 'missing'" in missing.err) == (1, True)
    (item,) = ottla("transaction", "fence", name, "--yes", "--format", "json").items
    assert item["transactional_id"] == name
    assert (item["producer_id"], item["error"]) == (before["producer_id"], None)
    assert item["producer_epoch"] > before["producer_epoch"]


def test_the_tool_of_kafka_says_the_same(
    ottla: Ottla, broker: BrokerProcess, run_tool: RunTool, hanging: str, writer: Writer, producer_id: int
) -> None:
    """kafka-transactions.sh: list, describe, describe-producers and find-hanging."""

    def tool(*line: str) -> list[dict[str, str]]:
        return table(run_tool(TOOL, "--bootstrap-server", broker.bootstrap, *line))

    name = writer.transactional_id
    theirs = {
        (row["TransactionalId"], row["ProducerId"], row["TransactionState"], row["Coordinator"]) for row in tool("list")
    }
    assert theirs == {tuple(row) for row in ottla("transaction", "list").rows}

    (described,) = tool("describe", "--transactional-id", name)
    (ours,) = ottla("transaction", "describe", name, "--format", "json").items
    assert (described["ProducerId"], described["ProducerEpoch"]) == (
        str(ours["producer_id"]),
        str(ours["producer_epoch"]),
    )
    assert described["CurrentTransactionStartTimeMs"] == str(ours["start_time_ms"])
    assert {*described["TopicPartitions"].split(",")} == {f"{hanging}-0", f"{hanging}-1"}

    names = {
        "ProducerId": "producer_id",
        "ProducerEpoch": "producer_epoch",
        "LastSequence": "last_sequence",
        "LastTimestamp": "last_timestamp",
    }
    producers = tool("describe-producers", "--topic", hanging, "--partition", "0")
    items = ottla("transaction", "producers", f"{hanging}:0", "--format", "json").items
    assert sorted([row[each] for each in names] for row in producers) == sorted(
        [str(item[each]) for each in names.values()] for item in items
    )

    (found,) = tool("find-hanging", "--topic", hanging)
    assert (found["Topic"], found["ProducerId"], found["StartOffset"]) == (hanging, str(producer_id), "3")


def test_doctor_names_what_holds_back_readers(ottla: Ottla, hanging: str, writer: Writer, producer_id: int) -> None:
    """With the command that frees them; an open transaction that is not overdue is none of them."""
    shown = ottla("doctor", "--format", "json")
    (item,) = [each for each in shown.items if hanging in each["found"]]
    assert (shown.code, item["status"]) == (2, "BROKEN")
    assert item["found"].startswith(f"one of producer {producer_id} hangs in {hanging}-0 at offset 3, last record ")
    assert "no transactional id has this producer" in item["advice"]
    assert item["change"] == f"ottla transaction abort {hanging}:0 --start-offset 3"
    assert f"\n   {item['change']}\n" in ottla("doctor").out

    assert ottla(*item["change"].split()[1:], "--yes").code == 0

    (item,) = [each for each in ottla("doctor", "--format", "json").items if each["check"] == "transactions"]
    assert (item["status"], item["found"]) == ("ok", f"open in {hanging}-0, {hanging}-1; none overdue")
    writer.abort()

    def is_well() -> bool:
        findings = {each["check"]: each["found"] for each in ottla("doctor", "--format", "json").items}
        return bool(findings["transactions"] == "none holds back consumers of committed records")

    until(is_well, "nothing is open any more")


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("list --state Open", "--state takes Empty, Ongoing, "),
        ("list --older-than 5", "'5' is not a time span: write 90s, 15m, 2h or 1d"),
        ("list --older-than 5m --duration-ms 1", "Use either --older-than or --duration-ms, not both."),
        ("producers orders:", "'orders:' is not a partition: write TOPIC:PARTITION, such as orders:0."),
        ("producers :0", "':0' is not a partition"),
        ("find-hanging --max-transaction-timeout 15", "'15' is not a time span"),
        ("abort orders --start-offset 1", "Which partition? Write orders:0, for example."),
        ("abort orders:0", "Which transaction? Give either --start-offset or --producer-id."),
        ("abort orders:0 --start-offset 1 --producer-id 2", "Which transaction?"),
    ],
)
def test_a_wrong_line_is_refused_before_anybody_is_asked(ottla: Ottla, line: str, because: str) -> None:
    """With exit code 2, and in one sentence."""
    refused = ottla("transaction", *line.split(), bootstrap="127.0.0.1:1")
    assert (refused.code, refused.out, because in refused.err, refused.err.count("\n")) == (2, "", True, 1), refused.err


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("producers missing", "there is no topic 'missing'"),
        ("producers {topic}:2", "{topic} has no partition 2; it has 0 to 1"),
        ("producers {topic} --broker-id 9", "There is no broker 9; the live brokers are 1."),
        ("find-hanging --broker-id 9", "There is no broker 9; the live brokers are 1."),
        ("find-hanging --topic missing", "there is no topic 'missing'"),
        ("abort missing:0 --start-offset 1 --yes", "there is no topic 'missing'"),
        ("abort {topic}:2 --start-offset 1 --yes", "{topic} has no partition 2; it has 0 to 1"),
        ("abort {topic}:0 --producer-id 7 --yes", "{topic}-0 has no open transaction of producer 7; "),
    ],
)
def test_what_does_not_exist_is_told(ottla: Ottla, two_partitions: str, line: str, because: str) -> None:
    """With exit code 1, and nothing on standard output."""
    failed = ottla("transaction", *line.format(topic=two_partitions).split())
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith(f"Error: {because.format(topic=two_partitions)}"), failed.err
