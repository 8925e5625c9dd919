"""A real browser: Debian's Chromium, driven by Playwright, and pages that note everything that goes wrong in them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright
from tests.kit.apache_kafka import UnavailableError, skip_or_fail

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-precise-memory-info",
)
_TIMEOUT_MS = 60_000
# Other tests make hosts of their own. Chromium then ends its connections, also those to the loopback interface.
_DISTURBED = "ERR_NETWORK_CHANGED"
_ATTEMPTS = 10
# Violations of the policy do not all show up in the log of the console.
_WATCH_POLICY = """
window.__reports = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__reports.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""
# Rules of WCAG 2.2 A and AA, and what axe holds for good practice.
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
# Those that depend on the theme.
COLOURS = ("color-contrast", "link-in-text-block")
Theme = Literal["light", "dark"]


@asynccontextmanager
async def running_chromium() -> AsyncIterator[Browser]:
    """Start a browser without a window; skips the test if this machine has none."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        skip_or_fail(UnavailableError("no Chromium: run scripts/system-packages"))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable, headless=True, args=list(_ARGUMENTS), timeout=_TIMEOUT_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


class ConsolePage:
    """A tab with the console in it; `faults` are errors, reports of the policy, and requests to other hosts."""

    def __init__(self, page: Page, base: str, is_expected: Callable[[str], bool]) -> None:
        self.page = page
        self.faults: list[str] = []
        self._base = base
        self._is_expected = is_expected
        self._is_disturbed = False
        page.set_default_timeout(_TIMEOUT_MS)
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("request", lambda request: self._check_host(request.url))
        page.on("dialog", lambda dialog: self._note("error", f"a dialog: {dialog.message}"))

    async def open(self, path: str, wait_for: str = "main h1") -> None:
        """Load a view from its URL, and wait until it shows something; what it needs may still arrive."""
        for _ in range(_ATTEMPTS):
            self._is_disturbed = False
            self.faults.clear()
            await self.page.goto(f"{self._base}/{path}")
            await self.page.wait_for_selector(f"{wait_for}, .notice.broken")
            if not self._is_disturbed:
                break
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is loading."""
        await self.page.wait_for_selector(".loading", state="detached")

    async def use_theme(self, theme: Theme) -> None:
        """Switch to what the system would say."""
        await self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")

    async def violations(self, rules: Sequence[str] = _RULES) -> list[str]:
        """Return what axe finds, in lines that can be read."""
        found = await Axe().run(self.page, options={"resultTypes": ["violations"], "runOnly": list(rules)})
        return [
            f"{each['id']} ({each['impact']}): {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found.response["violations"]
        ]

    async def all_faults(self) -> list[str]:
        """Return everything that went wrong since the view was opened."""
        reports: list[str] = await self.page.evaluate("window.__reports")
        return [*self.faults, *reports]

    def _note(self, kind: str, text: str) -> None:
        if _DISTURBED in text:
            self._is_disturbed = True
        elif kind in ("error", "warning") and not self._is_expected(text):
            self.faults.append(f"{kind}: {text}")

    def _check_host(self, url: str) -> None:
        parts = urlsplit(url)
        if f"{parts.scheme}://{parts.netloc}" != self._base:
            self.faults.append(f"a request to another host: {url[:200]}")


@asynccontextmanager
async def console_page(
    browser: Browser,
    base: str,
    *,
    width: int = 1440,
    height: int = 900,
    theme: Theme = "light",
    is_expected: Callable[[str], bool] = lambda text: False,
) -> AsyncIterator[ConsolePage]:
    """Open a tab without history or cookies."""
    options: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": theme}
    context = await browser.new_context(**options, reduced_motion="reduce")
    await context.add_init_script(_WATCH_POLICY)
    try:
        yield ConsolePage(await context.new_page(), base, is_expected)
    finally:
        await context.close()
