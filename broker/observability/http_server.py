"""The HTTP port: `/metrics` for Prometheus, `/health/live` and `/health/ready` for whoever supervises the broker, and
pages of JSON such as `/groups` for whoever looks at it; `/` says what is here. Nothing is changed: there is GET alone.

Threads of its own serve it, with the standard library: a few requests a minute, which must be answered also when the
workers are busy. Requests and answers have deadlines, and slow clients give way to others (`slow_clients.py`). Metrics
and pages take time, so only some are computed at once; health is answered in any case. Who is answered is in
`http_access.py`; whether the broker lives and is ready, everybody is told, and nothing more than that.

A connection stays open for the next request only if its client was admitted and got metrics or a page: those are read
again and again, by Prometheus and the console. Health checks, strangers and mistakes get one answer for a connection.
An idle connection holds a thread, so there are only so many, and the one that was idle the longest gives way.
"""

from __future__ import annotations

import gzip
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ottla.broker.observability.front_page import PAGE_POLICY, front_page
from ottla.broker.observability.http_access import HttpAccess
from ottla.broker.observability.slow_clients import SlowClients

log = structlog.get_logger(__name__)

# How soon a stop, or a deadline that has passed, is noticed.
_POLL_SECONDS = 0.1
# Connections whose requests have not arrived completely, and the time that each has.
_REQUESTS_MAX = 64
_REQUEST_SECONDS = 10.0
# Answers that clients do not read as fast as they could, and the time that each has.
_ANSWERS_MAX = 64
_ANSWER_SECONDS = 10.0
# Connections that stay open between two requests, the time that each has, and how many requests it may send. The time
# is longer than the intervals of Prometheus and the console, the threads of all limits together are fewer than those
# there are.
_IDLE_MAX = 32
_IDLE_SECONDS = 75.0
_REQUESTS_PER_CONNECTION_MAX = 1000
# What is computed at the same time. Health is neither of them: it is cheap, and always answered.
_METRICS_MAX = 8
_PAGES_MAX = 32
_THREADS_MAX = 256
# The fastest: it takes a page to a tenth of its size.
_GZIP_LEVEL = 1
# Headers and a short body leave in one packet.
_WRITE_BUFFER_BYTES = 16 * 1024
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
    """Serves metrics, health and pages by the first part of their paths, on one port."""

    def __init__(
        self,
        listening: socket.socket,
        registry: CollectorRegistry,
        health: Health,
        pages: Mapping[str, Page] | None = None,
        access: HttpAccess = HttpAccess(),  # noqa: B008 - a value
    ) -> None:
        """Take an open port, which `stop` closes."""
        handler = _handler(registry, health, pages or {}, access)
        self._server = _BoundedServer(listening, handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """Give the port back, and close idle connections."""
        self._server.idle.close()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _BoundedServer(ThreadingHTTPServer):
    """A thread for each connection, but not for any number of them."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        self.requests = SlowClients(_REQUESTS_MAX, _REQUEST_SECONDS)
        self.answers = SlowClients(_ANSWERS_MAX, _ANSWER_SECONDS)
        self.idle = SlowClients(_IDLE_MAX, _IDLE_SECONDS)
        self._free = threading.Semaphore(_THREADS_MAX)
        super().__init__(listening.getsockname(), handler, bind_and_activate=False)
        # In place of the one that was made for a port of its own.
        self.socket.close()
        self.socket = listening

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with a connection, or close it where there are too many."""
        if self._free.acquire(blocking=False):
            self.requests.enter(request)
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the requests of a connection, on its own thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        for waiting in (self.requests, self.answers, self.idle):
            waiting.leave(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Look at the deadlines; called every `_POLL_SECONDS`."""
        for waiting in (self.requests, self.answers, self.idle):
            waiting.cut_overdue()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failure that is ours. A client that leaves is none."""
        if not isinstance(sys.exception(), OSError):
            log.exception("http_request_failed", peer=client_address[0])


def _handler(
    registry: CollectorRegistry, health: Health, pages: Mapping[str, Page], access: HttpAccess
) -> type[BaseHTTPRequestHandler]:
    metrics_free, pages_free = threading.Semaphore(_METRICS_MAX), threading.Semaphore(_PAGES_MAX)
    front = front_page(pages)
    known = ", ".join(["/metrics", "/health/live", "/health/ready", *(f"/{name}" for name in pages)])

    class Handler(BaseHTTPRequestHandler):
        server: _BoundedServer
        server_version = "Ottla"
        sys_version = ""
        protocol_version = "HTTP/1.1"
        wbufsize = _WRITE_BUFFER_BYTES
        # Otherwise the last packet of an answer waits until the client has confirmed the one before.
        disable_nagle_algorithm = True
        # Of this connection, so far.
        requests = 0

        def handle_one_request(self) -> None:
            if self.requests and not self._has_next_request():
                self.close_connection = True
                return
            self.requests += 1
            super().handle_one_request()

        def _has_next_request(self) -> bool:
            """Wait for the first byte of another request, whose deadline then begins; return whether it came."""
            self.server.idle.enter(self.connection)
            is_here = bool(self.rfile.peek(1))  # type: ignore[attr-defined] # a BufferedReader
            self.server.idle.leave(self.connection)
            if is_here:
                self.server.requests.enter(self.connection)
            return is_here

        def do_GET(self) -> None:
            self.server.requests.leave(self.connection)
            path = self.path.split("?", 1)[0].rstrip("/")
            if not access.is_called_right(self.headers.get("Host")):
                self._answer_json(403, {"error": "call this port by its address, or localhost"})
                return
            is_admitted = access.admits(self.headers.get("Authorization"))
            if not path:
                self._answer(200, "text/html; charset=utf-8", front, PAGE_POLICY)
            elif path == "/health/live":
                self._answer_json(200, {"live": True})
            elif path in ("/health", "/health/ready"):
                state = health()
                self._answer_json(200 if state["ready"] else 503, state if is_admitted else {"ready": state["ready"]})
            elif not is_admitted:
                self._refuse()
            elif path == "/metrics":
                with self._one_of(metrics_free) as may_go_on:
                    page, headers = self._compressed(generate_latest(registry)) if may_go_on else (b"", _NO_HEADERS)
                if may_go_on:
                    self._answer(200, CONTENT_TYPE_LATEST, page, headers, may_stay=True)
            else:
                self._answer_page(path)

        def _compressed(self, page: bytes) -> tuple[bytes, Mapping[str, str]]:
            """Compress a page for a client that takes gzip, as Prometheus does; thousands of lines are alike."""
            if "gzip" not in (self.headers.get("Accept-Encoding") or ""):
                return page, {"Vary": "Accept-Encoding"}
            return gzip.compress(page, _GZIP_LEVEL), {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}

        @contextmanager
        def _one_of(self, free: threading.Semaphore) -> Iterator[bool]:
            """Yield whether something may be computed; if too much is at once, answer that."""
            if not free.acquire(blocking=False):
                self._answer_json(503, {"error": "too many requests at once: ask again later"}, {"Retry-After": "1"})
                yield False
                return
            try:
                yield True
            finally:
                free.release()

        def _answer_page(self, path: str) -> None:
            name, _, rest = path.removeprefix("/").partition("/")
            page = pages.get(name)
            if page is None:
                self._answer_json(404, {"error": f"there are {known}"})
                return
            with self._one_of(pages_free) as may_go_on:
                shown = page(unquote(rest)) if may_go_on else None
            if not may_go_on:
                return
            status, body = (200, shown) if shown is not None else (404, {"error": f"there is no {unquote(rest)} here"})
            self._answer_json(status, body, may_stay=True)

        def _refuse(self) -> None:
            has_way_in = bool(access.tokens or access.users)
            error = _SHOW_ONE if has_way_in else _NO_WAY_IN
            challenge = "Basic" if access.users and not access.tokens else "Bearer"
            headers = {"WWW-Authenticate": f'{challenge} realm="ottla"'} if has_way_in else {}
            self._answer_json(401, {"error": error}, headers)

        def _not_allowed(self) -> None:
            self._answer_json(405, {"error": "nothing is changed here: ask with GET"}, {"Allow": "GET"})

        do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed  # noqa: N815 - as http.server

        def _answer_json(
            self,
            status: int,
            body: dict[str, Any],
            headers: Mapping[str, str] = _NO_HEADERS,
            *,
            may_stay: bool = False,
        ) -> None:
            self._answer(status, "application/json", json.dumps(body).encode() + b"\n", headers, may_stay=may_stay)

        def _answer(
            self,
            status: int,
            content_type: str,
            body: bytes,
            headers: Mapping[str, str] = _NO_HEADERS,
            *,
            may_stay: bool = False,
        ) -> None:
            self.server.requests.leave(self.connection)
            self.server.answers.enter(self.connection)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            requests_left = _REQUESTS_PER_CONNECTION_MAX - self.requests
            if may_stay and requests_left > 0 and self._can_stay():
                self.send_header("Keep-Alive", f"timeout={_IDLE_SECONDS:.0f}, max={requests_left}")
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            self.server.answers.leave(self.connection)

        def _can_stay(self) -> bool:
            """Whether the bytes behind this request are the next one, and the client wants to send it."""
            has_body = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
            return not self.close_connection and not has_body

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
            """Say nothing: supervisors ask every few seconds."""

    return Handler
