"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, and how other requests see groups of the new protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.groups.coordinating import (
    GROUP,
    TOPIC,
    answered,
    commit,
    coordinating_broker,
    fetch,
    join,
    load,
    pass_time,
    stable_member,
)
from tests.broker.handlers.data_path import Broker

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that coordinates."""
    with coordinating_broker(tmp_path) as running:
        yield running


def heartbeat(broker: Broker, member_id: str = "a", epoch: int = 0, *, version: int = 1, **fields: Any) -> Any:
    """Send a heartbeat; joining says what it must."""
    if epoch == 0:
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
        fields = {**joining, **fields}
    body = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **fields})
    return answered(broker.ask(Api.CONSUMER_GROUP_HEARTBEAT, version, body))


def describe(broker: Broker, group: str = GROUP, version: int = 1) -> Any:
    """Describe one group."""
    body = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return broker.ask(Api.CONSUMER_GROUP_DESCRIBE, version, body).groups[0]


def group_of(broker: Broker) -> Any:
    """Return the group itself."""
    entry = broker.services.groups.with_group(GROUP)
    return None if entry is None else entry.group


def listed(broker: Broker, **filters: list[str]) -> list[tuple[str, str, str]]:
    """List groups: protocol, state and type."""
    answer = broker.ask(Api.LIST_GROUPS, 5, ListGroupsRequest(**{"states_filter": [], "types_filter": [], **filters}))
    return [(each.protocol_type, each.group_state, each.group_type) for each in answer.groups]


def test_a_member_joins_and_leaves(broker: Broker) -> None:
    """It is told its epoch, its interval and its partitions."""
    joined = heartbeat(broker)
    assert (joined.error_code, joined.error_message, joined.member_id, joined.member_epoch) == (0, None, "a", 1)
    assert joined.heartbeat_interval_ms == 5_000
    (topic,) = joined.assignment.topic_partitions
    assert topic.partitions == [0]
    again = heartbeat(broker, epoch=1)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)
    left = heartbeat(broker, epoch=-1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert group_of(broker).is_empty


def test_a_silent_member_is_taken_out(broker: Broker) -> None:
    """The coordinator's clock does that."""
    heartbeat(broker)
    pass_time(broker, 45_000)
    assert heartbeat(broker, epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("epoch", "fields", "version"),
    [
        (0, {"group_id": ""}, 1),
        (0, {"member_id": ""}, 1),
        (1, {"member_id": ""}, 0),
        (0, {"instance_id": ""}, 1),
        (0, {"rack_id": ""}, 1),
        (0, {"rebalance_timeout_ms": -1}, 1),
        (0, {"topic_partitions": None}, 1),
        (0, {"subscribed_topic_names": None}, 1),
        (-2, {}, 1),
        (-3, {}, 1),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    broker: Broker, epoch: int, fields: dict[str, Any], version: int
) -> None:
    """INVALID_REQUEST, with what is wrong; nothing is made for it. A group without a name cannot be looked for."""
    refused = heartbeat(broker, epoch=epoch, version=version, **fields)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message
    assert listed(broker) == []


def test_members_of_version_0_are_given_an_id(broker: Broker) -> None:
    """Those of version 1 make their own."""
    assert len(heartbeat(broker, "", version=0).member_id) == 36


def test_an_assignor_that_there_is_not_is_refused(broker: Broker) -> None:
    """The others are named."""
    refused = heartbeat(broker, server_assignor="best")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in refused.error_message
    assert heartbeat(broker, server_assignor="range").error_code == 0


def test_an_expression_that_is_none_is_refused(broker: Broker) -> None:
    """One that is matches topics."""
    code = heartbeat(broker, subscribed_topic_names=None, subscribed_topic_regex="(").error_code
    assert code == ErrorCode.INVALID_REGULAR_EXPRESSION
    joined = heartbeat(broker, "b", subscribed_topic_names=None, subscribed_topic_regex=".*")
    assert len(joined.assignment.topic_partitions) == 1


def test_a_group_that_is_gone_is_joined_anew(broker: Broker) -> None:
    """As a member that is not known any more is told to."""
    assert heartbeat(broker, epoch=5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(broker, epoch=-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_described(broker: Broker) -> None:
    """With what members have, by name; classic groups and unknown ones are not found."""
    heartbeat(broker, rack_id="r", instance_id="i")
    found = describe(broker)
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (0, "Stable", 1, 1)
    assert found.assignor_name == "uniform"
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "i", "r", 1)
    assert (member.client_id, member.client_host, member.member_type) == ("test", "/127.0.0.1", 1)
    assert member.subscribed_topic_names == [TOPIC]
    (row,) = member.assignment.topic_partitions
    assert (row.topic_name, row.partitions) == (TOPIC, [0])
    assert member.target_assignment == member.assignment
    assert describe(broker, version=0).members[0].member_type == -1
    assert describe(broker, "other").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    join(broker, group="classic", version=3)
    assert describe(broker, "classic").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_other_requests_know_the_group(broker: Broker) -> None:
    """ListGroups names its type; to DescribeGroups it does not exist; DeleteGroups waits until it is empty."""
    heartbeat(broker)
    assert listed(broker) == [("consumer", "Stable", "consumer")]
    assert listed(broker, types_filter=["Classic"]) == []
    assert listed(broker, types_filter=["Consumer"], states_filter=["stable"]) != []
    described = broker.ask(Api.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[GROUP]))
    assert described.groups[0].group_state == "Dead"
    delete = DeleteGroupsRequest(groups_names=[GROUP])
    assert broker.ask(Api.DELETE_GROUPS, 2, delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    heartbeat(broker, epoch=-1)
    assert listed(broker) == [("consumer", "Empty", "consumer")]
    assert broker.ask(Api.DELETE_GROUPS, 2, delete).results[0].error_code == 0
    assert listed(broker) == []
    reload(broker)
    assert listed(broker) == []


def test_offsets_are_for_members_at_their_epoch(broker: Broker) -> None:
    """In commits and in fetches."""
    heartbeat(broker)
    member: dict[str, Any] = {"version": 9, "member_id": "a"}
    assert commit(broker, 7, generation_id_or_member_epoch=1, **member) == 0
    assert commit(broker, 8, generation_id_or_member_epoch=0, **member) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(broker, 8, generation_id_or_member_epoch=1, version=9, member_id="b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(broker).committed_offset == 7


def test_a_group_is_of_one_kind_while_it_has_members(broker: Broker) -> None:
    """Then it may become the other, and keeps its offsets; what is stored says the same."""
    stable_member(broker)
    assert heartbeat(broker).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    pass_time(broker, 10_000)
    pass_time(broker, 60_000)
    assert group_of(broker).is_empty
    assert commit(broker, 7) == 0
    assert heartbeat(broker).error_code == 0
    assert isinstance(group_of(broker), ConsumerGroup)
    assert answered(join(broker)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    reload(broker)
    assert isinstance(group_of(broker), ConsumerGroup)
    assert heartbeat(broker, epoch=-1).error_code == 0

    stable_member(broker)
    assert isinstance(group_of(broker), ClassicGroup)
    assert fetch(broker).committed_offset == 7
    reload(broker)
    assert isinstance(group_of(broker), ClassicGroup)
    assert group_of(broker).state.value == "Stable"


def test_a_group_moves_with_its_partition(broker: Broker) -> None:
    """The next coordinator knows members, epochs and partitions; the last one sends them on."""
    heartbeat(broker, instance_id="i")
    before = group_of(broker).members
    broker.lead(CONSUMER_OFFSETS, epoch=1, leader=2)
    assert heartbeat(broker, epoch=1).error_code == ErrorCode.NOT_COORDINATOR
    broker.lead(CONSUMER_OFFSETS, epoch=2)
    load(broker)
    assert group_of(broker).members == before
    again = heartbeat(broker, epoch=1)
    assert (again.error_code, again.member_epoch) == (0, 1)
    assert group_of(broker).timeline.rebalances[-1].cause == "the coordinator moved to this broker"


def reload(broker: Broker) -> None:
    """Have it give its groups up and read them back."""
    epoch = broker.services.groups.shards.get(0).epoch  # type: ignore[union-attr]
    broker.services.groups.resigned(0, epoch)
    broker.services.groups.became_leader(0, epoch)
    load(broker)
