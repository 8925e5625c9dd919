"""A Maven repository for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TIMEOUT_S = 60


class Repository(ThreadingHTTPServer):
    """A Maven repository that can be made to misbehave; it notes the requests and their logins."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = {f"/maven2/{path}": body for path, body in files.items()}
        self.asked: list[tuple[str, str | None]] = []
        # How many bytes of a file are sent before the connection is closed, or stays silent until the test ends.
        self.bytes_max: int | None = None
        self.is_silent = False
        self.redirect: str | None = None
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}/maven2"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Repository)
        server.asked.append((self.path, self.headers.get("Authorization")))
        if server.redirect is not None and not self.path.startswith("/elsewhere"):
            self.send_response(302)
            self.send_header("Location", f"{server.redirect}/elsewhere{self.path}")
            self.end_headers()
            return
        body = server.files.get(self.path.removeprefix("/elsewhere"))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.bytes_max])
        if server.is_silent:
            self.wfile.flush()
            server.over.wait(TIMEOUT_S)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[Repository]:
    """Serve files by their paths in the repository, in a thread."""
    with Repository(files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join(TIMEOUT_S)
