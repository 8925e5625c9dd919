"""JSON in the page: indented and looked into as text, so that nothing of it is rounded, lost or executed."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page
from tests.console.browser.chromium import console_page, running_chromium
from tests.console.console_client import running_console
from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

_CALL = """async ([name, ...parts]) => {
  const script = document.querySelector('script[type=module]').src;
  const json = await import(script.replace("app.js", "lib/json.js"));
  if (name === "at") return parts.map(([text, path]) => json.at(text, json.steps(path)));
  if (name === "hexLines") return parts.map((text) => json.hexLines(text));
  return parts.map((text) => json.indented(text)?.map(([, part]) => part).join("") ?? null);
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(broker: BrokerProcess) -> AsyncIterator[Page]:
    """A tab whose modules can be called."""
    async with (
        running_console(broker.bootstrap) as console,
        running_chromium() as browser,
        console_page(browser, console.base) as tab,
    ):
        await tab.open("records")
        yield tab.page


def _value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(8 if depth else 6)
    if kind == 6:
        return [_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 7:
        return {_text(chance): _value(chance, depth - 1) for _ in range(chance.randrange(4))}
    return (None, True, chance.randrange(-(2**70), 2**70), chance.random(), _text(chance), "")[kind]


def _text(chance: random.Random) -> str:
    return "".join(chance.choice('ab"\\/{}[]:, \n\té✂<') for _ in range(chance.randrange(6)))


async def test_indented_json_has_the_same_tokens(page: Page) -> None:
    """Whatever it holds; with and without spaces, and again after it was indented."""
    chance = random.Random(1)
    values = [_value(chance, 4) for _ in range(300)]
    texts = [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in values]
    shown = await page.evaluate(_CALL, ["indented", *texts])
    assert [json.loads(text) for text in shown] == values
    assert [json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) for text in shown] == texts
    assert await page.evaluate(_CALL, ["indented", *shown]) == shown


async def test_numbers_and_texts_that_are_cut_off_are_shown_as_they_are(page: Page) -> None:
    """No digit is rounded; too deep a text is left alone."""
    shown = await page.evaluate(
        _CALL, ["indented", '{"id":9223372036854775807,"x":1.10}', '{"a":"cut o', "[" * 5000, "}"]
    )
    assert shown == ['{\n  "id": 9223372036854775807,\n  "x": 1.10\n}', '{\n  "a": "cut o', None, None]


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"user": {"id": 9223372036854775807}}', "user.id", "9223372036854775807"),
        ('{"items": [{"sku": "a"}, {"sku": "b\\u00e9"}]}', "items[1].sku", "bé"),
        ('{"items": [1, [2, {"x": null}]]}', "items", '[1, [2, {"x": null}]]'),
        ('{"a b": {"c": true}}', '["a b"].c', "true"),
        ('{"user": 1}', "user.id", None),
        ('{"user": {"id": 5, "rest": "cut', "user.id", "5"),
        ("[" * 5000, "x", None),
        ("plain", "x", None),
    ],
)
async def test_a_path_finds_the_text_of_a_part(page: Page, text: str, path: str, expected: str | None) -> None:
    """A column of records shows it; what is not there is empty."""
    assert await page.evaluate(_CALL, ["at", [text, path]]) == [expected]


async def test_bytes_are_shown_in_lines_of_sixteen(page: Page) -> None:
    """With their position before them and their characters behind."""
    (shown,) = await page.evaluate(_CALL, ["hexLines", bytes(range(60, 78)).hex()])
    first, second = shown.split("\n")
    assert first == "000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK"
    assert second.split() == ["000010", "4c", "4d", "LM"]
