"""The pages on Apache Kafka's own brokers: all of them work, and say in words what only Ottla's brokers tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import expect
from tests.console.browser.chromium import console_page, running_chromium
from tests.console.browser.hostile import GROUP, MARKUP, fill
from tests.console.console_client import running_console
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.long

PAGES = (
    "overview",
    "brokers",
    "doctor",
    "topics",
    "topics/TOPIC",
    "topics/TOPIC/options?q=retention",
    "groups",
    "transactions",
    "security",
    "security/quotas",
)
# Only Ottla's brokers tell these.
UNKNOWN = ("timeline", "clients", "requests", "topics/TOPIC/segments/0", "groups/GROUP")


@pytest.fixture(params=VERSIONS)
def apache(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> Iterator[BrokerProcess]:
    """A broker of Apache Kafka, alone in its cluster."""
    process = new_kafka(request.param, tmp_path, zookeeper_server)
    process.start_on_free_ports()
    yield process
    process.kill()


async def test_every_page_works_on_apache_kafka(apache: BrokerProcess, topic: str) -> None:
    """No error, no finding of axe; records are read and shown as they are."""
    await fill(apache.bootstrap, topic)
    async with (
        running_console(apache.bootstrap) as console,
        running_chromium() as browser,
        console_page(browser, console.base) as tab,
    ):
        for path in (*PAGES, *UNKNOWN):
            await tab.open(path.replace("TOPIC", topic).replace("GROUP", quote(GROUP, safe="")))
            if path in UNKNOWN:
                await expect(tab.page.get_by_text("is not an Ottla broker").first).to_be_visible()
            assert await tab.violations() == [], path
            assert await tab.all_faults() == [], path
        await tab.open(f"topics/{topic}/records?from=start", "tr.record")
        await expect(tab.page.locator("tr.record").first).to_contain_text(MARKUP)
        assert await tab.all_faults() == []
