"""Write docs/CONSOLE_API.md: the routes of the console and their types, from its table.

Run with `make docs`; a test compares the page with the table.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import msgspec

from ottla.console.api.table import ROUTES
from ottla.console.problems import ProblemDetails
from ottla.console.web.openapi import openapi
from ottla.console.web.protection import CHANGE_HEADER
from ottla.console.web.route import PREFIX

_HEAD: Final = f"""# The API of the console

`make docs` writes this page from the table of routes (`console/api/table.py`). The same as OpenAPI is at
`{PREFIX}/openapi.json` of a running console. [CONSOLE.md](CONSOLE.md) tells how to run it.

- All paths are below `{PREFIX}`. Names in paths are percent-encoded.
- Requests that change something carry the header `{CHANGE_HEADER}: 1`, and a JSON body with
  `Content-Type: application/json`.
- *Long* is a 64-bit integer as text, because JavaScript would round it. Times end in `_ms`: milliseconds since 1970, or
  a duration.
- Lists take `limit`, `after` (the `next` of the answer before), `q` and `sort` (`-size` reverses).
- A parameter that is a list is repeated: `watch=overview&watch=topic:orders`.
- `missing` lists brokers whose part of the answer is missing; it is not an error.
- `unknown` says in words why an answer is empty: only Ottla's brokers tell it, or the user may not see it.
- Changes take `dry_run` and answer a `Change` with the `ottla` command that does the same.
- Errors are `application/problem+json`: `ProblemDetails`.
- With a session, curl may also use Basic: `curl -u alice http://localhost:8080{PREFIX}/topics`.

"""


def main() -> None:
    """Print the page."""
    print(page(), end="")


def page() -> str:
    """Return the page."""
    described = openapi(ROUTES, "")
    schemas = described["components"]["schemas"]
    parts = [_HEAD, "## Routes\n\n"]
    for route in ROUTES:
        parts.append(f"### `{route.method} {route.path}`\n\n{_text(inspect.getdoc(route.handle) or '')}\n\n")
        rows = []
        operation = described["paths"][PREFIX + route.path][route.method.lower()]
        for each in operation["parameters"]:
            if each["in"] == "query":
                kind = _kind(each["schema"])
                default = each["schema"].get("default")
                rows.append(
                    f"| `{each['name']}` | {kind} | {'' if default is None else f'`{default}`'} "
                    f"| {_cell(each.get('description', ''))} |"
                )
        if rows:
            parts.append("| parameter | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n")
        if route.body is not None:
            parts.append(f"Body: [{route.body.__name__}](#{route.body.__name__.lower()}). ")
        answer = operation["responses"]["200"]["content"]
        content_type, schema = next(iter(answer.items()))
        stream = "" if content_type == "application/json" else f" (`{content_type}`)"
        parts.append(f"Answer: {_kind(schema['schema'])}{stream}.\n\n")
    parts.append("## Types\n\n")
    for name, schema in sorted(schemas.items()):
        parts.append(_type(name, schema))
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).rstrip() + "\n"


def _type(name: str, schema: dict[str, Any]) -> str:
    texts = _field_texts(name)
    head = f"### {name}\n\n{_text(schema.get('description', ''))}\n\n"
    rows = [
        f"| `{field}` | {_kind(each)} | {_cell(texts.get(field) or each.get('description', ''))} |"
        for field, each in schema.get("properties", {}).items()
    ]
    return head + "| field | type | |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    if schema.get("pattern") == "^-?[0-9]+$":
        return "Long"
    match schema.get("type"):
        case "array":
            return f"list of {_kind(schema.get('items', {}))}"
        case "object":
            return f"object of {_kind(schema.get('additionalProperties') or {})}"
        case None:
            return "anything"
        case kind:
            return str(kind)


def _field_texts(name: str) -> dict[str, str]:
    """Return the sentences below the fields of a type, which Python keeps only in the source."""
    for kind in _structs():
        if kind.__name__ == name:
            found: dict[str, str] = {}
            for base in reversed(kind.__mro__):
                if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
                    found |= dict(
                        re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', inspect.getsource(base), re.M | re.S)
                    )
            return found
    return {}


def _structs() -> list[type[msgspec.Struct]]:
    found: list[type[msgspec.Struct]] = []
    waiting: list[type[msgspec.Struct]] = [msgspec.Struct]
    while waiting:
        subclasses: list[type[msgspec.Struct]] = waiting.pop().__subclasses__()
        for each in subclasses:
            if each.__module__.startswith(("ottla.console", "ottla.client.schema")):
                found.append(each)
            waiting.append(each)
    return [*found, ProblemDetails]


def _text(text: str) -> str:
    return re.sub(r"\n(?!\n)", " ", inspect.cleandoc(text)).replace("\n ", "\n\n").strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
