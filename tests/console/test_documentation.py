"""The description of the API is made from its types, and the page in docs from the description."""

from __future__ import annotations

from pathlib import Path

from scripts.console_api import page

from ottla.console.api.table import ROUTES
from ottla.console.web.openapi import openapi


def test_the_page_is_the_one_that_make_docs_writes() -> None:
    """Run `make docs` after a change of routes or types."""
    assert Path("docs/CONSOLE_API.md").read_text() == page()


def test_every_route_is_described() -> None:
    """With a sentence, its parameters, its body and its answer; every reference leads somewhere."""
    description = openapi(ROUTES, "1")
    operations = [each for path in description["paths"].values() for each in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({each["operationId"] for each in operations}) == len(ROUTES)
    for each in operations:
        assert each["summary"].endswith((".", ":")), each
    schemas = description["components"]["schemas"]
    assert all(name in schemas for name in _references(description))


def test_names_in_paths_are_parameters() -> None:
    """aiohttp would call a handler without them."""
    for route in ROUTES:
        names = {part.strip("{}") for part in route.path.split("/") if part.startswith("{")}
        assert names == set(route.path_types), route.path


def _references(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if "$ref" in value else set()
        return own.union(*(_references(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(each) for each in value))
    return set()
