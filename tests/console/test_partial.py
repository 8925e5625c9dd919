"""A broker dies while consoles look: what the others know is still shown, and what is missing is named."""

from __future__ import annotations

from typing import Any

import pytest
from tests.console.console_client import running_console
from tests.kit.broker_process import MakeBroker
from tests.kit.waiting import until_async
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.producer.producer import Producer

FAST = ("zookeeper.session.timeout.ms=1500", "offsets.topic.replication.factor=2", "min.insync.replicas=1")


async def test_a_dead_broker_makes_answers_partial(make_broker: MakeBroker, zookeeper_server: ZooKeeperServer) -> None:
    """Never an error: first it does not answer, then it is no member any more. Nothing is shown as healthy."""
    connect = ZooKeeper(zookeeper_server).connect
    first, second = (make_broker(*FAST, zookeeper=connect, broker_id=number) for number in (1, 2))
    bootstrap = f"{first.bootstrap},{second.bootstrap}"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("both", replica_assignments={0: [1, 2], 1: [2, 1]})])
        await admin.create_topics([NewTopic("second", replica_assignments={0: [2]})])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait("both", b"x", partition=number % 2)
    async with running_console(bootstrap) as console:
        before = await console.get("/overview")
        assert (before["missing"], before["attention"], before["partitions"]["ok"]) == ([], [], 3)
        brokers = {row["broker_id"]: row for row in (await console.get("/brokers"))["items"]}
        assert brokers[2]["safe_to_stop"]["is_safe"] is False
        assert "second-0" in brokers[2]["safe_to_stop"]["reasons"][0]
        second.kill()

        for path in ("/overview", "/topics", "/topics/both", "/groups", "/brokers", "/clients", "/timeline"):
            await console.get(path)

        async def overview() -> Any:
            return await console.get("/overview")

        async def knows() -> Any:
            shown = await overview()
            return shown if shown["partitions"]["offline"] == 1 and shown["partitions"]["lagging"] == 2 else None

        after = await until_async(knows, "the console shows what is gone")
        assert [each["broker_id"] for each in after["missing"]] == [2]
        assert [each["broker_id"] for each in after["brokers"] if not each["is_alive"]] == [2]
        assert [each["severity"] for each in after["attention"]] == ["broken", "warning", "warning"]
        assert "second-0" in after["attention"][0]["found"]
        topic = await console.get("/topics/both")
        assert [each["state"] for each in topic["partitions"]] == ["lagging", "lagging"]
        assert topic["records"] == "10"
        (gone,) = (await console.get("/topics/second"))["partitions"]
        assert (gone["state"], gone["end_offset"], gone["replicas"][0]["is_alive"]) == ("offline", None, False)
        cells = await console.get("/partitions", limit=1)
        assert (cells["items"][0]["topic"], cells["items"][0]["state"], cells["brokers"]) == (
            "second",
            "offline",
            [1, 2],
        )
        await console.get("/topics/second/partitions/0/segments", status=503)
        second.start()
        await until_async(_is_well(console), "all is well again")


def _is_well(console: Any) -> Any:
    async def check() -> bool:
        return bool((await console.get("/overview"))["partitions"]["ok"] == 3)

    return check


async def test_a_cluster_that_is_down_is_a_problem_in_words() -> None:
    """The console itself runs, and says what to do."""
    async with running_console("127.0.0.1:1") as console:
        problem = await console.get("/overview", status=503)
        assert problem["retriable"] is True
        assert "ottla doctor" in problem["advice"]
        doctor = await console.get("/doctor")
        assert [(each["status"], each["change"]) for each in doctor["items"]] == [("broken", "ottla up --detach")]


pytestmark = pytest.mark.timeout(240)
