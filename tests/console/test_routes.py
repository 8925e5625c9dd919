"""Every route on a real broker: it answers what its types say, and what is true of the cluster."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
from tests.console.console_client import ConsoleClient
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until_async

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.console.api.table import ROUTES
from ottla.console.web.route import Route

READS = [route for route in ROUTES if route.method == "GET" and route.stream is None]
QUERIES: dict[str, dict[str, Any]] = {
    "/acls/explain": {"principal": "alice", "operation": "read", "resource_name": "orders"},
    "/search": {"q": "t"},
}


@pytest.fixture
def values(topic: str) -> dict[str, str]:
    """What stands in paths."""
    return {
        "topic": topic,
        "group": f"group-{topic}",
        "partition": "0",
        "broker_id": "1",
        "kind": "topic",
        "name": topic,
    }


async def fill(broker: BrokerProcess, topic: str, records: int = 20) -> None:
    """Make a topic with records, and a group that has read half of them."""
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=1)])
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(records):
            await producer.send(topic, json.dumps({"n": number}).encode(), key=b"k%d" % number, headers=[("h", b"v")])
    async with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        max_poll_records=records // 2,
        enable_auto_commit=False,
    ) as consumer:
        read = 0
        while read < records // 2:
            read += sum(map(len, (await consumer.getmany(timeout_ms=5_000)).values()))
        await consumer.commit()


async def test_every_read_fits_its_type(
    console: ConsoleClient, broker: BrokerProcess, topic: str, values: dict[str, str]
) -> None:
    """What openapi.json says is what comes, on a cluster that has something to show."""
    await fill(broker, topic)
    description = await console.get("/openapi.json")
    for route in READS:
        answer = await console.get(route.path.format(**values), **QUERIES.get(route.path, {}))
        msgspec.convert(answer, route.answer)
        assert set(answer) <= set(_properties(description, route)), route.path


async def test_a_topic_has_numbers_that_are_not_rounded(
    console: ConsoleClient, broker: BrokerProcess, topic: str
) -> None:
    """64 bits are text; the group that reads it is named."""
    await fill(broker, topic)
    detail = await console.get(f"/topics/{topic}")
    (partition,) = detail["partitions"]
    assert (partition["start_offset"], partition["end_offset"], detail["records"]) == ("0", "20", "20")
    assert partition["replicas"][0]["is_in_sync"] is True
    assert int(detail["size_bytes"]) > 0
    assert abs(time.time() * 1000 - detail["last_write_ms"]) < 600_000
    rows = await console.get("/topics", q=topic)
    (row,) = rows["items"]
    assert (row["name"], row["records"], rows["total"], rows["next"]) == (topic, "20", 1, None)


async def test_one_search_finds_topics_and_groups(console: ConsoleClient, broker: BrokerProcess, topic: str) -> None:
    """The exact name first."""
    await fill(broker, topic, 2)
    hits = await console.get("/search", q=topic.upper())
    assert [(hit["kind"], hit["name"]) for hit in hits["items"]] == [("topic", topic), ("group", f"group-{topic}")]


async def test_a_group_has_its_lag_in_records_and_in_time(
    console: ConsoleClient, broker: BrokerProcess, topic: str
) -> None:
    """Ten of twenty are read; the eleventh waits since it was written. The coordinator knows why it was rebalanced."""
    await fill(broker, topic)
    group = await console.get(f"/groups/group-{topic}")
    (partition,) = group["partitions"]
    assert (partition["committed_offset"], partition["lag"], group["lag"]) == ("10", "10", "10")
    assert 0 <= partition["lag_ms"] < 600_000
    assert group["rebalances_unknown"] is None
    assert any("joined" in each["cause"] for each in group["rebalances"])
    assert all(each["advice"] for each in group["rebalances"] if "joined from" in each["cause"])
    (row,) = (await console.get("/groups", q=f"group-{topic}"))["items"]
    assert (row["lag"], row["topics"], row["error"]) == ("10", [topic], None)
    assert 0 <= row["lag_ms"] < 600_000
    # It has no members, and reads nothing.
    assert (row["progress"], row["stopped_partitions"], group["progress"]) == ("stopped", 1, "stopped")


async def test_what_only_a_broker_knows(console: ConsoleClient, broker: BrokerProcess, topic: str) -> None:
    """Its clients with their software, phases of requests, segments, and what happened."""
    await fill(broker, topic)
    async with Producer(bootstrap_servers=broker.bootstrap, client_id=f"client-{topic}") as producer:
        await producer.send_and_wait(topic, b"x")

        # Answers are shared for a while, so the first may be older than what is asked about.
        async def producing() -> dict[str, Any] | None:
            rows = (await console.get("/clients", q=f"client-{topic}"))["items"]
            return next((each for each in rows if "Produce" in each["apis"]), None)

        row = await until_async(producing, "the producer is shown")
    assert row is not None
    assert (row["principal"], row["address"], row["broker_id"]) == ("User:ANONYMOUS", "127.0.0.1", 1)
    assert row["software"].startswith("ottla")

    async def is_counted() -> bool:
        rows = (await console.get("/requests"))["items"]
        return any(row["api"] == "Produce" and int(row["requests"]) >= 1 for row in rows)

    await until_async(is_counted, "Produce is counted")
    segments = await console.get(f"/topics/{topic}/partitions/0/segments")
    (segment,) = segments["items"]
    assert (segment["next_offset"], segment["is_active"]) == ("21", True)

    told: dict[str, Any] = {}

    async def is_told() -> bool:
        told.update(await console.get("/timeline", q=topic))
        return f"User:ANONYMOUS created topic {topic}" in [each["text"] for each in told["items"]]

    await until_async(is_told, lambda: f"the timeline tells of the new topic: {told}")


async def test_lists_come_in_parts(console: ConsoleClient, broker: BrokerProcess, topic: str) -> None:
    """Each part begins after the one before, in any order."""
    names = [f"{topic}-{number}" for number in range(5)]
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, num_partitions=1) for name in names])
    for sort, expected in (("name", names), ("-name", names[::-1])):
        found: list[str] = []
        query: dict[str, Any] = {"q": f"{topic}-*", "limit": 2, "sort": sort}
        while True:
            part = await console.get("/topics", **query)
            assert part["total"] == 5
            found += [row["name"] for row in part["items"]]
            if part["next"] is None:
                break
            query["after"] = part["next"]
        assert found == expected
    await console.get("/topics", status=400, sort="colour")
    await console.get("/topics", status=410, after="gone")


async def test_options_say_where_they_come_from(console: ConsoleClient, broker: BrokerProcess, topic: str) -> None:
    """A change is checked first, then made; the command does the same."""
    await fill(broker, topic, 2)
    change = {"set": {"retention.ms": "1000"}, "unset": ["segment.bytes"], "dry_run": True}
    preview = await console.send("PATCH", f"/options/topic/{topic}", change)
    assert preview["is_dry_run"] is True
    assert preview["changes"][0]["after"] == "1000"
    assert preview["command"] == (
        f"ottla config set topic {topic} retention.ms=1000 && ottla config unset topic {topic} segment.bytes"
    )
    (row,) = [
        each for each in (await console.get(f"/options/topic/{topic}"))["items"] if each["name"] == "retention.ms"
    ]
    assert (row["value"], row["is_default"]) == (preview["changes"][0]["before"], True)
    await console.send("PATCH", f"/options/topic/{topic}", {**change, "dry_run": False})
    (row,) = (await console.get(f"/options/topic/{topic}", changed=True))["items"]
    assert (row["name"], row["value"], row["source"], row["default_value"]) == (
        "retention.ms",
        "1000",
        "topic",
        preview["changes"][0]["before"],
    )
    assert row["documentation"]
    assert row["synonyms"][0]["source"] == "topic"
    problem = await console.send(
        "PATCH", f"/options/topic/{topic}", {"set": {"retention.ms": "x"}, "dry_run": False}, status=400
    )
    assert problem["code"] == "INVALID_CONFIG"


async def test_a_topic_is_created_and_deleted_by_its_name(console: ConsoleClient, topic: str) -> None:
    """A wrong name deletes nothing; the answers have the commands."""
    created = await console.post("/topics", {"name": topic, "partitions": 2, "configs": {"retention.ms": "1"}})
    assert created["command"] == f"ottla topic create {topic} -p 2 -c retention.ms=1"
    assert (await console.post("/topics", {"name": topic}, status=409))["code"] == "TOPIC_ALREADY_EXISTS"
    assert (await console.post("/topics", {"name": "a/b"}, status=400))["code"] == "INVALID_TOPIC_EXCEPTION"
    more = await console.post(f"/topics/{topic}/partitions", {"total": 3, "dry_run": False})
    assert more["changes"][0]["after"] == "3 partitions"
    await console.send("DELETE", f"/topics/{topic}", {"confirm": "other"}, status=400)

    async def sizes() -> list[int]:
        return [row["partitions"] for row in (await console.get("/topics", q=topic))["items"]]

    async def has_three() -> bool:
        return await sizes() == [3]

    async def is_gone() -> bool:
        return await sizes() == []

    await until_async(has_three, "the topic has three partitions")
    deleted = await console.send("DELETE", f"/topics/{topic}", {"confirm": topic})
    assert deleted["command"] == f"ottla topic delete {topic}"
    await until_async(is_gone, "the topic is gone")
    await console.get(f"/topics/{topic}", status=404)


async def test_a_group_is_sought_after_a_preview(console: ConsoleClient, broker: BrokerProcess, topic: str) -> None:
    """The preview changes nothing, and says what would be read again."""
    await fill(broker, topic)
    group = f"group-{topic}"
    preview = await console.post(f"/groups/{group}/seek", {"to": "start"})
    assert preview["changes"] == [{"subject": f"{topic}-0", "before": "10", "after": "0", "error": None}]
    assert "10 records would be read again." in preview["warnings"]
    assert preview["command"] == f"ottla group seek {group} --to start"
    assert (await console.get(f"/groups/{group}"))["lag"] == "10"
    await console.post(f"/groups/{group}/seek", {"to": "15", "topics": [topic], "dry_run": False})
    assert (await console.get(f"/groups/{group}"))["lag"] == "5"
    await console.post(f"/groups/{group}/seek", {"to": "yesterday"}, status=400)
    await console.send("DELETE", f"/groups/{group}", {"confirm": "x"}, status=400)
    await console.send("DELETE", f"/groups/{group}", {"confirm": group})
    await console.get(f"/groups/{group}", status=404)


async def test_hostile_names_are_data(console: ConsoleClient, broker: BrokerProcess, topic: str) -> None:
    """A group may be called anything: it is found by its exact name, and shown as text."""
    await fill(broker, topic, 2)
    group = "<script>alert(1)</script>/../\"'; rm -rf ~ #\n\u202e%2f"
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        from ottla.protocol.identifiers import TopicPartition

        await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1})
    from urllib.parse import quote

    from yarl import URL

    url = URL(f"{console.base}/api/v1/groups/{quote(group, safe='')}", encoded=True)
    async with console.http.get(url) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        assert (await answer.json())["group_id"] == group
    change = URL(f"{url}/seek", encoded=True)
    async with console.http.post(change, json={"to": "end"}, headers={"X-Ottla-Console": "1"}) as answer:
        command = (await answer.json())["command"]
    import shlex

    assert shlex.split(command) == ["ottla", "group", "seek", group, "--to", "end"]
    assert (await first_event(console, f"group:{group}"))[0] == "group"


async def watched(console: ConsoleClient, watch: str) -> AsyncGenerator[tuple[str, Any], None]:
    """Yield the events of a stream as they come."""
    query = {"watch": watch, "every_ms": "1000"}
    async with console.http.get(f"{console.base}/api/v1/events", params=query) as answer:
        assert answer.content_type == "text/event-stream"
        name = ""
        async for line in answer.content:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)
    raise AssertionError("the stream ended")


async def first_event(console: ConsoleClient, watch: str) -> tuple[str, Any]:
    """Return the first event of a stream."""
    async with contextlib.aclosing(watched(console, watch)) as events:
        return await anext(events)


async def test_changes_come_as_events(console: ConsoleClient, broker: BrokerProcess, topic: str) -> None:
    """A page that watches a topic hears of new records without asking."""
    await fill(broker, topic, 2)
    async with contextlib.aclosing(watched(console, f"topic:{topic}")) as events:
        _, first = await anext(events)
        async with Producer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait(topic, b"more")
        # Rates change as well.
        while int((await anext(events))[1]["records"]) == int(first["records"]):
            pass
    name, told = await first_event(console, "topic:nothing")
    assert (name, told["problem"]["status"]) == ("problem", 404)


async def test_the_doctor_finds_nothing_on_a_healthy_cluster(console: ConsoleClient) -> None:
    """The same checks as the command, those with problems first."""
    diagnosis = await console.get("/doctor")
    statuses = [each["status"] for each in diagnosis["items"]]
    assert statuses == sorted(statuses, key=["broken", "warning", "ok"].index)
    assert "broken" not in statuses


def _properties(description: dict[str, Any], route: Route) -> list[str]:
    operation = description["paths"]["/api/v1" + route.path]["get"]
    reference = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    return list(description["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
