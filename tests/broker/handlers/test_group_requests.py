"""The requests of groups, version by version: what a member, a simple consumer and an administrator see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.groups.coordinating import (
    GROUP,
    TOPIC,
    answered,
    commit,
    coordinating_broker,
    fetch,
    heartbeat,
    join,
    stable_member,
    sync,
)
from tests.broker.handlers.data_path import NOW_MS, Broker
from tests.broker.handlers.small_cluster import every_version

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that coordinates all groups."""
    with coordinating_broker(tmp_path) as broker:
        yield broker


def lose(broker: Broker) -> None:
    """Have another broker take over."""
    broker.lead(CONSUMER_OFFSETS, epoch=1, leader=2, isr=(2,))


@pytest.mark.parametrize("version", every_version(Api.JOIN_GROUP))
def test_a_new_member_joins(broker: Broker, version: int) -> None:
    """From version 4 on with an id that it is given first; as the leader it learns of all members."""
    joined = answered(join(broker, version=version))
    if version >= 4:
        assert (joined.error_code, joined.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        joined = answered(join(broker, joined.member_id, version=version))
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("test-")
    assert [member.member_id for member in joined.members] == [joined.member_id]
    (entry,) = broker.services.groups
    member = entry.group.members[joined.member_id]  # type: ignore[attr-defined]
    assert (member.client_host, member.rebalance_timeout_ms) == ("/127.0.0.1", 60_000 if version else 10_000)


@pytest.mark.parametrize("version", every_version(Api.JOIN_GROUP))
def test_a_refused_join_has_no_generation(broker: Broker, version: int) -> None:
    """And null for the protocol from version 7 on."""
    lose(broker)
    refused = answered(join(broker, "m-1", version=version))
    assert (refused.error_code, refused.generation_id, refused.leader, refused.member_id, refused.members) == (
        ErrorCode.NOT_COORDINATOR,
        -1,
        "",
        "m-1",
        [],
    )
    assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", every_version(Api.SYNC_GROUP))
def test_a_member_gets_its_assignment(broker: Broker, version: int) -> None:
    """With the protocol from version 5 on."""
    member_id = answered(join(broker)).member_id
    generation = answered(join(broker, member_id)).generation_id
    synced = answered(sync(broker, member_id, generation, {member_id: b"mine"}, version=version))
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    lose(broker)
    assert answered(sync(broker, member_id, generation, version=version)).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("protocol", [(None, None), ("consumer", None), (None, "range"), ("consumer", "other")])
def test_a_sync_names_the_protocol_of_the_group(broker: Broker, protocol: tuple[str | None, str | None]) -> None:
    """From version 5 on both names are required, as in Kafka; before, a request cannot have them."""
    member_id, generation = stable_member(broker)
    refused = answered(sync(broker, member_id, generation, protocol=protocol))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert answered(sync(broker, member_id, generation)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", every_version(Api.HEARTBEAT))
def test_a_heartbeat_tells_of_a_rebalance(broker: Broker, version: int) -> None:
    """A second member wants in."""
    member_id, generation = stable_member(broker)
    assert heartbeat(broker, member_id, generation, version=version) == ErrorCode.NONE
    join(broker, join(broker)[0].member_id)
    assert heartbeat(broker, member_id, generation, version=version) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", every_version(Api.LEAVE_GROUP))
def test_members_leave(broker: Broker, version: int) -> None:
    """One before version 3, whose error is that of the response; then several."""
    member_id, generation = stable_member(broker)

    def leave(*members: str) -> list[int]:
        if version < 3:
            body = LeaveGroupRequest(group_id=GROUP, member_id=members[0])
            return [broker.ask(Api.LEAVE_GROUP, version, body).error_code]
        body = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=each) for each in members])
        response = broker.ask(Api.LEAVE_GROUP, version, body)
        assert response.error_code == 0
        return [each.error_code for each in response.members]

    if version < 3:
        assert (leave(member_id), leave(member_id)) == ([ErrorCode.NONE], [ErrorCode.UNKNOWN_MEMBER_ID])
    else:
        assert leave(member_id, "nobody") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert heartbeat(broker, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    lose(broker)
    body = LeaveGroupRequest(group_id=GROUP, member_id=member_id if version < 3 else "")
    assert broker.ask(Api.LEAVE_GROUP, version, body).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", every_version(Api.OFFSET_COMMIT))
def test_offsets_are_committed_in_every_version(broker: Broker, version: int) -> None:
    """With text, and with the leader epoch from version 6 on."""
    epoch = 3 if version >= 6 else -1
    assert commit(broker, 42, version=version, metadata="x", leader_epoch=epoch) == ErrorCode.NONE
    row = fetch(broker)
    assert (row.committed_offset, row.metadata, row.committed_leader_epoch) == (42, "x", epoch)
    lose(broker)
    assert commit(broker, 43, version=version) == ErrorCode.NOT_COORDINATOR


def test_version_1_brings_the_time_of_the_commit(broker: Broker) -> None:
    """Which counts for its expiry."""
    commit(broker, 42, version=1, commit_timestamp=1_234)
    (entry,) = broker.services.groups
    assert [each.commit_timestamp_ms for each in entry.offsets.committed.values()] == [1_234]


def test_an_offset_that_is_kept_for_ever_does_not_overflow(broker: Broker) -> None:
    """The client may say any number of milliseconds."""
    assert commit(broker, 42, version=2, retention_time_ms=2**63 - 1) == ErrorCode.NONE
    assert fetch(broker).committed_offset == 42


@pytest.mark.parametrize("version", every_version(Api.OFFSET_FETCH))
def test_offsets_are_fetched_in_every_version(broker: Broker, version: int) -> None:
    """Nothing committed is no error."""
    nothing = fetch(broker, version=version)
    assert (nothing.committed_offset, nothing.metadata, nothing.error_code) == (-1, "", 0)
    commit(broker, 42, metadata="x", leader_epoch=3)
    row = fetch(broker, version=version)
    assert (row.committed_offset, row.metadata, row.error_code) == (42, "x", 0)
    assert row.committed_leader_epoch == (3 if version >= 5 else -1)


@pytest.mark.parametrize("version", every_version(Api.OFFSET_FETCH))
def test_an_error_of_the_group_is_where_the_version_has_it(broker: Broker, version: int) -> None:
    """Of each partition before version 2, of the response up to 7, of each group then."""
    lose(broker)
    assert fetch(broker, version=version).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(2, 10))
