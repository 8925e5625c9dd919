"""Every page in a real browser: it opens, it is accessible in both themes, and it takes nothing from elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.console.browser.chromium import COLOURS, ConsolePage, console_page, running_chromium
from tests.console.browser.hostile import CLIENT_ID, GROUP, LARGE, MARKUP, fill
from tests.console.console_client import running_console
from tests.kit.broker_process import BrokerProcess, topic_name

# One browser, one console and one tab for all of them.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Shown:
    """The tab, and the topic that is in the cluster."""

    tab: ConsolePage
    topic: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(broker: BrokerProcess) -> AsyncIterator[Shown]:
    """A tab with the console of a broker that has hostile names and values in it."""
    topic = topic_name()
    await fill(broker.bootstrap, topic)
    async with (
        running_console(broker.bootstrap) as console,
        running_chromium() as browser,
        console_page(browser, console.base) as tab,
    ):
        yield Shown(tab, topic)


PAGES = (
    "overview",
    "brokers",
    "brokers/1",
    "timeline",
    "doctor",
    "topics?internal=yes",
    "topics/TOPIC",
    "topics/TOPIC/records?columns=value.id,value.user&from=start",
    "topics/TOPIC/segments/0",
    "topics/TOPIC/options",
    "records",
    "groups",
    "groups/GROUP",
    "transactions",
    "segments",
    "clients",
    "requests",
    "options/1?q=retention",
    "options/all",
    "security",
    "security/may?principal=User%3A%3Cb%3E&name=x",
    "security/users",
    "security/quotas",
)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_opens_and_is_accessible_in_both_themes(shown: Shown, path: str) -> None:
    """No error, no report of the policy, no request elsewhere, no finding of axe, and nothing hostile has run."""
    tab = shown.tab
    await tab.use_theme("light")
    await tab.open(path.replace("TOPIC", shown.topic).replace("GROUP", quote(GROUP, safe="")))
    assert await tab.violations() == []
    await tab.use_theme("dark")
    assert await tab.violations(COLOURS) == []
    assert await tab.page.evaluate("[window.__harmed, document.querySelectorAll('main img, main script').length]") == [
        None,
        0,
    ]
    assert await tab.all_faults() == []


async def test_hostile_names_and_values_are_shown_as_text(shown: Shown) -> None:
    """Keys, values, headers, groups and client ids are what they are; a number of 64 bits is not rounded."""
    page = shown.tab.page
    await shown.tab.open(
        f"topics/{shown.topic}/records?columns=value.id,value.user&from=start&partition=1", "tr.record"
    )
    row = page.locator("tr.record").first
    await expect(row).to_contain_text(MARKUP)
    await expect(row).to_contain_text(LARGE)
    await row.get_by_role("button").click()
    detail = page.locator(".record-detail")
    await expect(detail.locator("pre").last).to_contain_text(f'"id": {LARGE}')
    await expect(detail).to_contain_text(f"trace {MARKUP}")
    await detail.get_by_role("button", name="Hex").click()
    await expect(detail.locator("pre").last).to_contain_text("000000  7b 22 69 64")
    await shown.tab.open("groups", "table")
    await page.get_by_role("link", name=GROUP, exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(GROUP)
    await shown.tab.open(f"topics/{shown.topic}", ".tiles")
    await expect(page.get_by_role("link", name=GROUP, exact=True)).to_be_visible()
    assert CLIENT_ID.endswith(MARKUP)
    assert await page.evaluate("window.__harmed") is None
    assert await shown.tab.all_faults() == []


async def test_a_topic_is_created_and_deleted_with_its_name_typed(shown: Shown) -> None:
    """Both show what would happen and the command first; the button to delete waits for the name."""
    tab, page, name = shown.tab, shown.tab.page, topic_name()
    await tab.open("topics", "table")
    await page.get_by_role("button", name="Create a topic").click()
    dialog = page.get_by_role("dialog")
    assert await tab.violations() == []
    await dialog.get_by_label("Name", exact=True).fill(name)
    await dialog.get_by_label("Partitions").fill("2")
    await dialog.get_by_role("button", name="Check").click()
    await expect(dialog).to_contain_text("nothing has changed yet")
    await expect(dialog).to_contain_text(f"ottla topic create {name} -p 2")
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog).to_contain_text("Done")
    await dialog.get_by_role("button", name="Close").last.click()
    # The cluster may have more topics than a page shows.
    await page.get_by_label("Search topics").fill(name)
    await page.get_by_role("link", name=name, exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    await expect(page.get_by_role("heading", level=1)).to_be_focused()
    await page.get_by_role("button", name="Delete").click()
    await expect(dialog).to_contain_text(f"ottla topic delete {name}")
    delete = dialog.get_by_role("button", name="Delete the topic")
    await expect(delete).to_be_disabled()
    await dialog.get_by_label(f"Type {name} to confirm").fill(name)
    await delete.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert await tab.all_faults() == []


async def test_a_record_is_written_and_followed(shown: Shown) -> None:
    """A live tail shows what is written meanwhile, and pauses."""
    tab, page = shown.tab, shown.tab.page
    await tab.open(f"topics/{shown.topic}/records?live=yes", ".status-line")
    await expect(page.locator("tr.record").first).to_be_visible()
    await page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Key", exact=True).fill("written here")
    await dialog.get_by_label("Value", exact=True).fill('{"n": 12345678901234567890}')
    await dialog.get_by_role("button", name="Check").click()
    await expect(dialog).to_contain_text("nothing has changed yet")
    await expect(dialog).to_contain_text("key of 12 bytes, value of 27 bytes, 0 headers")
    await expect(dialog).to_contain_text("ottla topic produce")
    await dialog.get_by_role("button", name="Write the record").click()
    await expect(dialog).to_contain_text("Written to partition")
    await dialog.get_by_role("button", name="Close").last.click()
    await expect(page.locator("tr.record").first).to_contain_text("12345678901234567890")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(".status-line")).to_contain_text("Paused")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.locator(".status-line")).to_contain_text("Live")
    await expect(page.locator(".status-line")).to_contain_text("records read")
    offsets = await page.locator("tr.record").evaluate_all(
        "rows => rows.map((row) => row.innerText.split('\\t').slice(0, 2).join())"
    )
    assert len(set(offsets)) == len(offsets)
    assert await tab.violations() == []
    assert await tab.all_faults() == []


async def test_a_view_survives_a_reload_and_the_back_button(shown: Shown) -> None:
    """What is chosen stands in the URL."""
    tab, page = shown.tab, shown.tab.page
    await tab.open("topics", "table")
    await page.get_by_label("Search topics").fill(shown.topic)
    await page.wait_for_url(f"**/topics?q={shown.topic}")
    await page.reload()
    await expect(page.get_by_label("Search topics")).to_have_value(shown.topic)
    await page.get_by_role("link", name=shown.topic, exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(shown.topic)
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    await page.keyboard.press("Control+k")
    await page.keyboard.type(shown.topic)
    await expect(page.get_by_role("option", name=shown.topic)).to_be_visible()
    assert await tab.violations() == []
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await tab.all_faults() == []


async def test_at_400_pixels_nothing_but_tables_scrolls_sideways(shown: Shown) -> None:
    """The menu becomes a button."""
    tab, page = shown.tab, shown.tab.page
    await page.set_viewport_size({"width": 400, "height": 850})
    try:
        for path in ("overview", f"topics/{shown.topic}", f"topics/{shown.topic}/records", "options/1", "clients"):
            await tab.open(path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= 400, path
        await page.get_by_role("button", name="Menu").click()
        assert await tab.violations() == []
        await page.get_by_role("link", name="Groups").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
        await expect(page.get_by_role("link", name="Doctor")).to_be_hidden()
    finally:
        await page.set_viewport_size({"width": 1440, "height": 900})


async def test_a_console_with_passwords_shows_the_login_and_nothing_else(broker: BrokerProcess) -> None:
    """Whatever the URL names."""
    async with (
        running_console(broker.bootstrap, client={"security_protocol": "SASL_PLAINTEXT"}) as console,
        running_chromium() as browser,
        console_page(browser, console.base, is_expected=lambda text: "401" in text) as tab,
    ):
        await tab.open("topics", "form.login")
        await expect(tab.page.get_by_label("User")).to_be_visible()
        await expect(tab.page.get_by_role("navigation")).to_have_count(0)
        assert await tab.violations() == []
        await tab.use_theme("dark")
        assert await tab.violations() == []
        assert await tab.all_faults() == []
