"""Transactions from request to request, on one broker that leads a topic and both internal topics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.groups.coordinating import answered, load
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.kit.services import for_handler

from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.request import Request, RequestFailedError
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.plain_values import message_of
from ottla.protocol.records import batches

ID, GROUP = "payments", "readers"
COMPACT = {"cleanup.policy": "compact"}


class Client:
    """A producer with a transactional id, request by request."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.producer: dict[str, int] = {}
        self.sequence = 0

    def ask(self, api: Api, version: int, **values: Any) -> Any:
        """Send a request; the answer must be there."""
        return answered(self.ask_later(api, version, **values))

    def ask_later(self, api: Api, version: int, **values: Any) -> Any:
        """Send a request; return the answer, or the list that will have it."""
        return self.broker.ask(api, version, message_of(api.request, values, version))

    def init(self, version: int = 5, **values: Any) -> ErrorCode:
        """Get a producer id and epoch."""
        fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1} | values
        answer = self.ask(Api.INIT_PRODUCER_ID, version, transactional_id=ID, **fields)
        if not answer.error_code:
            self.producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
            self.sequence = 0
        return ErrorCode.of(answer.error_code)

    def add(self, *names: str, version: int = 3) -> list[ErrorCode]:
        """Add partition 0 of topics."""
        answer = self.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=ID,
            v3_and_below_topics=[{"name": name, "partitions": [0]} for name in names],
            **{f"v3_and_below_{name}": value for name, value in self.producer.items()},
        )
        results = answer.results_by_topic_v3_and_below
        return [ErrorCode.of(each.partition_error_code) for topic in results for each in topic.results_by_partition]

    def verify(self, *names: str, version: int = 5) -> list[ErrorCode]:
        """Ask as a broker does."""
        topics = [{"name": name, "partitions": [0]} for name in names]
        asked = {"transactional_id": ID, **self.producer, "verify_only": True, "topics": topics}
        answer = self.ask(Api.ADD_PARTITIONS_TO_TXN, version, transactions=[asked])
        (result,) = answer.results_by_transaction
        return [
            ErrorCode.of(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        ]

    def produce(self, *values: bytes, version: int = 11, topic: str = "t", **fields: Any) -> ErrorCode:
        """Send a batch of the transaction."""
        records = batch(*values, transactional=True, base_sequence=self.sequence, **(self.producer | fields))
        rows = [{"index": 0, "records": records}]
        answer = self.ask(
            Api.PRODUCE,
            version,
            transactional_id=ID,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{"name": topic, "partition_data": rows}],
        )
        code = ErrorCode.of(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self.sequence += len(values)
        return code

    def end(self, *, commit: bool = True, version: int = 4) -> ErrorCode:
        """End the transaction."""
        return ErrorCode.of(
            self.ask(Api.END_TXN, version, transactional_id=ID, committed=commit, **self.producer).error_code
        )

    def add_offsets(self, version: int = 4) -> ErrorCode:
        """Add the offsets of a group."""
        answer = self.ask(Api.ADD_OFFSETS_TO_TXN, version, transactional_id=ID, group_id=GROUP, **self.producer)
        return ErrorCode.of(answer.error_code)

    def commit_offset(self, offset: int, version: int = 4, **values: Any) -> ErrorCode:
        """Commit an offset in the transaction."""
        row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        fields = {"generation_id": -1, "member_id": "", "group_instance_id": None} | values
        answer = self.ask(
            Api.TXN_OFFSET_COMMIT,
            version,
            transactional_id=ID,
            group_id=GROUP,
            topics=[{"name": "t", "partitions": [row]}],
            **self.producer,
            **fields,
        )
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    def offset(self) -> tuple[int, ErrorCode]:
        """Return the stable offset of the group."""
        groups = [{"group_id": GROUP, "topics": [{"name": "t", "partition_indexes": [0]}], "member_epoch": -1}]
        answer = self.ask(Api.OFFSET_FETCH, 9, groups=groups, require_stable=True)
        (row,) = answer.groups[0].topics[0].partitions
        return row.committed_offset, ErrorCode.of(row.error_code)

    def read(self, *, committed: bool = True) -> tuple[list[bytes | None], list[tuple[int, int]] | None]:
        """Return what a consumer gets, and the aborted transactions that it is told of."""
        rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000, "current_leader_epoch": -1}]
        answer = self.ask(
            Api.FETCH,
            12,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=[{"topic": "t", "partitions": rows}],
        )
        (row,) = answer.responses[0].partitions
        aborted = row.aborted_transactions
        values = [
            record.value
            for each in batches(row.records or b"")
            if not each.is_control
            for record in each.records(1_000_000)
        ]
        return values, None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]

    def state(self) -> str:
        """Return the state that tools see."""
        (described,) = self.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID]).transaction_states
        return str(described.transaction_state)


