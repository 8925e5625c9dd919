"""Where a client that asked the wrong broker is sent: to the leader, by the listener that it came in on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.broker.handlers.test_produce_and_fetch import fetch_body
from tests.kit.services import for_handler

from ottla.broker.handlers.data.fetch import fetch
from ottla.broker.handlers.data.produce import produce
from ottla.broker.requests.request import Request
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a follower of `t`, which broker 2 leads; broker 3 lives too."""
    with running_broker(tmp_path, {}) as broker:
        broker.racks = {1: None, 2: "south", 3: "east"}
        broker.lead("t", epoch=4, leader=2, isr=(1, 2, 3), replicas=(1, 2, 3))
        yield broker


def hinted(broker: Broker, api: Api, version: int, listener: str = "PLAINTEXT", **fields: Any) -> tuple[Any, list[Any]]:
    """Ask the wrong broker; (code, leader, epoch), and the endpoints that came with it."""
    services: Any = for_handler(broker.services, api)
    if api is Api.FETCH:
        fetched = fetch(
            Request(api, version, fetch_body(**fields), "c", Session(listener, "h"), services),
        )
        assert isinstance(fetched, FetchResponse)
        answer: Any = fetched.responses[0].partitions[0]
        nodes: list[Any] = fetched.node_endpoints
    else:
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])
        body = ProduceRequest(acks=1, timeout_ms=1, topic_data=[data])
        produced = produce(Request(api, version, body, "c", Session(listener, "h"), services))
        assert isinstance(produced, ProduceResponse)
        answer, nodes = produced.responses[0].partition_responses[0], produced.node_endpoints
    found = (answer.error_code, answer.current_leader.leader_id, answer.current_leader.leader_epoch)
    return found, [(node.node_id, node.host, node.port, node.rack) for node in nodes]


WRONG_BROKER = [
    (Api.PRODUCE, 10, {}),
    (Api.PRODUCE, 11, {}),
    (Api.FETCH, 16, {"epoch": 3}),
    (Api.FETCH, 17, {"epoch": 3}),
]


@pytest.mark.parametrize(("listener", "place"), [("PLAINTEXT", ("host-2", 9092)), ("INSIDE", ("inside-2", 9093))])
@pytest.mark.parametrize(("api", "version", "fields"), WRONG_BROKER)
def test_the_live_leader_is_named_by_the_same_listener(
    broker: Broker, api: Api, version: int, fields: dict[str, Any], listener: str, place: tuple[str, int]
) -> None:
    """From Produce 10 and Fetch 16 on; the consumer here knows an older leader."""
    (code, *leader), nodes = hinted(broker, api, version, listener, **fields)

    expected = ErrorCode.FENCED_LEADER_EPOCH if api is Api.FETCH else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (code, leader) == (expected, [2, 4])
    assert nodes == [(2, *place, "south")]


@pytest.mark.parametrize(("api", "version"), [(Api.PRODUCE, 9), (Api.FETCH, 15)])
def test_older_versions_get_no_hint(broker: Broker, api: Api, version: int) -> None:
    """They have no place for it."""
    (_, leader, _), nodes = hinted(broker, api, version, epoch=3)

    assert (leader, nodes) == (-1, [])


@pytest.mark.parametrize(("api", "version", "fields"), WRONG_BROKER[::2])
def test_a_replica_knows_the_new_leader_before_everybody_does(
    broker: Broker, api: Api, version: int, fields: dict[str, Any]
) -> None:
    """The controller tells the replicas first; the metadata still has the leader before."""
    broker.lead("t", epoch=5, leader=3, isr=(1, 3), replicas=(1, 2, 3), everybody=False)

    (_, *leader), nodes = hinted(broker, api, version, **fields)

    assert leader == [3, 5]
    assert nodes == [(3, "host-3", 9092, "east")]


def test_a_broker_without_a_replica_tells_what_the_metadata_says(broker: Broker) -> None:
    """Its partition has moved away."""
    broker.services.partitions.drop(TopicPartition("t", 0), delete=True)

    found, nodes = hinted(broker, Api.FETCH, 16)

    assert found == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 4)
    assert nodes == [(2, "host-2", 9092, "south")]


@pytest.mark.parametrize(("api", "version", "fields"), WRONG_BROKER[::2])
def test_a_leader_that_is_gone_has_no_endpoint(broker: Broker, api: Api, version: int, fields: dict[str, Any]) -> None:
    """Nor is there a hint where nobody leads."""
    del broker.racks[2]
    broker.lead("t", epoch=5, leader=2, isr=(1, 2), replicas=(1, 2, 3))
    gone = hinted(broker, api, version, **fields)
    broker.lead("t", epoch=6, leader=-1, isr=(2,), replicas=(1, 2, 3))
    nobody = hinted(broker, api, version, **fields)

    assert (gone[0][1], gone[1]) == (2, [])
    assert (nobody[0][1], nobody[1]) == (-1, [])


def test_a_broker_that_resigned_does_not_name_itself(broker: Broker) -> None:
    """Clients would come back at once."""
    broker.lead("t", epoch=5, leader=1, isr=(1, 2), replicas=(1, 2, 3))
    partition = broker.services.partitions.find(TopicPartition("t", 0))
    assert partition is not None
    partition.resign()

    (code, leader, _), nodes = hinted(broker, Api.PRODUCE, 10)

    assert (code, leader, nodes) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])
