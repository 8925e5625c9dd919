"""Write the tables of options in docs/CLIENT.md from the settings classes of the clients.

    python -m scripts.client_options

The rest of the page is written by hand. A test fails when the tables are not current.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from textwrap import dedent
from typing import Final, Literal, get_args, get_origin

from ottla.client.consumer import settings as consumer_settings
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.net import settings as net_settings
from ottla.client.net.settings import ClientSettings
from ottla.client.producer import settings as producer_settings
from ottla.client.producer.settings import ProducerSettings

PAGE: Final = Path(__file__).parents[1] / "docs" / "CLIENT.md"
_BEGIN: Final = "<!-- Made by `make docs`: begin -->\n"
_END: Final = "<!-- Made by `make docs`: end -->\n"
_CHOICES: Final = {
    name: " or ".join(map(repr, get_args(item)))
    for module in (net_settings, producer_settings, consumer_settings)
    for name, item in vars(module).items()
    if get_origin(item) is Literal
}
_TABLES: Final = (
    ("All clients", ClientSettings, None),
    ("Producer", ProducerSettings, ClientSettings),
    ("Consumer", ConsumerSettings, ClientSettings),
)


def page() -> str:
    """Return the page with tables that are current."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + "\n" + "\n".join(_table(*each) for each in _TABLES) + "\n" + _END + after


def _table(title: str, settings: type[ClientSettings], base: type[ClientSettings] | None) -> str:
    inherited = {field.name for field in dataclasses.fields(base)} if base is not None else set()
    texts = _documentation(settings)
    rows = [
        f"| `{field.name}` | `{_kind(str(field.type))}` | {_default(field)} | {texts[field.name]} |"
        for field in dataclasses.fields(settings)
        if field.name not in inherited
    ]
    return "\n".join([f"### {title}", "", "| option | type | default | |", "|---|---|---|---|", *rows, ""])


def _documentation(settings: type[ClientSettings]) -> dict[str, str]:
    """Return the text below each option, on one line."""
    (declared,) = ast.parse(dedent(inspect.getsource(settings))).body
    assert isinstance(declared, ast.ClassDef)
    texts = {}
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(text, ast.Expr):
            continue
        assert isinstance(field.target, ast.Name)
        assert isinstance(text.value, ast.Constant)
        texts[field.target.id] = " ".join(str(text.value.value).split())
    return texts


def _kind(annotation: str) -> str:
    """Return a type as a cell of a table, with the choices where there are any."""
    named = re.sub(r"\w+", lambda word: _CHOICES.get(word[0], word[0]), annotation)
    return re.sub(r"\s*\|\s*", " or ", re.sub(r"Literal\[(.*?)\]", r"\1", named))


def _default(field: dataclasses.Field[object]) -> str:
    default = field.default
    if isinstance(default, bool) or default is None or isinstance(default, str | tuple):
        return "" if default in (None, "", ()) else f"`{default!r}`"
    return f"{default:,}"


if __name__ == "__main__":
    PAGE.write_text(page())