@pytest.fixture(autouse=True)
def producer_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no ZooKeeper that they could come from."""
    ids = count(5_000)
    monkeypatch.setattr(ClusterRegistry, "next_producer_id", lambda _cluster: next(ids))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads everything alone."""
    topics = {TRANSACTION_STATE: COMPACT, CONSUMER_OFFSETS: COMPACT}
    with running_broker(tmp_path, topics) as broker:
        for topic in ("t", CONSUMER_OFFSETS, TRANSACTION_STATE):
            broker.lead(topic, replicas=(1,))
        load(broker)
        broker.services.transactions.work.run_due()
        yield broker


@pytest.fixture
def client(broker: Broker) -> Client:
    """A producer that has its id."""
    client = Client(broker)
    assert client.init() is ErrorCode.NONE
    return client


def begin(client: Client, *values: bytes) -> None:
    """Begin a transaction with a batch."""
    assert client.add("t") == [ErrorCode.NONE]
    assert client.produce(*values) is ErrorCode.NONE


@pytest.mark.parametrize("commit", [True, False])
def test_what_a_transaction_wrote_is_read_when_it_is_committed_and_told_of_when_it_is_aborted(
    client: Client, commit: bool
) -> None:
    """While it is open, readers of committed records wait before it."""
    begin(client, b"a", b"b")
    assert client.read() == ([], [])
    assert client.read(committed=False) == ([b"a", b"b"], None)
    assert client.end(commit=commit) is ErrorCode.NONE

    assert client.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert client.read() == ([b"a", b"b"], [] if commit else [(client.producer["producer_id"], 0)])


def test_one_transaction_follows_the_other(client: Client) -> None:
    """Each is verified anew."""
    for value in (b"a", b"b", b"c"):
        begin(client, value)
        assert client.end() is ErrorCode.NONE
    assert client.read() == ([b"a", b"b", b"c"], [])


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_batch_for_a_partition_that_was_not_added_is_refused(client: Client, version: int, code: ErrorCode) -> None:
    """It would begin a transaction that nobody ends."""
    assert client.add(CONSUMER_OFFSETS) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert client.add_offsets() is ErrorCode.NONE
    assert client.produce(b"a", version=version) is code
    assert client.read(committed=False) == ([], None)


def test_a_batch_that_is_late_begins_no_transaction(client: Client) -> None:
    """The transaction that it belonged to was aborted before it came."""
    begin(client, b"a")
    assert client.end(commit=False) is ErrorCode.NONE
    assert client.produce(b"late") is ErrorCode.TRANSACTION_ABORTABLE
    assert client.read(committed=False) == ([b"a"], None)


