"""Metadata, and requests to brokers that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.scripted_broker import HANGUP, Reply, ScriptedBroker, metadata_response, scripted_broker
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.errors import KafkaConnectionError, NoBrokersAvailable, NotControllerError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.metadata import BrokerAddress
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import NodeEndpoint

pytestmark = BOTH_LOOPS

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def settings(*brokers: ScriptedBroker, **options: Any) -> ClientSettings:
    """Settings that retry without waiting long."""
    return ClientSettings(
        bootstrap_servers=[str(broker.address) for broker in brokers],
        retry_backoff_ms=1,
        retry_backoff_max_ms=5,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=5,
        **options,
    )


class Script:
    """A cluster of scripted brokers, numbered from 1, that answers Metadata by itself."""

    def __init__(self) -> None:
        self.brokers: dict[int, ScriptedBroker] = {}
        self.leaders: dict[str, list[int]] = {}
        self.leader_epoch = 0
        self.controller_id = 1
        self.errors: dict[str, int] = {}

    async def answer(self, api: Api, version: int, request: Any) -> Reply:
        """Answer a Metadata request with the topics that it asks for."""
        assert api is Api.METADATA
        asked = None if request.topics is None else {row.name for row in request.topics}
        return metadata_response(
            {node_id: broker.address for node_id, broker in self.brokers.items()},
            {topic: of for topic, of in self.leaders.items() if asked is None or topic in asked},
            leader_epoch=self.leader_epoch,
            controller_id=self.controller_id,
            errors={topic: code for topic, code in self.errors.items() if asked is None or topic in asked},
        )


async def test_a_snapshot_tells_of_the_topics_that_were_asked_for() -> None:
    """Missing ones with their error; what is known is not asked for again."""
    script = Script()
    script.leaders = {"a": [1, -1], "b": [1]}
    script.errors = {"missing": 3}
    async with scripted_broker(script.answer) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(broker)) as cluster:
            assert not cluster.snapshot.topics
            snapshot = await cluster.metadata(["a", "missing"])
            assert await cluster.metadata(["a"]) is snapshot
            every = await cluster.metadata(None)

    assert cluster.brokers == {1: BrokerAddress(1, *broker.address)}
    assert (cluster.cluster_id, cluster.controller_id) == ("scripted", 1)
    assert set(snapshot.topics) == {"a", "missing"}
    assert snapshot.topics["missing"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert snapshot.leader(TopicPartition("a", 0)) == 1
    assert snapshot.leader(TopicPartition("a", 1)) is None
    assert snapshot.partitions_for("a") == {0, 1}
    assert snapshot.partitions_for("missing") is None
    assert set(every.topics) == {"a", "b", "missing"}


async def test_start_says_which_addresses_do_not_answer() -> None:
    """All that were tried, in one error."""
    script = Script()
    async with scripted_broker(script.answer) as one, scripted_broker(script.answer) as two:
        pass
    with pytest.raises(NoBrokersAvailable) as caught:
        await ClusterClient(settings(one, two)).start()

    assert str(one.address) in str(caught.value)
    assert str(two.address) in str(caught.value)
    assert "bootstrap_servers" in str(caught.value)


async def test_a_dead_bootstrap_server_does_not_matter_while_another_lives() -> None:
    """Each is tried."""
    script = Script()
    async with scripted_broker(script.answer) as dead:
        pass
    async with scripted_broker(script.answer) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(dead, broker)) as cluster:
            assert set(cluster.brokers) == {1}


async def test_a_broken_connection_is_made_anew() -> None:
    """The request under way fails, since it may have been done; the next one goes through."""
    calls = 0
    script = Script()

    async def answer(api: Api, version: int, request: Any) -> Reply:
        nonlocal calls
        if api is Api.METADATA:
            return await script.answer(api, version, request)
        calls += 1
        return HANGUP if calls == 1 else HeartbeatResponse(error_code=0)

    async with scripted_broker(answer) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(broker)) as cluster:
            with pytest.raises(KafkaConnectionError):
                await cluster.send(1, Api.HEARTBEAT, HEARTBEAT)
            assert (await cluster.send(1, Api.HEARTBEAT, HEARTBEAT)).error_code == 0


async def test_lanes_are_connections_of_their_own() -> None:
    """A request that the broker holds back does not hold up those of another lane."""
    script = Script()
    held = asyncio.Event()

    async def answer(api: Api, version: int, request: Any) -> Reply:
        if api is Api.METADATA:
            return await script.answer(api, version, request)
        if request.generation_id == 1:
            await held.wait()
        return HeartbeatResponse(error_code=request.generation_id)

    async with scripted_broker(answer) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(broker)) as cluster:
            slow = asyncio.ensure_future(cluster.send(1, Api.HEARTBEAT, HEARTBEAT, lane="group"))
            quick = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
            assert (await cluster.send(1, Api.HEARTBEAT, quick)).error_code == 2
            held.set()
            assert (await slow).error_code == 1
        assert broker.connected == 2


async def test_the_controller_is_looked_up_again_when_it_has_moved() -> None:
    """Also when only a row of the answer says so."""
    script = Script()

    def of(node_id: int) -> Any:
        async def answer(api: Api, version: int, request: Any) -> Reply:
            if api is Api.METADATA:
                return await script.answer(api, version, request)
            code = ErrorCode.NOT_CONTROLLER if node_id == 1 else ErrorCode.NONE
            script.controller_id = 2
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code, error_message="")])

        return answer

    async with scripted_broker(of(1)) as one, scripted_broker(of(2)) as two:
        script.brokers = {1: one, 2: two}
        async with ClusterClient(settings(one)) as cluster:
            request = CreateTopicsRequest(topics=[], timeout_ms=1000)
            response = await cluster.send_controller(Api.CREATE_TOPICS, request)
            assert response.topics[0].error_code == 0
            assert cluster.controller_id == 2


async def test_without_a_controller_the_last_reason_is_the_error() -> None:
    """When the time is up."""
    script = Script()
    script.controller_id = -1
    async with scripted_broker(script.answer) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(broker)) as cluster:
            request = CreateTopicsRequest(topics=[], timeout_ms=1000)
            with pytest.raises(NotControllerError):
                await cluster.send_controller(Api.CREATE_TOPICS, request, timeout_ms=50)


@pytest.mark.parametrize("last_version", [3, 6])
async def test_a_coordinator_is_asked_for_until_there_is_one_and_then_remembered(last_version: int) -> None:
    """In both forms of the request."""

    def row(code: int, node_id: int, broker: ScriptedBroker) -> Message:
        if last_version < 4:
            return FindCoordinatorResponse(
                error_code=code, node_id=node_id, host=broker.address.host, port=broker.address.port
            )
        found = Coordinator(
            key="g",
            node_id=node_id,
            host=broker.address.host,
            port=broker.address.port,
            error_code=code,
            error_message=None,
        )
        return FindCoordinatorResponse(coordinators=[found])

    script = Script()
    asked = 0

    async def answer(api: Api, version: int, request: Any) -> Reply:
        nonlocal asked
        if api is Api.METADATA:
            return await script.answer(api, version, request)
        asked += 1
        return row(15, -1, broker) if asked < 3 else row(0, 7, broker)

    versions = {Api.METADATA: Versions(0, 12), Api.FIND_COORDINATOR: Versions(0, last_version)}
    async with scripted_broker(answer, versions) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(broker)) as cluster:
            assert await cluster.coordinator("g") == 7
            assert await cluster.coordinator("g") == 7
            assert asked == 3
            # Metadata need not know of it yet.
            assert cluster.brokers[7] == BrokerAddress(7, *broker.address)
            cluster.forget_coordinator("g")
            assert await cluster.coordinator("g") == 7
            assert asked == 4


async def test_a_refresh_asks_for_the_kept_topics_and_tells_listeners() -> None:
    """Older leader epochs than the one that is known do not count."""
    script = Script()
    script.leaders = {"a": [1]}
    script.leader_epoch = 5
    async with scripted_broker(script.answer) as broker:
        script.brokers = {1: broker, 2: broker}
        async with ClusterClient(settings(broker)) as cluster:
            seen = []
            cluster.add_listener(lambda snapshot: seen.append(snapshot.leader(TopicPartition("a", 0))))
            cluster.add_topics(["a"])
            await cluster.request_refresh()
            script.leaders, script.leader_epoch = {"a": [2]}, 4
            await cluster.request_refresh()
            script.leader_epoch = 6
            await cluster.request_refresh()
            assert seen == [1, 1, 2]


@asynccontextmanager
async def one_and_two(script: Script, newer: Script) -> AsyncIterator[ScriptedBroker]:
    """Run three brokers that all know each other; the first has its own script, and is returned."""
    async with (
        scripted_broker(script.answer) as alone,
        scripted_broker(newer.answer) as one,
        scripted_broker(newer.answer) as other,
    ):
        script.brokers = newer.brokers = {1: alone, 2: one, 3: other}
        yield alone


async def test_a_broker_that_is_cut_off_is_not_the_only_one_to_be_asked() -> None:
    """Although it is connected and the others are not: it would tell the same for ever."""
    script, newer = Script(), Script()
    script.leaders, newer.leaders, newer.leader_epoch = {"a": [1]}, {"a": [2]}, 1
    async with one_and_two(script, newer) as alone, ClusterClient(settings(alone)) as cluster:
        cluster.add_topics(["a"])
        while cluster.leader(TopicPartition("a", 0)) != 2:
            await cluster.request_refresh()


async def test_a_broker_that_does_not_answer_is_the_last_to_be_asked_who_leads() -> None:
    """Chance alone would ask it again and again, now and then, for minutes."""
    script, newer = Script(), Script()
    script.leaders, newer.leaders, newer.leader_epoch = {"a": [1]}, {"a": [2]}, 1
    async with one_and_two(script, newer) as alone:
        for _ in range(20):
            async with ClusterClient(settings(alone)) as cluster:
                cluster.add_topics(["a"])
                await cluster.request_refresh(doubted=alone.address)
                assert cluster.leader(TopicPartition("a", 0)) == 2


async def test_a_broker_that_knows_no_leader_is_not_the_only_one_to_be_asked_for_a_topic() -> None:
    """It may be cut off from the controller, and would say so for ever; another one knows the leader."""
    script, newer = Script(), Script()
    script.leaders, script.errors = {"a": []}, {"a": ErrorCode.LEADER_NOT_AVAILABLE}
    newer.leaders = {"a": [2]}
    async with one_and_two(script, newer) as alone, ClusterClient(settings(alone)) as cluster:
        for _ in range(100):
            if (await cluster.metadata(["a"])).topics["a"].error is ErrorCode.NONE:
                break

        assert cluster.leader(TopicPartition("a", 0)) == 2


async def test_a_broker_that_could_not_be_reached_is_asked_after_the_others() -> None:
    """Each attempt may take long."""
    script = Script()
    async with scripted_broker(script.answer) as dead:
        pass
    async with scripted_broker(script.answer) as broker:
        script.brokers = {1: broker, 2: dead}
        async with ClusterClient(settings(broker)) as cluster:
            with pytest.raises(KafkaConnectionError):
                await cluster.connection(2)
            for _ in range(20):
                assert cluster._addresses(by_chance=True)[0] == broker.address


async def test_a_leader_hint_counts_when_its_epoch_is_newer() -> None:
    """It may name a broker that metadata did not have yet."""
    script = Script()
    script.leaders = {"a": [1]}
    script.leader_epoch = 5
    async with scripted_broker(script.answer) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(broker)) as cluster:
            await cluster.metadata(["a"])
            partition = TopicPartition("a", 0)
            endpoints = [NodeEndpoint(node_id=9, host="elsewhere", port=9)]
            assert not cluster.learn_leader(partition, 9, 5, endpoints)
            assert not cluster.learn_leader(partition, 8, 6, endpoints)
            assert not cluster.learn_leader(partition, -1, -1)
            assert not cluster.learn_leader(TopicPartition("b", 0), 9, 6, endpoints)
            assert cluster.learn_leader(partition, 9, 6, endpoints)
            assert cluster.leader(partition) == 9
            assert cluster.brokers[9] == BrokerAddress(9, "elsewhere", 9)


async def test_requests_find_the_cluster_again_after_all_of_it_was_away() -> None:
    """Requests to any broker are tried until the time is up."""
    script = Script()
    async with scripted_broker(script.answer) as broker:
        script.brokers = {1: broker}
        async with ClusterClient(settings(broker)) as cluster:
            await broker.stop()
            waiting = cluster.request_refresh()
            await waiting
            await broker.start()
            script.leaders = {"a": [1]}
            cluster.add_topics(["a"])
            while cluster.leader(TopicPartition("a", 0)) is None:
                await cluster.request_refresh()
