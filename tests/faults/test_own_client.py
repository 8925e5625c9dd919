"""Our own producer and consumer groups, with brokers killed under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.faults.cluster import BROKER_IDS, Cluster
from tests.faults.own_client import Workload, run_scenario
from tests.faults.shared_clusters import Kind, lent
from tests.faults.steps import kill, replicas_led_by
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip
from tests.kit.waiting import until_async

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.client.consumer.settings import GroupProtocol

KILLS = 2


@pytest.fixture(params=["ottla", pytest.param("kafka", marks=pytest.mark.long_faults)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, protocol: str) -> Iterator[Cluster]:
    """Three brokers, one of which coordinates all groups; ours, then Apache Kafka's."""
    if request.param == "ottla":
        yield from lent(request, Kind(protocol))
        return
    kafka_or_skip()
    made = Cluster(tmp_path, process=KafkaProcess, protocol=protocol)
    try:
        made.start()
        yield made
    finally:
        made.close()


async def test_killing_leaders_under_our_client_loses_and_doubles_nothing(cluster: Cluster, topic: str) -> None:
    """One leader after the other: what was sent is stored once and in order, and the group reads all of it."""

    async def kill_leaders(_: Workload) -> AsyncIterator[None]:
        for killed in range(KILLS):
            leader = cluster.state.partition(topic, killed).leader
            await asyncio.to_thread(kill, cluster, leader)
            yield
            if killed + 1 < KILLS:
                await asyncio.to_thread(cluster.start_brokers, leader)
                await asyncio.to_thread(cluster.wait_for_full_isr, topic, replicas_led_by(*BROKER_IDS))

    await run_scenario(cluster, topic, BROKER_IDS, kill_leaders)


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
async def test_our_groups_go_on_when_their_coordinator_is_killed(
    cluster: Cluster, topic: str, group_protocol: GroupProtocol
) -> None:
    """They find the next one, share the partitions as before, and skip nothing."""
    if group_protocol == "consumer" and isinstance(cluster.brokers[1], KafkaProcess):
        pytest.skip("Kafka has the new protocol only without ZooKeeper")

    async def kill_coordinator(workload: Workload) -> AsyncIterator[None]:
        coordinator = cluster.state.partition(CONSUMER_OFFSETS, 0).leader
        await asyncio.to_thread(kill, cluster, coordinator)
        await asyncio.to_thread(partial(_wait_for_another_leader, cluster, coordinator))
        yield
        await until_async(workload.is_shared)
        yield

    await run_scenario(cluster, topic, BROKER_IDS, kill_coordinator, group_protocol)


def _wait_for_another_leader(cluster: Cluster, broker: int) -> None:
    cluster.wait_for_partition(CONSUMER_OFFSETS, 0, lambda state: state.leader not in (-1, broker))
