"""The HTTP port: `/metrics` for Prometheus, `/health/live` and `/health/ready` for whoever supervises the broker, and
pages of JSON such as `/groups` for whoever looks at it. Nothing is changed through it: there is GET alone.

A thread of its own serves it, with the standard library: a few requests a minute, which must be answered also when the
workers are busy. Who is answered is in `http_access.py`; whether the broker lives and is ready, everybody is told, and
nothing more than that.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ottla.broker.observability.http_access import HttpAccess

# How soon a stop is noticed.
_POLL_SECONDS = 0.1
_REQUESTS_MAX = 64
_NO_HEADERS: Final[Mapping[str, str]] = {}
_SHOW_ONE: Final = "show the token of this broker, as `Authorization: Bearer TOKEN`, or a user of its HTTP port"
_NO_WAY_IN: Final = (
    "this port is open to other machines, so it asks for a token: set ottla.http.token or ottla.http.users on the "
    "broker, or ottla.http.open=true to answer everybody"
)

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
        access: HttpAccess = HttpAccess(),  # noqa: B008 - a value
    ) -> None:
        handler = _handler(registry, health, pages or {}, access)
        self._server = _BoundedServer((host, port), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that it listens on, once it is started."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Open the port and serve. Raises OSError where the port is taken."""
        self._server.server_bind()
        self._server.server_activate()
        self._thread.start()

    def stop(self) -> None:
        """Give the port back, where it was opened."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _BoundedServer(ThreadingHTTPServer):
    """A thread for each request, but not for any number of them."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.Semaphore(_REQUESTS_MAX)
        super().__init__(address, handler, bind_and_activate=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with a request, or close its connection where there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, on its own thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def _handler(
    registry: CollectorRegistry, health: Health, pages: Mapping[str, Page], access: HttpAccess
) -> type[BaseHTTPRequestHandler]:
    known = ", ".join(["/metrics", "/health/live", "/health/ready", *(f"/{name}" for name in pages)])

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that does not finish its request
        server_version = "Ottla"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0].rstrip("/")
            if not access.is_called_right(self.headers.get("Host")):
                self._answer_json(403, {"error": "call this port by its address, or localhost"})
                return
            is_admitted = access.admits(self.headers.get("Authorization"))
            if path == "/health/live":
                self._answer_json(200, {"live": True})
            elif path in ("/health", "/health/ready"):
                state = health()
                self._answer_json(200 if state["ready"] else 503, state if is_admitted else {"ready": state["ready"]})
            elif not is_admitted:
                self._refuse()
            elif path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
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

        def _refuse(self) -> None:
            has_way_in = bool(access.tokens or access.users)
            error = _SHOW_ONE if has_way_in else _NO_WAY_IN
            challenge = "Basic" if access.users and not access.tokens else "Bearer"
            headers = {"WWW-Authenticate": f'{challenge} realm="ottla"'} if has_way_in else {}
            self._answer_json(401, {"error": error}, headers)

        def _not_allowed(self) -> None:
            self._answer_json(405, {"error": "nothing is changed here: ask with GET"}, {"Allow": "GET"})

        do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed  # noqa: N815 - as http.server

        def _answer_json(self, status: int, body: dict[str, Any], headers: Mapping[str, str] = _NO_HEADERS) -> None:
            self._answer(status, "application/json", json.dumps(body).encode() + b"\n", headers)

        def _answer(
            self, status: int, content_type: str, body: bytes, headers: Mapping[str, str] = _NO_HEADERS
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
            """Say nothing: supervisors ask every few seconds."""

    return Handler
