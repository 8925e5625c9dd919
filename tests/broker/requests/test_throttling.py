"""Clients beyond their quotas: what they are told, and for how long their connections are muted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.broker.handlers.small_cluster import SmallCluster, topic

from ottla.broker.app.services import Services
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.quotas.limits import Entity, QuotaLimits
from ottla.broker.requests.dispatch import Dispatcher
from ottla.broker.security.acls.authorizer import AclAuthorizer
from ottla.broker.security.session import ANONYMOUS, Session
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.primitives import UUID_ZERO
from ottla.protocol.produce_shape import ProduceShape
from ottla.protocol.requests import decode_response, encode_request

CLIENT = "limited"
NOBODY_WAITS_MS = 0
TIMEOUT_MS = 5000


class FakeConnection:
    """Takes the answer to one request, and how long it is muted."""

    peer, listener = "127.0.0.1", "PLAINTEXT"
    is_gone = False

    def __init__(self) -> None:
        self.session = Session("PLAINTEXT", "127.0.0.1")
        self.produce_shape = ProduceShape()
        self.parts: Any = None
        self.muted_seconds = 0.0

    def respond(self, slot: Any, parts: Any) -> None:
        """Take the answer."""
        self.parts = parts

    def mute(self, seconds: float) -> None:
        """Note it."""
        assert self.parts is None, "muted before the client can send more"
        self.muted_seconds = seconds

    def release(self, frame: Any) -> None:
        """Forget the frame."""

    def fail(self, reason: str) -> None:
        """No request here fails."""
        raise AssertionError(reason)


class Asked:
    """What came of one request."""

    def __init__(self, services: Services, api: Api, version: int, body: Message, client_id: str = CLIENT) -> None:
        frame = b"".join(encode_request(api, version, 7, client_id, body))
        connection = FakeConnection()
        dispatcher = Dispatcher(HANDLERS, services.for_handlers(), services.configs.broker, RequestMetrics())
        dispatcher.dispatch(connection, SimpleNamespace(body=frame), None, 0.0)
        self.size = len(frame)
        self.muted_ms = round(connection.muted_seconds * 1000)
        self.response: Any = None
        if connection.parts is not None:
            parts = [part.read() if hasattr(part, "read") else part for part in connection.parts]
            _, self.response = decode_response(api, version, b"".join(parts))


def limit(quotas: ClientQuotas, kind: str, value: float) -> None:
    """Set a quota for the client of these tests."""
    getattr(quotas, kind).set_limits(QuotaLimits({Entity(None, CLIENT): value}))
    quotas.is_set = True


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads a topic, with quotas by a clock that stands still."""
    with running_broker(tmp_path, {"t": {}}) as running:
        running.lead("t")
        yield running


def produce(broker: Broker, acks: int, version: int = 9, client_id: str = CLIENT) -> Asked:
    """Append a kilobyte and a bit."""
    data = PartitionProduceData(index=0, records=batch(bytes(1000)))
    body = ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    return Asked(broker.services, Api.PRODUCE, version, body, client_id)


