"""A small schema registry for tests, with the part of Confluent's API that clients need."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_SCHEMA = re.compile(r"/schemas/ids/(\d+)")
_SUBJECT = re.compile(r"/subjects/([^/]+)(/versions)?")
_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+|latest)")


class RegistryServer:
    """Schemas by id, and the versions of each subject. Protobuf is stored as it comes: serialized, in base64."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str]] = []
        self.authorizations: set[str | None] = set()
        self.url = ""
        # Set, everything is answered with this status.
        self.status: int | None = None

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Answer a request."""
        self.requests.append((method, path))
        if self.status is not None:
            return self.status, {"error_code": self.status}
        path = urlsplit(path).path
        if method == "GET" and (match := _SCHEMA.fullmatch(path)):
            return self._found(self.schemas.get(int(match[1])))
        if method == "GET" and (match := _VERSION.fullmatch(path)):
            versions = self.subjects.get(unquote(match[1]), [])
            version = len(versions) if match[2] == "latest" else int(match[2])
            if not 0 < version <= len(versions):
                return self._found(None)
            return self._found({**self.schemas[versions[version - 1]], "id": versions[version - 1], "version": version})
        if method == "POST" and body is not None and (match := _SUBJECT.fullmatch(path)):
            return self._posted(unquote(match[1]), body, registers=match[2] is not None)
        return 404, {"error_code": 404}

    def _found(self, schema: dict[str, Any] | None) -> tuple[int, Any]:
        return (404, {"error_code": 40403}) if schema is None else (200, schema)

    def _posted(self, subject: str, body: dict[str, Any], *, registers: bool) -> tuple[int, Any]:
        versions = self.subjects.setdefault(subject, [])
        known = next((each for each, schema in self.schemas.items() if schema == body), None)
        if known is None and registers:
            known = len(self.schemas) + 1
            self.schemas[known] = body
        if known is not None and known not in versions and registers:
            versions.append(known)
        if known is None or known not in versions:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, {"subject": subject, "id": known, "version": versions.index(known) + 1}


@contextmanager
def serving() -> Iterator[RegistryServer]:
    """Run a registry on a free port."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            registry.authorizations.add(self.headers.get("Authorization"))
            status, answer = registry.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815 - the names that the server looks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
