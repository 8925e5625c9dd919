"""The HTTP port: `/metrics` for Prometheus, `/health/live` and `/health/ready` for whoever supervises the broker, and
pages of JSON such as `/groups` for whoever looks at it.

A thread of its own serves it, with the standard library: a few requests a minute, which must be answered also when the
workers are busy.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

# How soon a stop is noticed.
_POLL_SECONDS = 0.1

Health = Callable[[], dict[str, Any]]
# Shows what the rest of the path names, everything where there is no rest; None where there is no such thing.
Page = Callable[[str], dict[str, Any] | None]


class HttpServer:
    """Serves metrics, health and pages by the first part of their paths, on one address."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        health: Health,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        handler = _handler(registry, health, pages or {})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Give the port back."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(registry: CollectorRegistry, health: Health, pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    known = ", ".join(["/metrics", "/health/live", "/health/ready", *(f"/{name}" for name in pages)])

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that does not finish its request

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0].rstrip("/")
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif path == "/health/live":
                self._answer_json(200, {"live": True})
            elif path in ("/health", "/health/ready"):
                state = health()
                self._answer_json(200 if state["ready"] else 503, state)
            else:
                self._answer_page(path)

        def _answer_page(self, path: str) -> None:
            name, _, rest = path.removeprefix("/").partition("/")
            page = pages.get(name)
            if page is None:
                self._answer_json(404, {"error": f"there are {known}"})
                return
            shown = page(unquote(rest))
            self._answer_json(
                200 if shown is not None else 404, shown or {"error": f"there is no {unquote(rest)} here"}
            )

        def _answer_json(self, status: int, body: dict[str, Any]) -> None:
            self._answer(status, "application/json", json.dumps(body).encode() + b"\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
            """Say nothing: supervisors ask every few seconds."""

    return Handler