def fetch(broker: Broker, *, session: tuple[int, int] = (0, -1), replica_id: int = -1, **fields: Any) -> Asked:
    """Read from the beginning."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[wanted])] if session[1] <= 0 else []
    asked = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0, **fields}
    body = FetchRequest(replica_id=replica_id, session_id=session[0], session_epoch=session[1], topics=topics, **asked)
    return Asked(broker.services, Api.FETCH, 12, body)


def read_bytes(asked: Asked) -> int:
    """The bytes of records in an answer."""
    return sum(len(part.records or b"") for each in asked.response.responses for part in each.partitions)


def test_a_produce_request_beyond_the_quota_is_done_and_waited_for(broker: Broker) -> None:
    """With its whole size counted, and the time as Kafka works it out."""
    limit(broker.services.quotas, "produce", 100.0)

    asked = produce(broker, acks=1)

    expected = round(asked.size * 10 - 10_000)
    assert asked.muted_ms == asked.response.throttle_time_ms == expected > 0
    assert asked.response.responses[0].partition_responses[0].error_code == 0
    assert produce(broker, acks=1, client_id="other").muted_ms == NOBODY_WAITS_MS


def test_a_client_that_wants_no_answer_is_muted_all_the_same(broker: Broker) -> None:
    """It could not be told otherwise."""
    limit(broker.services.quotas, "produce", 100.0)

    asked = produce(broker, acks=0)

    assert asked.response is None
    assert asked.muted_ms > 0


def test_an_answer_that_cannot_tell_the_time_is_sent_without(broker: Broker) -> None:
    """The first version has no field for it."""
    limit(broker.services.quotas, "produce", 1.0)

    asked = produce(broker, acks=1, version=0)

    assert asked.response.throttle_time_ms == 0
    assert asked.muted_ms > 0


def test_a_fetch_beyond_the_quota_is_answered_without_records(broker: Broker) -> None:
    """They come when the client has waited."""
    produce(broker, acks=1)
    limit(broker.services.quotas, "fetch", 150.0)

    first, second = fetch(broker), fetch(broker)

    assert read_bytes(first) > 1000
    assert first.muted_ms == NOBODY_WAITS_MS
    assert second.response.responses == []
    assert second.muted_ms == second.response.throttle_time_ms > 0


def test_a_session_goes_on_after_an_empty_answer_but_does_not_begin_with_one(broker: Broker) -> None:
    """Clients expect all partitions in the first answer, and begin anew otherwise."""
    produce(broker, acks=1)
    limit(broker.services.quotas, "fetch", 150.0)
    session_id = fetch(broker, session=(0, 0)).response.session_id
    assert session_id > 0

    following = fetch(broker, session=(session_id, 1))
    refused = fetch(broker, session=(0, 0))

    assert (following.response.session_id, following.response.responses) == (session_id, [])
    assert (refused.response.session_id, refused.response.responses) == (0, [])
    assert len(broker.services.fetch_sessions) == 1


def test_an_answer_is_not_larger_than_a_window_of_the_quota(broker: Broker) -> None:
    """Else it would be refused again and again; one batch comes in any case."""
    for _ in range(3):
        produce(broker, acks=1)
    limit(broker.services.quotas, "fetch", 150.0)

    assert 1000 < read_bytes(fetch(broker)) < 1500


def test_followers_are_not_held_up(broker: Broker) -> None:
    """Nor counted."""
    produce(broker, acks=1)
    for kind in ("fetch", "request"):
        limit(broker.services.quotas, kind, 0.0001)

    for _ in range(2):
        asked = fetch(broker, replica_id=2)
        assert read_bytes(asked) > 1000
        assert asked.muted_ms == NOBODY_WAITS_MS


def test_every_request_costs_time_and_no_more_than_a_second_is_waited() -> None:
    """But for those of brokers."""
    cluster = SmallCluster()
    limit(cluster.services.quotas, "request", 1e-9)
    told = UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[], live_brokers=[])

    asked = Asked(
        cluster.services,
        Api.API_VERSIONS,
        3,
        ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    )

    assert asked.muted_ms == asked.response.throttle_time_ms == 1000
    assert Asked(cluster.services, Api.UPDATE_METADATA, 8, told).muted_ms == NOBODY_WAITS_MS


def create(cluster: SmallCluster, version: int, name: str, partitions: int, **fields: Any) -> Asked:
    """Ask for a topic, and not for its leaders."""
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    body = CreateTopicsRequest(topics=[wanted], timeout_ms=0, **fields)
    return Asked(cluster.services, Api.CREATE_TOPICS, version, body)


def test_changes_of_topics_are_refused_while_partitions_are_owed() -> None:
    """In the versions that know a code for it; what is only checked is not counted."""
    cluster = SmallCluster()
    cluster.tell(topic("old", [1, 1]))
    limit(cluster.services.quotas, "mutation", 1.0)
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED

    assert create(cluster, 6, "checked", 100, validate_only=True).muted_ms == NOBODY_WAITS_MS
    assert create(cluster, 6, "first", 15).muted_ms == NOBODY_WAITS_MS
    created = create(cluster, 6, "second", 1)
    deleted = Asked(
        cluster.services,
        Api.DELETE_TOPICS,
        6,
        DeleteTopicsRequest(topics=[DeleteTopicState(name="old", topic_id=UUID_ZERO)], timeout_ms=0),
    )
    enlarged = Asked(
        cluster.services,
        Api.CREATE_PARTITIONS,
        3,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="old", count=5, assignments=None)], timeout_ms=0, validate_only=False
        ),
    )

    assert created.response.topics[0].error_code == refused
    assert deleted.response.responses[0].error_code == refused
    assert enlarged.response.results[0].error_code == refused
    for asked in (created, deleted, enlarged):
        assert asked.muted_ms == asked.response.throttle_time_ms == 4000
    assert list(cluster.zookeeper.created) == ["first"]
    assert cluster.zookeeper.deleted == []
    assert cluster.zookeeper.partition_counts == {}


def test_clients_of_older_versions_wait_after_their_changes() -> None:
    """Which are all done."""
    cluster = SmallCluster()
    limit(cluster.services.quotas, "mutation", 1.0)

    asked = create(cluster, 5, "first", 15)

    assert asked.muted_ms == asked.response.throttle_time_ms == 4000
    assert list(cluster.zookeeper.created) == ["first"]


@pytest.mark.parametrize("replica_id", [-1, 2])
def test_who_is_no_broker_counts_as_a_client(broker: Broker, replica_id: int) -> None:
    """Whatever it claims to be: a fetch as a replica, or a request of the controller, that is refused."""
    limit(broker.services.quotas, "request", 0.000001)
    broker.services.security.authorizer = AclAuthorizer([], allow_if_no_acl=False)
    metadata = UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[], live_brokers=[])

    assert fetch(broker, replica_id=replica_id).muted_ms > 0
    assert Asked(broker.services, Api.UPDATE_METADATA, 8, metadata).muted_ms > 0

    broker.services.security.authorizer = AclAuthorizer([ANONYMOUS], allow_if_no_acl=False)
    assert (fetch(broker, replica_id=replica_id).muted_ms > 0) is (replica_id < 0)
    assert Asked(broker.services, Api.UPDATE_METADATA, 8, metadata).muted_ms == NOBODY_WAITS_MS
