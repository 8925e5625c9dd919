"""`openapi.json`, made from the table of routes and the types of their handlers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ottla.console.problems import ProblemDetails
from ottla.console.web.protection import CHANGE_HEADER
from ottla.console.web.route import PREFIX, Route

_REFERENCE: Final = "#/components/schemas/{name}"
_CONTENT_TYPES: Final = {None: "application/json", "ndjson": "application/x-ndjson", "sse": "text/event-stream"}


def openapi(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """Return the description of the API."""
    listed = list(routes)
    kinds = [kind for route in listed for kind in (route.answer, route.body, route.query) if kind is not None]
    unique = [*dict.fromkeys(kinds), ProblemDetails]
    made, components = msgspec.json.schema_components(unique, ref_template=_REFERENCE)
    schemas = dict(zip(unique, made, strict=True))
    paths: dict[str, Any] = {}
    for route in listed:
        paths.setdefault(PREFIX + _path(route.path), {})[route.method.lower()] = _operation(route, schemas, components)
    used = {kind.__name__ for route in listed for kind in (route.query,) if kind is not None}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla console", "version": version},
        "paths": paths,
        "components": {"schemas": {name: schema for name, schema in components.items() if name not in used}},
    }


def _operation(route: Route, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": schemas[ProblemDetails]}}
    answer = schemas[route.answer]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if kind is int else "string"}}
        for name, kind in route.path_types.items()
    ]
    if route.query is not None:
        schema = components[route.query.__name__]
        parameters += [
            {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", ()),
                **({"description": text} if (text := each.get("description")) else {}),
                "schema": each,
            }
            for name, each in schema["properties"].items()
        ]
    if route.method != "GET":
        parameters.append(
            {"name": CHANGE_HEADER, "in": "header", "required": True, "schema": {"type": "string", "const": "1"}}
        )
    operation: dict[str, Any] = {
        "operationId": route.handle.__name__,
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "content": {_CONTENT_TYPES[route.stream]: {"schema": answer}}},
            "default": {"description": "A problem", "content": problem},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[route.body]}},
        }
    return operation


def _path(path: str) -> str:
    return re.sub(r"\{(\w+)(:[^}]*)?\}", r"{\1}", path)
