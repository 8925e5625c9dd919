"""Pages that stay open: while a broker dies, while thousands of records arrive, and on a cluster with many topics."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect
from tests.console.browser.chromium import console_page, running_chromium
from tests.console.browser.hostile import GROUP, fill
from tests.console.console_client import ConsoleClient, running_console
from tests.kit.broker_process import BrokerProcess, MakeBroker, topic_name
from tests.kit.waiting import until_async
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.producer.producer import Producer

pytestmark = pytest.mark.long

_log = logging.getLogger(__name__)

FAST = (
    "zookeeper.session.timeout.ms=2000",
    "offsets.topic.replication.factor=3",
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "num.partitions=3",
)
# While a broker is being lost, requests to the console may fail; the page says so, and the browser logs each of them.
_FAILED_REQUEST = "Failed to load resource"
PAGES = (
    "overview",
    "brokers",
    "brokers/3",
    "timeline",
    "doctor",
    "topics",
    "topics/orders",
    "topics/orders/records",
    "topics/orders/records?live=yes",
    "topics/orders/segments/0",
    "topics/orders/options",
    "groups",
    "groups/GROUP",
    "transactions",
    "clients",
    "requests",
    "options/1?changed=yes",
    "security/quotas",
)


def pictures(tmp_path: Path) -> Path:
    """Return where pictures of pages go: docs/images takes some of them."""
    folder = Path(os.environ.get("OTTLA_SCREENSHOTS", tmp_path / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@asynccontextmanager
async def writing(bootstrap: str, topic: str, per_second: int) -> AsyncIterator[None]:
    """Write records at a steady rate; brokers may go away meanwhile."""

    async def write() -> None:
        async with Producer(bootstrap_servers=bootstrap, client_id="shop-web") as producer:
            began, sent = time.monotonic(), 0
            while True:
                due = int((time.monotonic() - began) * per_second)
                for number in range(sent, due):
                    value = b'{"id": %d, "user": "alice", "total": 12.5}' % (2**53 + number)
                    await producer.send(topic, value, key=b"%d" % (number % 50))
                sent = due
                await asyncio.sleep(0.05)

    task = asyncio.create_task(write())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.timeout(900)
async def test_pages_show_what_is_left_while_a_broker_is_killed(
    make_broker: MakeBroker, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Every page stays usable and accessible, says what is missing, and is well again when the broker is back."""
    connect = ZooKeeper(zookeeper_server).connect
    brokers = [make_broker(*FAST, zookeeper=connect, broker_id=number) for number in (1, 2, 3)]
    bootstrap = ",".join(each.bootstrap for each in brokers)
    await fill(bootstrap, "orders", partitions=3)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        sizes = {"payments": 6, "clicks": 12, "audit-log": 3, "orders.dlq": 1}
        await admin.create_topics([NewTopic(name, num_partitions=size) for name, size in sizes.items()])
    folder = pictures(tmp_path)
    async with (
        running_console(bootstrap) as console,
        running_chromium() as browser,
        console_page(browser, console.base, is_expected=lambda text: _FAILED_REQUEST in text) as tab,
        console_page(browser, console.base, width=400, height=850, theme="dark") as small,
        writing(bootstrap, "orders", 50),
    ):
        await tab.open("overview", ".brokers-picture")
        await expect(tab.page.get_by_text("All is well.")).to_be_visible(timeout=60_000)
        # Charts begin with the second point.
        await tab.page.wait_for_selector(".u-over")
        await tab.page.screenshot(path=folder / "console-overview.png")
        for path in PAGES:
            name = path.replace("GROUP", "group").translate(str.maketrans("/?=", "---"))
            for each, size in ((tab, 1440), (small, 400)):
                await each.open(_address(path))
                await each.page.screenshot(path=folder / f"{name}-{size}.png")
            assert await small.violations() == [], path
        assert await small.all_faults() == []

        await tab.open("overview", ".brokers-picture")
        brokers[2].kill()
        await expect(tab.page.get_by_text("Broker 3 is down.")).to_be_visible(timeout=60_000)
        await expect(tab.page.locator(".cells .cell.lagging").first).to_be_visible(timeout=60_000)
        await tab.page.screenshot(path=folder / "console-broker-down.png")
        for path in PAGES:
            await tab.open(_address(path))
            await expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
            assert await tab.violations() == [], path
            assert await tab.all_faults() == [], path
        await tab.open("brokers/3")
        await expect(tab.page.get_by_text("It is down.", exact=True)).to_be_visible()

        await tab.open("overview", ".brokers-picture")
        brokers[2].start()
        await expect(tab.page.get_by_text("All is well.")).to_be_visible(timeout=60_000)
        assert await tab.all_faults() == []


