"""The console on Apache Kafka's own brokers: the same answers, and in words what only our brokers tell."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.console.console_client import running_console
from tests.console.test_routes import QUERIES, READS, fill
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of Kafka, alone in its cluster."""
    process = new_kafka(request.param, tmp_path_factory.mktemp("kafka"), zookeeper_server)
    process.start_on_free_ports()
    yield process
    process.kill()


async def test_every_read_works_and_says_what_is_unknown(kafka: BrokerProcess, topic: str) -> None:
    """Only what brokers of Kafka cannot tell is left out."""
    await fill(kafka, topic)
    group = f"group-{topic}"
    values = {"topic": topic, "group": group, "partition": "0", "broker_id": "1", "kind": "topic", "name": topic}
    async with running_console(kafka.bootstrap) as console:
        broker_id = str((await console.get("/overview"))["brokers"][0]["broker_id"])
        values["broker_id"] = broker_id
        for route in READS:
            answer = await console.get(route.path.format(**values), **QUERIES.get(route.path, {}))
            msgspec.convert(answer, route.answer)
        told = f"broker {broker_id} serves no HTTP, or is not an Ottla broker"
        for path in ("/clients", "/requests", "/timeline", f"/topics/{topic}/partitions/0/segments"):
            answer = await console.get(path)
            assert (answer["items"], answer["unknown"]) == ([], told)
        shown = await console.get(f"/groups/{group}")
        assert (shown["lag"], shown["rebalances"], shown["rebalances_unknown"]) == ("10", [], told)
        assert 0 <= shown["lag_ms"] < 600_000
        overview = await console.get("/overview")
        assert overview["rates"]["source"] == "offsets"


async def test_records_and_changes_work(kafka: BrokerProcess, topic: str) -> None:
    """Reading, writing, options, offsets of groups, and deleting."""
    await fill(kafka, topic)
    async with running_console(kafka.bootstrap) as console:
        lines = await console.lines(f"/topics/{topic}/records", **{"from": "start", "filter": "value.n > 17"})
        assert [line["offset"] for line in lines if line["type"] == "record"] == ["18", "19"]
        written = await console.post(f"/topics/{topic}/records", {"value": {"text": "x"}})
        assert written["offset"] == "20"
        change = {"set": {"retention.ms": "5000000"}, "dry_run": False}
        await console.send("PATCH", f"/options/topic/{topic}", change)
        changed = (await console.get(f"/options/topic/{topic}", changed=True))["items"]
        (row,) = [each for each in changed if each["name"] == "retention.ms"]
        assert (row["value"], row["source"]) == ("5000000", "topic")
        await console.post(f"/groups/group-{topic}/seek", {"to": "end", "dry_run": False})
        assert (await console.get(f"/groups/group-{topic}"))["lag"] == "0"
        await console.send("DELETE", f"/topics/{topic}", {"confirm": topic})