def test_all_offsets_are_fetched_where_no_topics_are_named(broker: Broker, version: int) -> None:
    """Null means all; a group that is not known has none."""
    commit(broker, 42)
    body = OffsetFetchRequest(group_id=GROUP, topics=None)
    if version >= 8:
        groups = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in (GROUP, "unknown")]
        body = OffsetFetchRequest(groups=groups)
    response = answered(broker.ask(Api.OFFSET_FETCH, version, body))
    if version >= 8:
        assert [group.group_id for group in response.groups] == [GROUP, "unknown"]
        assert response.groups[1].topics == []
        response = response.groups[0]
    assert [(topic.name, topic.partitions[0].committed_offset) for topic in response.topics] == [(TOPIC, 42)]


def test_a_client_may_ask_since_when_a_group_has_been_at_its_offset(broker: Broker) -> None:
    """A commit of the same offset does not move the group; other clients are spared the field."""
    for offset in (3, 3, 4, 4):
        broker.now_ms += 1_000
        commit(broker, offset)
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]

    def moved(*, is_asked: bool) -> int:
        body = OffsetFetchRequest(groups=groups, with_moved_timestamps=is_asked)
        return int(broker.ask(Api.OFFSET_FETCH, 9, body).groups[0].topics[0].partitions[0].moved_timestamp)

    assert moved(is_asked=True) == NOW_MS + 3_000
    assert moved(is_asked=False) == -1


def test_offsets_are_deleted(broker: Broker) -> None:
    """Partitions that do not exist are told from those that do."""
    commit(broker, 42)
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    body = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=rows)])
    response = broker.ask(Api.OFFSET_DELETE, 0, body)
    (topic,) = response.topics
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
        (0, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert fetch(broker).committed_offset == -1
    body = OffsetDeleteRequest(group_id="unknown", topics=[])
    assert broker.ask(Api.OFFSET_DELETE, 0, body).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", every_version(Api.DESCRIBE_GROUPS))
def test_groups_are_described(broker: Broker, version: int) -> None:
    """One that is not known is dead, without an error."""
    member_id, _ = stable_member(broker)
    body = DescribeGroupsRequest(groups=[GROUP, "unknown"])
    known, unknown = broker.ask(Api.DESCRIBE_GROUPS, version, body).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    (member,) = known.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
    assert member.member_assignment == b"assigned"
    assert (unknown.error_code, unknown.group_state, unknown.members) == (0, "Dead", [])
    lose(broker)
    lost, _ = broker.ask(Api.DESCRIBE_GROUPS, version, body).groups
    assert (lost.error_code, lost.group_state) == (ErrorCode.NOT_COORDINATOR, "")


@pytest.mark.parametrize("version", every_version(Api.LIST_GROUPS))
def test_groups_are_listed(broker: Broker, version: int) -> None:
    """With state and type where the version has them."""
    stable_member(broker)
    commit(broker, 5, group="simple")
    response = broker.ask(Api.LIST_GROUPS, version, ListGroupsRequest())
    assert response.error_code == 0
    assert {(each.group_id, each.protocol_type) for each in response.groups} == {(GROUP, "consumer"), ("simple", "")}
    if version >= 4:
        filtered = broker.ask(Api.LIST_GROUPS, version, ListGroupsRequest(states_filter=["sTABLE"]))
        assert [(each.group_id, each.group_state) for each in filtered.groups] == [(GROUP, "Stable")]
    if version >= 5:
        assert {each.group_type for each in response.groups} == {"classic"}
        filtered = broker.ask(Api.LIST_GROUPS, version, ListGroupsRequest(types_filter=["Consumer"]))
        assert filtered.groups == []


def test_groups_that_are_being_loaded_may_be_missing(tmp_path: Path) -> None:
    """The list says so."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        response = broker.ask(Api.LIST_GROUPS, 5, ListGroupsRequest())
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", every_version(Api.DELETE_GROUPS))
def test_groups_are_deleted(broker: Broker, version: int) -> None:
    """Those without members, each with its own error."""
    stable_member(broker)
    commit(broker, 5, group="simple")
    response = broker.ask(Api.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=[GROUP, "simple", "unknown"]))
    assert [(each.group_id, each.error_code) for each in response.results] == [
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    lose(broker)
    (result,) = broker.ask(Api.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=[GROUP])).results
    assert result.error_code == ErrorCode.NOT_COORDINATOR