def _address(path: str) -> str:
    return path.replace("GROUP", quote(GROUP, safe=""))


async def test_a_live_tail_of_2000_records_a_second_takes_no_more_memory_with_time(
    broker: BrokerProcess,
) -> None:
    """The page keeps the newest records only; heap and nodes after 20 seconds are those after 5, and a little."""
    topic = topic_name()
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=3)])
    async with (
        running_console(broker.bootstrap) as console,
        running_chromium() as browser,
        console_page(browser, console.base) as tab,
        writing(broker.bootstrap, topic, 2000),
    ):
        await tab.open(f"topics/{topic}/records?live=yes", "tr.record")
        await _read(tab.page, 10_000)
        heap, nodes = await _memory(tab.page)
        await _read(tab.page, 50_000)
        later_heap, later_nodes = await _memory(tab.page)
        _log.info("heap %d then %d bytes, %d then %d nodes", heap, later_heap, nodes, later_nodes)
        assert await tab.page.locator("tr.record").count() <= 500
        assert later_heap < heap * 1.5 + 4_000_000
        assert later_nodes < nodes * 1.5 + 2_000
        assert await tab.all_faults() == []


async def _read(page: Page, records: int) -> None:
    """Wait until the tail has read so many records."""

    async def read() -> bool:
        text = await page.locator(".status-line").inner_text()
        digits = "".join(part for part in text.partition("records read")[0] if part.isdigit())
        return int(digits or 0) >= records

    await until_async(read, f"{records} records were read", seconds=120)


async def _memory(page: Page) -> tuple[int, int]:
    """Return the bytes of JavaScript's heap and the number of nodes, after a collection."""
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.enable")
    await session.send("HeapProfiler.collectGarbage")
    await session.send("Performance.enable")
    found = (await session.send("Performance.getMetrics"))["metrics"]
    metrics = {each["name"]: each["value"] for each in found}
    await session.detach()
    return int(metrics["JSHeapUsedSize"]), int(metrics["Nodes"])


@pytest.fixture
def crowded(make_broker: MakeBroker) -> BrokerProcess:
    """A broker with 10,000 topics; it takes minutes to create them on a busy machine."""
    broker = make_broker("num.partitions=1")
    asyncio.run(_many_topics(broker.bootstrap, 10_000))
    return broker


@pytest.mark.timeout(1200)
async def test_ten_thousand_topics_are_searched_sorted_and_paged(crowded: BrokerProcess) -> None:
    """The list has pages, the overview the most urgent partitions, and both stay small."""
    async with (
        running_console(crowded.bootstrap) as console,
        running_chromium() as browser,
        console_page(browser, console.base) as tab,
    ):
        await _warm(console)
        began = time.monotonic()
        await tab.open("topics", "table")
        _log.info("the first page of 10,000 topics after %.2f s", time.monotonic() - began)
        page = tab.page
        await expect(page.locator(".pager")).to_contain_text("100 of 10,000 topics")
        await page.get_by_role("button", name="Next page").click()
        await expect(page.get_by_role("link", name="many-00100", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Back").click()
        await expect(page.get_by_role("link", name="many-00000", exact=True)).to_be_visible()
        await page.get_by_label("Search topics").fill("many-0999")
        await expect(page.locator(".pager")).to_contain_text("10 of 10 topics")
        await page.get_by_role("button", name="Partitions").click()
        await page.wait_for_url("**sort=-partitions**")
        await tab.open("overview", ".cells")
        await expect(page.get_by_text("most urgent of 10,000 partitions")).to_be_visible()
        assert await page.locator(".cell").count() < 1_000
        assert await tab.all_faults() == []


async def _many_topics(bootstrap: str, count: int) -> None:
    async with Admin(bootstrap_servers=bootstrap, request_timeout_ms=120_000) as admin:
        for start in range(0, count, 500):
            names = [f"many-{number:05}" for number in range(start, start + 500)]
            await admin.create_topics([NewTopic(name, num_partitions=1) for name in names])


async def _warm(console: ConsoleClient) -> None:
    await console.get("/topics", limit=1)
