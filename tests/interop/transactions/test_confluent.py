"""Transactions with confluent-kafka, on our broker as on Kafka's."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from tests.interop.clients import confluent
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import Producing, Sent
from tests.interop.conftest import CreateTopic
from tests.interop.transactions.librdkafka import (
    abort,
    api,
    closed,
    commit,
    end,
    producer,
    read,
    refused,
    send,
    wait_for_end,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import DEADLINE_S, until

# The least that librdkafka allows.
SHORT_MS = 1000
# What a producer may do next that has a transaction open.
STEPS = ["produce", "commit", *(pytest.param(step, marks=pytest.mark.long) for step in ("abort", "offsets"))]
COPIED = 60


# What readers see


def test_committed_records_are_read_and_aborted_ones_only_by_who_wants_them(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Transactions of one producer, with plain records between them."""
    with producer(broker.bootstrap, transactional_id) as client:
        commit(client, topic, b"a", b"b")
        Confluent().produce(broker.bootstrap, topic, [Sent(b"plain")], Producing(idempotent=True))
        abort(client, topic, b"c", b"d")
        commit(client, topic, b"e")
        abort(client, topic, b"f")

    assert read(broker.bootstrap, topic) == [b"a", b"b", b"plain", b"e"]
    assert read(broker.bootstrap, topic, "read_uncommitted") == [b"a", b"b", b"plain", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_transaction_spans_topics_partitions_and_batches(
    codec: str, broker: BrokerProcess, create_topic: CreateTopic, transactional_id: str
) -> None:
    """All of it is there, or nothing, however it is compressed."""
    places = [(create_topic(partitions=2), partition) for partition in (0, 1)] + [(create_topic(), 0)]
    options = {"compression_type": codec, "batch_num_messages": 10}
    with producer(broker.bootstrap, transactional_id, **options) as client:
        for name in (b"kept", b"dropped", b"also kept"):
            client.begin_transaction()
            for number in range(50):
                for topic, partition in places:
                    client.produce(topic, b"%b, the same again and again, %d" % (name, number), partition=partition)
            if name == b"dropped":
                assert client.flush(DEADLINE_S) == 0
                client.abort_transaction(DEADLINE_S)
            else:
                client.commit_transaction(DEADLINE_S)

    expected = [
        b"%b, the same again and again, %d" % (name, number) for name in (b"kept", b"also kept") for number in range(50)
    ]
    for topic, partition in places:
        assert read(broker.bootstrap, topic, partition=partition) == expected
        assert len(read(broker.bootstrap, topic, "read_uncommitted", partition)) == 150


def test_producers_take_turns_in_one_partition(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """Each transaction has its own outcome, in whatever order they begin, write and end."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(producer(broker.bootstrap, f"{transactional_id}-{number}")) for number in range(4)
        ]
        for turn in range(3):
            for client in clients:
                client.begin_transaction()
            for step in range(3):
                for number, client in enumerate(clients):
                    send(client, topic, b"%d-%d-%d" % (turn, number, step))
            # The first to begin is the last to end, and ends otherwise in every turn.
            for number, client in reversed([*enumerate(clients)]):
                if (number + turn) % 2:
                    client.commit_transaction(DEADLINE_S)
                else:
                    client.abort_transaction(DEADLINE_S)

    everything = [(turn, number, step) for turn in range(3) for step in range(3) for number in range(4)]
    assert read(broker.bootstrap, topic, "read_uncommitted") == [b"%d-%d-%d" % each for each in everything]
    assert read(broker.bootstrap, topic) == [b"%d-%d-%d" % each for each in everything if (each[0] + each[1]) % 2]


def test_an_open_transaction_holds_readers_back(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """Also from what others wrote after its first record, until it has ended."""
    with producer(broker.bootstrap, transactional_id) as client:
        Confluent().produce(broker.bootstrap, topic, [Sent(b"before")])
        client.begin_transaction()
        send(client, topic, b"open")
        Confluent().produce(broker.bootstrap, topic, [Sent(b"after")])
        assert read(broker.bootstrap, topic, has_open_transactions=True) == [b"before"]
        everything = read(broker.bootstrap, topic, "read_uncommitted", has_open_transactions=True)
        assert everything == [b"before", b"open", b"after"]

        with confluent.consumer(broker.bootstrap, isolation_level="read_committed") as reader:
            reader.assign([TopicPartition(topic, 0, 1)])
            assert reader.consume(1, 0.2) == []
            client.commit_transaction(DEADLINE_S)
            assert [each.value for each in confluent.receive(reader, 2)] == [b"open", b"after"]


@pytest.mark.parametrize("outcome", ["commit", "abort", pytest.param("timeout", marks=pytest.mark.long)])
def test_a_reader_that_waits_is_woken_by_the_end_of_a_transaction(
    outcome: str, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """However it ends, and however long the reader would wait for the records behind it."""
    forever = {"fetch_wait_max_ms": int(DEADLINE_S * 2000), "socket_timeout_ms": 300_000}
    with (
        producer(broker.bootstrap, transactional_id, transaction_timeout_ms=SHORT_MS) as client,
        confluent.consumer(broker.bootstrap, isolation_level="read_committed", **forever) as reader,
    ):
        client.begin_transaction()
        send(client, topic, b"in it")
        Confluent().produce(broker.bootstrap, topic, [Sent(b"behind it")])
        reader.assign([TopicPartition(topic, 0, 0)])
        assert reader.consume(1, 0.2) == []
        if outcome == "commit":
            client.commit_transaction(DEADLINE_S)
        elif outcome == "abort":
            client.abort_transaction(DEADLINE_S)
        expected = [b"in it", b"behind it"] if outcome == "commit" else [b"behind it"]
        assert [each.value for each in confluent.receive(reader, len(expected))] == expected


def test_watermarks_and_lag_are_those_of_the_reader(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """Readers of committed records see the last stable offset as the end, and are behind by what comes before it."""
    with producer(broker.bootstrap, transactional_id) as client:
        commit(client, topic, b"a", b"b", b"c")
        client.begin_transaction()
        send(client, topic, b"d", b"e")
        # Three records and a marker, then two records of the open transaction.
        assert (end(broker.bootstrap, topic), end(broker.bootstrap, topic, "read_uncommitted")) == (4, 6)
        assert _watermarks(broker, topic, "read_committed") == (0, 4)
        assert _watermarks(broker, topic, "read_uncommitted") == (0, 6)
        assert _lag(broker, topic, "read_committed") == {"consumer_lag": 3, "ls_offset": 4, "hi_offset": 6}
        assert _lag(broker, topic, "read_uncommitted") == {"consumer_lag": 5, "ls_offset": 6, "hi_offset": 6}

        client.abort_transaction(DEADLINE_S)
        wait_for_end(broker.bootstrap, topic, 7)
        assert _lag(broker, topic, "read_committed") == {"consumer_lag": 6, "ls_offset": 7, "hi_offset": 7}


def _watermarks(broker: BrokerProcess, topic: str, isolation: str) -> tuple[int, int]:
    with confluent.consumer(broker.bootstrap, isolation_level=isolation) as client:
        found: tuple[int, int] = client.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
        return found


def _lag(broker: BrokerProcess, topic: str, isolation: str) -> dict[str, int]:
    """Return what librdkafka's statistics say of a reader that has committed the first record and no more."""
    told: list[dict[str, Any]] = []

    def note(statistics: str) -> None:
        partitions = json.loads(statistics)["topics"].get(topic, {}).get("partitions", {})
        told.append(partitions.get("0", {}))

    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"lag-{topic}-{isolation}",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "statistics.interval.ms": 20,
        "stats_cb": note,
    }
    with closing(Consumer(settings)) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        client.commit(message=until(lambda: client.poll(1.0), "the first record"), asynchronous=False)
        told.clear()
        until(lambda: told and told[-1]["consumer_lag"] >= 0, "a lag", meanwhile=lambda: client.poll(0.05))
    return {name: told[-1][name] for name in ("consumer_lag", "ls_offset", "hi_offset")}


# Ends


def test_empty_transactions_end_and_write_nothing(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """And the producer goes on after them."""
    with producer(broker.bootstrap, transactional_id) as client:
        for _ in range(2):
            client.begin_transaction()
            client.commit_transaction(DEADLINE_S)
            client.begin_transaction()
            client.abort_transaction(DEADLINE_S)
        commit(client, topic, b"a")

    assert read(broker.bootstrap, topic) == [b"a"]
    assert end(broker.bootstrap, topic) == 2


def test_an_abort_drops_what_is_still_in_the_queue(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """Some of it was sent, some was not."""
    errors: list[KafkaError | None] = []
    with producer(broker.bootstrap, transactional_id, linger_ms=30_000) as client:
        client.begin_transaction()
        send(client, topic, b"sent")
        client.produce(topic, b"not sent", partition=0, on_delivery=lambda error, _: errors.append(error))
        client.abort_transaction(DEADLINE_S)
        assert [error.code() for error in errors if error is not None] == [KafkaError._PURGE_QUEUE]
        commit(client, topic, b"next")

    assert read(broker.bootstrap, topic) == [b"next"]


def test_what_is_not_allowed_is_refused(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """Calls out of order by the client itself, too long a timeout by the broker; the producer goes on after both."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    with closed(Producer(settings)) as client:
        with refused(KafkaError._STATE):
            client.begin_transaction()
        client.init_transactions(DEADLINE_S)
        with refused(KafkaError._STATE):
            client.produce(topic, b"outside")
        with refused(KafkaError._STATE):
            client.commit_transaction(DEADLINE_S)
        with refused(KafkaError._STATE):
            client.abort_transaction(DEADLINE_S)
        with confluent.consumer(broker.bootstrap) as reader, refused(KafkaError._STATE):
            client.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], reader.consumer_group_metadata())
        client.begin_transaction()
        with refused(KafkaError._STATE):
            client.begin_transaction()
        send(client, topic, b"inside")
        client.commit_transaction(DEADLINE_S)
    assert read(broker.bootstrap, topic) == [b"inside"]

    too_long = {**settings, "transaction.timeout.ms": 900_001}
    with closed(Producer(too_long)) as client, refused(KafkaError.INVALID_TRANSACTION_TIMEOUT, is_fatal=True):
        client.init_transactions(DEADLINE_S)


def test_a_topic_that_is_not_for_producers_spoils_the_transaction_but_not_the_producer(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Nobody may write to an internal topic in a transaction: it must be aborted, and the next one succeeds."""
    with producer(broker.bootstrap, transactional_id) as client:
        client.begin_transaction()
        send(client, topic, b"a")
        client.produce("__transaction_state", b"b", partition=0)
        with refused(KafkaError.TOPIC_AUTHORIZATION_FAILED, requires_abort=True):
            client.commit_transaction(DEADLINE_S)
        client.abort_transaction(DEADLINE_S)
        commit(client, topic, b"c")

    assert read(broker.bootstrap, topic) == [b"c"]


def test_a_record_that_times_out_spoils_the_transaction_but_not_the_producer(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Nobody knows whether it was written. After the abort the producer goes on with another epoch (KIP-360)."""
    errors: list[KafkaError | None] = []
    with producer(broker.bootstrap, transactional_id, message_timeout_ms=SHORT_MS) as client:
        client.begin_transaction()
        send(client, topic, b"a")
        broker.pause()
        try:
            client.produce(topic, b"b", partition=0, on_delivery=lambda error, _: errors.append(error))
            until(lambda: errors, "the record times out", meanwhile=lambda: client.poll(0.05))
        finally:
            broker.resume()
        assert [error and error.code() for error in errors] == [KafkaError._MSG_TIMED_OUT]
        # The second is librdkafka's word if the record timed out before it was sent.
        with refused(KafkaError._TIMED_OUT, KafkaError._INCONSISTENT, requires_abort=True):
            client.commit_transaction(DEADLINE_S)
        client.abort_transaction(DEADLINE_S)
        commit(client, topic, b"c")

    assert read(broker.bootstrap, topic) == [b"c"]


def test_a_topic_that_is_deleted_does_not_hold_the_transaction_up(
    broker: BrokerProcess, create_topic: CreateTopic, transactional_id: str
) -> None:
    """It is committed where it still can be, and the next one begins."""
    kept, deleted = create_topic(), create_topic()
    with (
        producer(broker.bootstrap, transactional_id) as client,
        api.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
    ):
        client.begin_transaction()
        send(client, kept, b"a")
        send(client, deleted, b"a")
        admin.delete_topics([deleted])[deleted].result(DEADLINE_S)
        client.commit_transaction(DEADLINE_S)
        commit(client, kept, b"b")

    assert read(broker.bootstrap, kept) == [b"a", b"b"]


# Fencing


@pytest.mark.parametrize("step", STEPS)
def test_a_second_instance_fences_the_first(
    step: str, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """What the first has begun is aborted before the second begins, and whatever it does next is fatal for it."""
    with producer(broker.bootstrap, transactional_id) as first:
        commit(first, topic, b"a")
        first.begin_transaction()
        send(first, topic, b"b")
        with producer(broker.bootstrap, transactional_id) as second:
            # The abort is over when the second is ready.
            assert end(broker.bootstrap, topic) == end(broker.bootstrap, topic, "read_uncommitted") == 4
            with refused(KafkaError._FENCED, is_fatal=True):
                _do(step, first, broker, topic)
            commit(second, topic, b"c")

    assert read(broker.bootstrap, topic) == [b"a", b"c"]
    assert b"zombie" not in read(broker.bootstrap, topic, "read_uncommitted")


def test_an_instance_that_was_fenced_before_it_began_cannot_begin(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """It learns so with its first record."""
    with producer(broker.bootstrap, transactional_id) as first, producer(broker.bootstrap, transactional_id) as second:
        first.begin_transaction()
        first.produce(topic, b"zombie", partition=0)
        with refused(KafkaError._FENCED, is_fatal=True):
            first.commit_transaction(DEADLINE_S)
        commit(second, topic, b"a")

    assert read(broker.bootstrap, topic, "read_uncommitted") == [b"a"]


@pytest.mark.parametrize("step", STEPS)
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    step: str, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    """Readers go on without it; another instance may go on with the id."""
    with producer(broker.bootstrap, transactional_id, transaction_timeout_ms=SHORT_MS) as client:
        client.begin_transaction()
        send(client, topic, b"too late")
        wait_for_end(broker.bootstrap, topic, 2)
        with refused(KafkaError._FENCED, is_fatal=True):
            _do(step, client, broker, topic)
    with producer(broker.bootstrap, transactional_id) as client:
        commit(client, topic, b"next")

    assert read(broker.bootstrap, topic) == [b"next"]
    assert read(broker.bootstrap, topic, "read_uncommitted") == [b"too late", b"next"]


def _do(step: str, client: Producer, broker: BrokerProcess, topic: str) -> None:
    """Do one thing with a producer that has a transaction open."""
    if step == "offsets":
        with confluent.consumer(broker.bootstrap, group_id=f"group-of-{topic}") as reader:
            client.send_offsets_to_transaction(
                [TopicPartition(topic, 0, 1)], reader.consumer_group_metadata(), DEADLINE_S
            )
    elif step == "abort":
        client.abort_transaction(DEADLINE_S)
    else:
        if step == "produce":
            client.produce(topic, b"zombie", partition=0)
        client.commit_transaction(DEADLINE_S)


# Offsets


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_are_copied_exactly_once(
    protocol: str, broker: BrokerProcess, create_topic: CreateTopic, transactional_id: str, group: str
) -> None:
    """Consume, transform and produce in transactions, of which some are aborted, and some are given up by a crash."""
    if protocol == "consumer" and type(broker) is not BrokerProcess:
        pytest.skip("brokers of Kafka have no groups of the new protocol with ZooKeeper")
    source, target = create_topic(partitions=2), create_topic()
    values = [b"%d" % number for number in range(COPIED)]
    for partition in (0, 1):
        Confluent().produce(
            broker.bootstrap, source, [Sent(value) for value in values[partition::2]], partition=partition
        )

    outcomes = iter(["commit", "abort", "commit", "crash", "abort", "crash"])
    with ExitStack() as crashed:
        is_done = False
        while not is_done:
            # Each one fences the one before it, which would abort its transaction if it were closed.
            writer = crashed.enter_context(producer(broker.bootstrap, transactional_id))
            with _member(broker, group, protocol) as reader:
                reader.subscribe([source])
                is_done = _copy(reader, writer, target, outcomes)

    assert _committed(broker, group, source, 2) == [COPIED // 2] * 2
    assert Counter(read(broker.bootstrap, target)) == Counter(b"copy of %b" % value for value in values)
    assert len(read(broker.bootstrap, target, "read_uncommitted")) > len(values)


def _copy(reader: Any, writer: Producer, target: str, outcomes: Iterator[str]) -> bool:
    """Copy ten records at a time; return whether that is done, not given up amid a transaction."""
    while messages := _next(reader):
        writer.begin_transaction()
        for message in messages:
            writer.produce(target, b"copy of %b" % message.value(), partition=0)
        positions = reader.position(reader.assignment())
        writer.send_offsets_to_transaction(
            [each for each in positions if each.offset >= 0], reader.consumer_group_metadata(), DEADLINE_S
        )
        outcome = next(outcomes, "commit")
        if outcome == "commit":
            writer.commit_transaction(DEADLINE_S)
        elif outcome == "abort":
            writer.abort_transaction(DEADLINE_S)
            for position in reader.committed(reader.assignment(), DEADLINE_S):
                reader.seek(TopicPartition(position.topic, position.partition, max(position.offset, 0)))
        else:
            assert writer.flush(DEADLINE_S) == 0
            return False
    return True


def _next(reader: Any) -> list[Any]:
    """Return the next ten records, or fewer at the end of both partitions."""
    messages: list[Any] = []

    def is_done() -> bool:
        read = sum(max(each.offset, 0) for each in reader.position(reader.assignment()))
        return len(messages) == 10 or read == COPIED

    def poll() -> None:
        message = reader.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)

    until(is_done, "records or their end", meanwhile=poll)
    return messages


def test_offsets_of_an_open_transaction_are_not_there_yet(
    broker: BrokerProcess, topic: str, transactional_id: str, group: str
) -> None:
    """Who reads committed records waits for the outcome; who does not sees what was committed before."""
    with producer(broker.bootstrap, transactional_id) as client, _member(broker, group) as reader:
        for number, (ends, expected) in enumerate((("commit", 1), ("abort", 1), ("commit", 3))):
            client.begin_transaction()
            metadata = reader.consumer_group_metadata()
            client.send_offsets_to_transaction([TopicPartition(topic, 0, number + 1)], metadata, DEADLINE_S)
            before = _committed(broker, group, topic, isolation="read_uncommitted")
            assert before == ([1] if number else [-1001])
            with refused(KafkaError._TIMED_OUT):
                reader.committed([TopicPartition(topic, 0)], 0.3)
            if ends == "commit":
                client.commit_transaction(DEADLINE_S)
            else:
                client.abort_transaction(DEADLINE_S)
            assert _committed(broker, group, topic) == [expected]


def test_a_member_of_an_earlier_generation_cannot_commit(
    broker: BrokerProcess, create_topic: CreateTopic, transactional_id: str, group: str
) -> None:
    """Its transaction must be aborted; with what the group knows of it now, the next one is committed."""
    topic = create_topic(partitions=2)
    with producer(broker.bootstrap, transactional_id) as client, _member(broker, group) as reader:
        reader.subscribe([topic])
        until(lambda: len(reader.assignment()) == 2, "all partitions", meanwhile=lambda: reader.poll(0.05))
        earlier = reader.consumer_group_metadata()
        with _member(broker, group) as other:
            other.subscribe([topic])

            def poll() -> None:
                reader.poll(0.05)
                other.poll(0.05)

            until(lambda: len(reader.assignment()) == len(other.assignment()) == 1, "half of them", meanwhile=poll)
            mine = reader.assignment()[0].partition
            wanted = [TopicPartition(topic, mine, 5)]
            client.begin_transaction()
            with refused(KafkaError.ILLEGAL_GENERATION, requires_abort=True):
                client.send_offsets_to_transaction(wanted, earlier, DEADLINE_S)
            client.abort_transaction(DEADLINE_S)
            client.begin_transaction()
            client.send_offsets_to_transaction(wanted, reader.consumer_group_metadata(), DEADLINE_S)
            client.commit_transaction(DEADLINE_S)
            gone = other.consumer_group_metadata()
        client.begin_transaction()
        with refused(KafkaError.UNKNOWN_MEMBER_ID, requires_abort=True):
            client.send_offsets_to_transaction([TopicPartition(topic, 1 - mine, 5)], gone, DEADLINE_S)
        client.abort_transaction(DEADLINE_S)

    committed = _committed(broker, group, topic, 2)
    assert (committed[mine], committed[1 - mine]) == (5, -1001)


def _member(broker: BrokerProcess, group: str, protocol: str = "classic") -> Any:
    """Give a consumer of a group that commits nothing by itself."""
    options = {"group_protocol": protocol, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    # In the new protocol that is for the broker to say.
    often = {"heartbeat_interval_ms": 300} if protocol == "classic" else {}
    return confluent.consumer(broker.bootstrap, group_id=group, **options, **often)


def _committed(
    broker: BrokerProcess, group: str, topic: str, partitions: int = 1, isolation: str = "read_committed"
) -> Sequence[int]:
    """Return what a group has committed; -1001 for nothing."""
    with confluent.consumer(broker.bootstrap, group_id=group, isolation_level=isolation) as client:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        return [found.offset for found in client.committed(wanted, DEADLINE_S)]


# Administration


def test_offsets_by_time_are_those_of_stable_records(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    """The admin client finds a record of an open transaction by its time only if it may be read."""
    # Later than any marker.
    soon_ms = int(time.time() * 1000) + 600_000
    with producer(broker.bootstrap, transactional_id) as client:
        commit(client, topic, b"a")
        client.begin_transaction()
        client.produce(topic, b"b", partition=0, timestamp=soon_ms)
        assert client.flush(DEADLINE_S) == 0
        assert _at(broker, topic, soon_ms, "READ_UNCOMMITTED") == 2
        assert _at(broker, topic, soon_ms, "READ_COMMITTED") == -1
        client.commit_transaction(DEADLINE_S)
        wait_for_end(broker.bootstrap, topic, 4)
        assert _at(broker, topic, soon_ms, "READ_COMMITTED") == 2


def _at(broker: BrokerProcess, topic: str, timestamp_ms: int, isolation: str) -> int:
    partition, wanted = TopicPartition(topic, 0), api.OffsetSpec.for_timestamp(timestamp_ms)
    with api.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        asked = admin.list_offsets({partition: wanted}, isolation_level=IsolationLevel[isolation])
        offset: int = asked[partition].result(DEADLINE_S).offset
    return offset
