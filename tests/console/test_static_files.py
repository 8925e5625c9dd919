"""The files of the page: vendored files are as listed, all of it is small, and nothing comes from elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from tests.console.console_client import running_console

from ottla.console.web.static_files import STATIC, preloaded

VENDOR = STATIC / "vendor"
LISTED = json.loads((VENDOR / "VENDORED.json").read_text())["files"]
OWN = sorted(
    path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html") and VENDOR not in path.parents
)
SOURCES = {path.relative_to(STATIC).as_posix(): path.read_text() for path in STATIC.rglob("*.js")}
ALL_BYTES_MAX = 150 * 1024
FIRST_VIEW_BYTES_MAX = 60 * 1024


def test_every_vendored_file_has_the_listed_hash() -> None:
    """A file that somebody changed, added or forgot is found."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    found.pop("VENDORED.json")
    assert found == {entry["file"]: entry["sha256"] for entry in LISTED}


def test_every_vendored_package_has_a_licence_text() -> None:
    """The licence of each library is served with it."""
    packages = {entry["package"] for entry in LISTED}
    licensed = {entry["package"] for entry in LISTED if entry["file"].startswith("LICENSE-")}
    assert packages == licensed
    assert {entry["licence"] for entry in LISTED} == {"MIT", "Apache-2.0"}


def test_all_files_together_are_small() -> None:
    """150 KB with gzip in all, and 60 KB before the first page is shown."""
    sizes = {
        path.relative_to(STATIC).as_posix(): len(gzip.compress(path.read_bytes()))
        for path in STATIC.rglob("*")
        if path.is_file()
    }
    assert sum(sizes.values()) <= ALL_BYTES_MAX
    index = (STATIC / "index.html").read_text()
    first = ["index.html", *preloaded(SOURCES, "/"), *re.findall(r'"__ASSETS__/([^"]+)"', index)]
    assert sum(sizes[name] for name in set(first)) <= FIRST_VIEW_BYTES_MAX


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_a_file_needs_no_other_host_and_no_bundler(path: Path) -> None:
    """Imports are relative, nothing is inline, and names of others are never put into the page as HTML."""
    text = path.read_text()
    for imported in re.findall(r'^(?:import|export|} from)\b.*"([^"]+)";$|\bimport\("([^"]+)"\)', text, re.MULTILINE):
        assert "".join(imported).startswith(("./", "../")), imported
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert forbidden not in text, forbidden
    assert not re.search(r"<script>|<style|\son\w+=\"", text)


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/", "overview"),
        ("/nothing/of/this/name", "overview"),
        ("/topics/orders/records", "records"),
        ("/behind/a/proxy/groups", "groups"),
        ("/topics/..%2F..%2Fapp/options", "options"),
    ],
)
def test_the_modules_of_a_view_are_preloaded(path: str, page: str) -> None:
    """All that its page imports, directly or not; a browser would find them one after the other."""
    found = preloaded(SOURCES, path)
    assert f"pages/{page}.js" in found
    assert "app.js" not in found
    assert len(found) == len(set(found))
    for name in ("app.js", *found):
        for target in re.findall(r'^(?:import|export) .*"([^"]+)";$', SOURCES[name], re.MULTILINE):
            assert (STATIC / name).parent.joinpath(target).resolve().relative_to(STATIC.resolve()).as_posix() in found


async def test_the_page_says_who_asks_and_links_what_it_needs() -> None:
    """Names in it are text; it is not kept for somebody else."""
    client = {"bootstrap_servers": '127.0.0.1:1,"><script>x</script>:2'}
    async with (
        running_console("", client=client) as console,
        console.http.get(f"{console.base}/groups", headers={"Accept": "text/html"}) as answer,
    ):
        text = await answer.text()
        assert answer.headers["Cache-Control"] == "private, no-cache"
    assert "__" not in text
    assert "<script>x" not in text
    (session,) = re.findall(r'<meta name="ottla-session" content="([^"]*)">', text)
    told = json.loads(html.unescape(session))
    assert (told["user"], told["bootstrap_servers"]) == ("ANONYMOUS", client["bootstrap_servers"])
    linked = re.findall(r'modulepreload" href="(static/\w+)/([^"]+)"', text)
    assert [name for _, name in linked] == preloaded(SOURCES, "/groups")