def test_a_new_producer_fences_the_old_one_and_its_transaction_is_aborted_before_it_is_answered(
    broker: Broker, client: Client
) -> None:
    """The client need not ask twice."""
    begin(client, b"a")
    other = Client(broker)
    assert other.init() is ErrorCode.NONE

    assert other.producer["producer_id"] == client.producer["producer_id"]
    assert other.producer["producer_epoch"] == client.producer["producer_epoch"] + 2
    assert client.produce(b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end() is ErrorCode.PRODUCER_FENCED
    assert client.end(version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.add("t", version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert client.add_offsets(version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.read(committed=True) == ([b"a"], [(client.producer["producer_id"], 0)])


def test_a_fenced_producer_that_asks_for_its_next_epoch_is_refused(broker: Broker, client: Client) -> None:
    """In old versions with the code that they know."""
    assert Client(broker).init() is ErrorCode.NONE
    assert client.init(**client.producer) is ErrorCode.PRODUCER_FENCED
    assert client.init(version=3, **client.producer) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_partitions_are_added_all_or_none(client: Client) -> None:
    """The ones that could be are not attempted."""
    unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert client.add("t", "nowhere") == [skipped, unknown]
    assert client.state() == "Empty"


def test_brokers_are_told_which_partitions_a_transaction_has(client: Client) -> None:
    """Nothing is added by asking."""
    assert client.add("t") == [ErrorCode.NONE]
    assert client.verify("t", CONSUMER_OFFSETS) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert client.verify("t", "nowhere") == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    client.producer["producer_epoch"] += 1
    assert client.verify("t") == [ErrorCode.PRODUCER_FENCED]


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_take_effect_with_their_transaction(client: Client, commit: bool) -> None:
    """Until then, who wants stable ones has to wait."""
    assert client.add_offsets() is ErrorCode.NONE
    assert client.commit_offset(7) is ErrorCode.NONE
    assert client.offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert client.end(commit=commit) is ErrorCode.NONE
    assert client.offset() == (7 if commit else -1, ErrorCode.NONE)


def test_the_offsets_of_the_next_transaction_are_verified_although_they_look_the_same(client: Client) -> None:
    """Offsets have no sequences that could tell them from the ones before."""
    assert client.add_offsets() is ErrorCode.NONE
    assert client.commit_offset(7) is ErrorCode.NONE
    assert client.end() is ErrorCode.NONE
    assert client.commit_offset(8) is ErrorCode.TRANSACTION_ABORTABLE
    assert client.commit_offset(8, version=3) is ErrorCode.INVALID_TXN_STATE
    assert client.offset() == (7, ErrorCode.NONE)


def test_offsets_of_a_member_that_is_not_in_the_generation_are_refused(client: Client) -> None:
    """It has lost its partitions to others."""
    assert client.add_offsets() is ErrorCode.NONE
    assert client.commit_offset(7, generation_id=3, member_id="m") is ErrorCode.ILLEGAL_GENERATION


def test_ids_are_listed_by_state_and_producer_and_age(broker: Broker, client: Client) -> None:
    """And names of states that are none are returned."""

    def listed(**values: Any) -> tuple[list[str], list[str]]:
        fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | values
        answer = client.ask(Api.LIST_TRANSACTIONS, 1, **fields)
        return [each.transactional_id for each in answer.transaction_states], list(answer.unknown_state_filters)

    begin(client, b"a")
    assert listed() == ([ID], [])
    assert listed(state_filters=["Ongoing"]) == ([ID], [])
    assert listed(state_filters=["Empty"]) == ([], [])
    assert listed(state_filters=["Odd", "Ongoing"]) == ([ID], ["Odd"])
    assert listed(state_filters=["Odd"]) == ([], ["Odd"])
    assert listed(producer_id_filters=[client.producer["producer_id"] + 1]) == ([], [])
    assert listed(duration_filter=1_000) == ([], [])
    broker.now_ms += 1_001
    assert listed(duration_filter=1_000) == ([ID], [])


def test_the_open_transaction_of_a_producer_is_described_where_it_writes(client: Client) -> None:
    """Administrators find by it who holds readers back."""
    begin(client, b"a")
    assert client.end() is ErrorCode.NONE
    begin(client, b"b")
    answer = client.ask(Api.DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": [0, 1]}])
    known, unknown = answer.topics[0].partitions

    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (client.producer["producer_id"], 0)
    assert (producer.last_sequence, producer.current_txn_start_offset, producer.coordinator_epoch) == (1, 2, 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_administrator_ends_a_transaction_that_hangs(client: Client) -> None:
    """With the producer that the partition knows, and no coordinator."""
    begin(client, b"a")
    marker = {
        **client.producer,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0]}, {"name": "nowhere", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    (answer,) = client.ask(Api.WRITE_TXN_MARKERS, 1, markers=[marker]).markers

    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.read() == ([b"a"], [(client.producer["producer_id"], 0)])


def test_a_marker_that_comes_in_late_does_not_end_the_next_transaction(client: Client) -> None:
    """Its coordinator had no answer, sent it again, and has gone on. Without a number, as Kafka sends it, it does."""
    begin(client, b"a")
    marker = {
        **client.producer,
        "transaction_result": True,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_number": 0,
    }
    assert client.end() is ErrorCode.NONE
    begin(client, b"b")
    (answer,) = client.ask(Api.WRITE_TXN_MARKERS, 1, markers=[marker]).markers
    assert answer.topics[0].partitions[0].error_code == 0
    assert client.read() == ([b"a"], [])

    client.ask(Api.WRITE_TXN_MARKERS, 1, markers=[marker | {"transaction_number": -1}])
    assert client.read() == ([b"a", b"b"], [])


def test_while_a_partition_cannot_take_its_marker_the_next_transaction_waits(broker: Broker, client: Client) -> None:
    """It begins as soon as the marker is there; the client is not told to ask again."""
    begin(client, b"a")
    broker.lead("t", epoch=1, replicas=(1,), leader=2)
    assert client.end() is ErrorCode.NONE
    assert client.state() == "PrepareCommit"

    producer = {f"v3_and_below_{name}": value for name, value in client.producer.items()}
    topics = [{"name": "t", "partitions": [0]}]
    waiting = client.ask_later(
        Api.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id=ID, v3_and_below_topics=topics, **producer
    )
    assert waiting == []
    broker.lead("t", epoch=2, replicas=(1,))
    broker.services.transactions.send_markers(next(iter(broker.services.transactions)))

    (answer,) = waiting
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    assert client.read() == ([b"a"], [])


def test_two_producers_in_one_request_are_one_too_many(client: Client) -> None:
    """A request belongs to one transaction."""
    assert client.add("t") == [ErrorCode.NONE]
    mine = batch(b"a", transactional=True, base_sequence=0, key=None, **client.producer)
    other = batch(b"b", transactional=True, base_sequence=0, producer_id=99, producer_epoch=0)
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": each}]} for each in (mine, other)]
    answer = client.ask(Api.PRODUCE, 11, transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=topics)

    codes = [each.error_code for topic in answer.responses for each in topic.partition_responses]
    assert codes == [0, ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_without_verification_every_partition_is_believed(tmp_path: Path) -> None:
    """As it was before Kafka 3.6; a transaction may hang then."""
    options = {"transaction.partition.verification.enable": "false"}
    with running_broker(tmp_path, {TRANSACTION_STATE: COMPACT}, options) as broker:
        for topic in ("t", TRANSACTION_STATE):
            broker.lead(topic, replicas=(1,))
        broker.services.transactions.work.run_due()
        client = Client(broker)
        assert client.init() is ErrorCode.NONE
        assert client.produce(b"a") is ErrorCode.NONE
        partition = broker.services.partitions.find(TopicPartition("t", 0))
        assert partition is not None
        assert partition.log.producers.has_open_transaction(client.producer["producer_id"])


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_a_client_asked_for_that_is_gone_is_not_done(broker: Broker, client: Client, is_gone: bool) -> None:
    """It has asked again on another connection, and its transaction may be over: this one would end the next."""
    begin(client, b"a")
    body = message_of(Api.END_TXN.request, {"transactional_id": ID, "committed": True, **client.producer}, 4)
    session = Session("PLAINTEXT", "127.0.0.1")
    services = for_handler(broker.services, Api.END_TXN)
    connection = SimpleNamespace(is_gone=is_gone)
    request = Request(Api.END_TXN, 4, body, "test", session, services, origin=connection)
    if is_gone:
        with pytest.raises(RequestFailedError):
            HANDLERS[Api.END_TXN].handle(request)
        assert client.state() == "Ongoing"
    else:
        answer: Any = HANDLERS[Api.END_TXN].handle(request)
        answer.then(lambda make: make())
        assert client.state() == "CompleteCommit"
