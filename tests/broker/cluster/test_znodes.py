"""The contents of nodes, byte for byte as Apache Kafka writes them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.kit.examples import examples

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import topic_id_of
from ottla.broker.cluster.znodes import (
    BrokerNode,
    ClusterIdNode,
    ConfigChangeNode,
    ConfigNode,
    Content,
    ControllerNode,
    FeatureNode,
    MalformedNodeError,
    PartitionStateNode,
    ProducerIdBlockNode,
    TopicNode,
    decode_number,
    new_uuid,
)
from ottla.broker.config import Address, Endpoint
from ottla.protocol.primitives import uuid_to_text

GOLDEN: list[tuple[Content, bytes]] = [
    (ClusterIdNode(id="XYZ0000000000000000000"), b'{"version":"1","id":"XYZ0000000000000000000"}'),
    (
        ControllerNode(broker_id=1, timestamp="1700000000000"),
        b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
    ),
    (
        BrokerNode(
            host="h",
            port=9092,
            endpoints=["PLAINTEXT://h:9092"],
            timestamp="1700000000000",
            rack="r1",
            listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"},
            features={"metadata.version": {"min_version": 1, "max_version": 21}},
        ),
        b'{"version":5,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,'
        b'"timestamp":"1700000000000","rack":"r1","listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"features":{"metadata.version":{"min_version":1,"max_version":21}}}',
    ),
    (
        BrokerNode(host=None, port=-1, endpoints=["SSL://h:1"], timestamp="0"),
        b'{"version":5,"host":null,"port":-1,"endpoints":["SSL://h:1"],"jmx_port":-1,"timestamp":"0",'
        b'"listener_security_protocol_map":{},"features":{}}',
    ),
    (
        TopicNode(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={0: [1, 2], 1: [2, 1]}),
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2],"1":[2,1]},'
        b'"adding_replicas":{},"removing_replicas":{}}',
    ),
    (
        TopicNode(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={0: [1, 3]}, adding_replicas={0: [3]}),
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,3]},'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{}}',
    ),
    (
        PartitionStateNode(leader=1, leader_epoch=0, controller_epoch=1, isr=[1, 2]),
        b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2]}',
    ),
    (
        PartitionStateNode(leader=2, leader_epoch=3, controller_epoch=1, isr=[2], leader_recovery_state=1),
        b'{"version":1,"leader":2,"leader_epoch":3,"controller_epoch":1,"isr":[2],"leader_recovery_state":1}',
    ),
    (
        PartitionStateNode(leader=1, leader_epoch=0, controller_epoch=1, isr=[1, 2], isr_broker_epochs=[27, 25]),
        b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2],"isr_broker_epochs":[27,25]}',
    ),
    (ConfigNode(config={"k": "v"}), b'{"version":1,"config":{"k":"v"}}'),
    (ConfigChangeNode(entity_path="topics/foo"), b'{"version":2,"entity_path":"topics/foo"}'),
    (
        ProducerIdBlockNode(broker=1, block_start="0", block_end="999"),
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
    (znodes.LogDirEventNode(broker=1), b'{"version":1,"broker":1,"event":1}'),
    (FeatureNode(), b'{"version":2,"status":1,"features":{}}'),
]


@pytest.mark.parametrize(("content", "data"), GOLDEN, ids=lambda value: type(value).__name__)
def test_contents_are_written_and_read_as_kafka_does(content: Content, data: bytes) -> None:
    """The keys, their order, and the quotes around some numbers."""
    assert content.encode() == data
    assert type(content).decode(data, "/path") == content


def test_unknown_keys_are_ignored() -> None:
    """A newer broker may write more."""
    data = b'{"version":4,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1],"new":{"a":1}}'
    assert PartitionStateNode.decode(data, "/p").leader == 1


@pytest.mark.parametrize("data", [b'{"version":1,"partitions":{"0":[1]}}', b'{"version":2,"partitions":{"0":[1]}}'])
def test_topics_without_id_are_read(data: bytes) -> None:
    """Versions 1 and 2 have none."""
    node = TopicNode.decode(data, "/p")
    assert node.partitions == {0: [1]}
    assert node.topic_id is UNSET
    assert topic_id_of(node) is None


def test_brokers_of_version_1_have_one_endpoint() -> None:
    """Host and port are all there was."""
    data = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}'
    node = BrokerNode.decode(data, "/p")
    assert node.parsed_endpoints() == (Endpoint("PLAINTEXT", Address("h", 9092)),)
    assert node.protocol("PLAINTEXT") == "PLAINTEXT"


@pytest.mark.parametrize(
    ("data", "entity"),
    [
        (b'{"version":2,"entity_path":"topics/foo"}', ("topics", "foo")),
        (b'{"version":2,"entity_path":"users/u/clients/c"}', ("users", "u/clients/c")),
        (b'{"version":1,"entity_type":"topics","entity_name":"foo"}', ("topics", "foo")),
    ],
)
def test_config_changes_name_an_entity(data: bytes, entity: tuple[str, str]) -> None:
    """In the present form and in the old one."""
    assert ConfigChangeNode.decode(data, "/p").entity() == entity


@pytest.mark.parametrize("data", [b'{"version":2}', b'{"version":2,"entity_path":"topics"}', b'{"version":1}'])
def test_config_changes_without_an_entity_are_refused(data: bytes) -> None:
    """They would stand for nothing."""
    with pytest.raises(MalformedNodeError):
        ConfigChangeNode.decode(data, "/p").entity()


@examples(200)
@given(st.binary(max_size=60), st.sampled_from([type(content) for content, _ in GOLDEN]))
def test_garbage_has_a_typed_error(data: bytes, kind: type[Content]) -> None:
    """Whatever stands in a node, only one kind of error comes out."""
    with contextlib.suppress(MalformedNodeError):
        kind.decode(data, "/path")


def test_bad_endpoints_and_numbers_have_a_typed_error() -> None:
    """Text that is JSON, but no endpoint, id or number."""
    with pytest.raises(MalformedNodeError):
        BrokerNode(host="h", port=1, endpoints=["nothing"]).parsed_endpoints()
    with pytest.raises(MalformedNodeError):
        topic_id_of(TopicNode(topic_id="short", partitions={0: [1]}))
    with pytest.raises(MalformedNodeError):
        decode_number(b"\xff", znodes.CONTROLLER_EPOCH)
    assert decode_number(b"12", znodes.CONTROLLER_EPOCH) == 12


def test_ids_never_look_like_an_option() -> None:
    """Their text does not begin with a hyphen."""
    texts = {uuid_to_text(new_uuid()) for _ in range(1000)}
    assert len(texts) == 1000
    assert not any(text.startswith("-") for text in texts)
