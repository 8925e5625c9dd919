"""Transactions through the console: what holds back readers, and how it is ended."""

from __future__ import annotations

from tests.console.console_client import ConsoleClient
from tests.kit.broker_process import BrokerProcess

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.producer.producer import Producer


async def test_an_open_transaction_holds_back_readers_until_it_is_fenced(
    console: ConsoleClient, broker: BrokerProcess, topic: str
) -> None:
    """It is named with its age and what waits behind it; aborting it in one partition is refused, fencing ends it."""
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=1)])
    name = f"payments-{topic}"
    async with Producer(bootstrap_servers=broker.bootstrap, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"not yet")
        async with Producer(bootstrap_servers=broker.bootstrap) as other:
            await other.send_and_wait(topic, b"behind")

        (row,) = (await console.get("/transactions", q=name))["items"]
        assert (row["transactional_id"], row["state"], row["partitions"]) == (name, "Ongoing", [f"{topic}-0"])
        assert row["started_ms"] > 0
        (held,) = (await console.get("/transactions/open", topic=topic))["items"]
        assert (held["start_offset"], held["last_stable_offset"], held["waiting"], held["holds"]) == (
            "0",
            "0",
            "2",
            True,
        )
        assert (held["transactional_id"], held["is_hanging"]) == (name, False)
        committed = await console.lines(f"/topics/{topic}/records", **{"from": "start"})
        everything = await console.lines(
            f"/topics/{topic}/records", **{"from": "start", "isolation": "read_uncommitted"}
        )
        assert (len(committed), len(everything)) == (1, 3)

        abort = {"topic": topic, "partition": 0, "producer_id": held["producer_id"], "producer_epoch": 0}
        problem = await console.post("/transactions/abort", abort, status=409)
        assert problem["advice"] == f"Fence {name} instead."
        preview = await console.post("/transactions/fence", {"transactional_id": name})
        assert (preview["is_dry_run"], preview["command"]) == (True, f"ottla transaction fence {name}")
        await console.post("/transactions/fence", {"transactional_id": name, "dry_run": False})
        assert (await console.get("/transactions/open", topic=topic))["items"] == []
        committed = await console.lines(f"/topics/{topic}/records", **{"from": "start"})
        assert [line["value"]["text"] for line in committed if line["type"] == "record"] == ["behind"]
    await console.post("/transactions/abort", abort, status=404)
    await console.post("/transactions/fence", {"transactional_id": "nothing"}, status=404)
