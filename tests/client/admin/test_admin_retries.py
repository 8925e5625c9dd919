"""How Admin goes on when leaders, coordinators and controllers move, and with brokers that know old versions only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.scripted_broker import HANGUP, Reply, ScriptedBroker, metadata_response, scripted_broker
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource, NewTopic, OffsetSpec
from ottla.client.errors import KafkaConnectionError, KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Versions
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.delete_groups import DeleteGroupsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.messages.describe_configs import DescribeConfigsResponse
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

pytestmark = BOTH_LOOPS

PARTITION = TopicPartition("t", 0)
Script = Callable[[int, Any], Reply]
# The first version that answers for several groups.
_COORDINATORS_VERSION = 4


class Scene:
    """A broker that leads, coordinates and controls all; `scripts` answer by API, told how often it was asked."""

    def __init__(self, scripts: Mapping[Api, Script], leader: int = 1) -> None:
        self.broker: ScriptedBroker
        self.asked: dict[Api, int] = {}
        self._scripts = scripts
        self._leader = leader

    async def answer(self, api: Api, version: int, request: Any) -> Reply:
        """Answer a request."""
        number = self.asked[api] = self.asked.get(api, 0) + 1
        if api in self._scripts:
            return self._scripts[api](number, request)
        address = self.broker.address
        if api is Api.FIND_COORDINATOR:
            if version < _COORDINATORS_VERSION:
                return FindCoordinatorResponse(error_code=0, node_id=1, host=address.host, port=address.port)
            found = Coordinator(
                key="g", node_id=1, host=address.host, port=address.port, error_code=0, error_message=None
            )
            return FindCoordinatorResponse(coordinators=[found])
        assert api is Api.METADATA
        names = [row.name for row in request.topics or ()]
        errors = {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in names if name != "t"}
        return metadata_response({1: address}, {"t": [self._leader]} if "t" in names else {}, errors=errors)


@asynccontextmanager
async def administrating(
    scene: Scene, *, versions: Mapping[Api, Versions] | None = None, timeout_ms: int = 30_000
) -> AsyncIterator[Admin]:
    """Run the broker of the scene and an admin client of it."""
    offered = None if versions is None else {api: api.versions for api in Api} | dict(versions)
    offered = offered and {api: range_ for api, range_ in offered.items() if range_.first <= range_.last}
    async with scripted_broker(scene.answer, offered) as broker:
        scene.broker = broker
        async with Admin(
            bootstrap_servers=str(broker.address),
            default_api_timeout_ms=timeout_ms,
            retry_backoff_ms=1,
            retry_backoff_max_ms=5,
        ) as admin:
            yield admin


def listed(code: int, offset: int = -1) -> ListOffsetsResponse:
    """Answer ListOffsets for the one partition."""
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset, timestamp=-1, leader_epoch=0)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])


async def test_a_leader_that_moved_is_asked_for_anew() -> None:
    """Retriable errors of a partition are tried again; others stand."""

    def offsets(number: int, request: Any) -> Reply:
        return listed(ErrorCode.NOT_LEADER_OR_FOLLOWER) if number < 3 else listed(0, 7)

    scene = Scene({Api.LIST_OFFSETS: offsets})

    async with administrating(scene) as admin:
        (found,) = await admin.list_offsets({PARTITION: OffsetSpec.LATEST})
        assert (found.offset, scene.asked[Api.LIST_OFFSETS]) == (7, 3)
        # Once to start, once for the topic, and once after each error.
        assert scene.asked[Api.METADATA] >= 4


async def test_what_has_no_leader_fails_when_the_time_is_up() -> None:
    """The error says what was missing."""
    async with administrating(Scene({}, leader=-1), timeout_ms=1_000) as admin:
        (found,) = await admin.list_offsets({PARTITION: -1}, raise_errors=False)
        assert isinstance(found.error, LeaderNotAvailableError)


async def test_a_topic_that_is_missing_is_not_waited_for() -> None:
    """Its error is final, and other partitions have their results."""
    scene = Scene({Api.LIST_OFFSETS: lambda number, request: listed(0, 7)})

    async with administrating(scene) as admin:
        missing = TopicPartition("missing", 0)
        results = await admin.list_offsets({missing: -1, PARTITION: -1}, raise_errors=False)
        assert [each.offset for each in results] == [-1, 7]
        assert isinstance(results[0].error, UnknownTopicOrPartitionError)
        assert scene.asked[Api.METADATA] == 2


async def test_the_controller_and_the_coordinator_are_looked_up_again() -> None:
    """When the one that was asked says that it is another."""

    def created(number: int, request: Any) -> Reply:
        code = ErrorCode.NOT_CONTROLLER if number == 1 else 0
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code, error_message=None)])

    def fetched(number: int, request: Any) -> Reply:
        row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, metadata="", error_code=0)
        topics = [OffsetFetchResponseTopics(name="t", partitions=[row])]
        code = ErrorCode.NOT_COORDINATOR if number == 1 else 0
        group = OffsetFetchResponseGroup(group_id="g", topics=[] if code else topics, error_code=code)
        return OffsetFetchResponse(groups=[group])

    scene = Scene({Api.CREATE_TOPICS: created, Api.OFFSET_FETCH: fetched})

    async with administrating(scene) as admin:
        (topic,) = await admin.create_topics([NewTopic("t")])
        assert (topic.error, scene.asked[Api.CREATE_TOPICS]) == (None, 2)
        (offset,) = await admin.list_group_offsets("g")
        assert (offset.offset, scene.asked[Api.FIND_COORDINATOR]) == (5, 2)


async def test_a_broker_that_breaks_connections_is_asked_again() -> None:
    """And an error that lasts is raised in the end."""

    def groups(number: int, request: Any) -> Reply:
        return HANGUP if number == 1 else ListGroupsResponse(error_code=0, groups=[])

    scene = Scene({Api.LIST_GROUPS: groups, Api.CONSUMER_GROUP_DESCRIBE: lambda number, request: HANGUP})
    async with administrating(scene) as admin:
        assert await admin.list_groups() == ()
    async with administrating(scene, timeout_ms=1_000) as admin:
        (described,) = await admin.describe_groups(["g"], raise_errors=False)
        assert isinstance(described.error, KafkaConnectionError)


async def test_a_broker_that_forgets_what_it_was_asked_gives_an_error() -> None:
    """Not an exception of another kind."""
    scene = Scene(
        {
            Api.CONSUMER_GROUP_DESCRIBE: lambda number, request: ConsumerGroupDescribeResponse(
                throttle_time_ms=0, groups=[]
            ),
            Api.DELETE_GROUPS: lambda number, request: DeleteGroupsResponse(throttle_time_ms=0, results=[]),
            Api.DESCRIBE_CONFIGS: lambda number, request: DescribeConfigsResponse(throttle_time_ms=0, results=[]),
            Api.LIST_OFFSETS: lambda number, request: ListOffsetsResponse(topics=[]),
        }
    )

    async with administrating(scene) as admin:
        (group,) = await admin.describe_groups(["g"], raise_errors=False)
        assert "did not answer" in str(group.error)
        with pytest.raises(KafkaError, match="did not answer for group 'g'"):
            await admin.delete_groups(["g"])
        with pytest.raises(KafkaError, match="did not answer for 't'"):
            await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])
        with pytest.raises(KafkaError, match="did not answer for it"):
            await admin.list_offsets({PARTITION: -1})


async def test_brokers_with_old_versions_are_understood() -> None:
    """OffsetFetch for one group, DeleteTopics by name, groups without KIP-848, an assignment that is no consumer's."""

    def fetched(number: int, request: Any) -> Reply:
        assert (request.group_id, request.topics) == ("g", None)
        row = OffsetFetchResponsePartition(partition_index=0, committed_offset=5, metadata=None, error_code=0)
        none = OffsetFetchResponsePartition(partition_index=1, committed_offset=-1, metadata=None, error_code=0)
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[row, none])])

    def deleted(number: int, request: Any) -> Reply:
        assert request.topic_names == ["t"]
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=0)])

    def described(number: int, request: Any) -> Reply:
        member = DescribedGroupMember(
            member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b"\0\0\xff"
        )
        group = DescribedGroup(
            error_code=0,
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=[member],
        )
        return DescribeGroupsResponse(groups=[group])

    scene = Scene({Api.OFFSET_FETCH: fetched, Api.DELETE_TOPICS: deleted, Api.DESCRIBE_GROUPS: described})

    versions = {
        Api.OFFSET_FETCH: Versions(0, 7),
        Api.DELETE_TOPICS: Versions(0, 5),
        Api.FIND_COORDINATOR: Versions(0, 3),
        Api.CONSUMER_GROUP_DESCRIBE: Versions(1, 0),
    }
    async with administrating(scene, versions=versions) as admin:
        assert [each.offset for each in await admin.list_group_offsets("g")] == [5]
        (topic,) = await admin.delete_topics(["t"])
        assert topic.error is None
        (group,) = await admin.describe_groups(["g"])
        assert (group.type, group.members[0].assignment) == ("classic", ())
