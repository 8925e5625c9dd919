"""The HTTP port with clients that are slow, silent or gone: others are answered meanwhile."""

from __future__ import annotations

import gzip
import http.client
import select
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from tests.kit.waiting import until

from ottla.broker.observability import http_server
from ottla.broker.observability.http_access import HttpAccess
from ottla.broker.observability.http_server import HttpServer, Page

DEADLINE_SECONDS = 60
SLOW_CLIENTS = 64
# More than the kernel takes for a client with a small buffer.
LARGE = {"records": "x" * 6 * 1024 * 1024}


@contextmanager
def served(**pages: Page) -> Iterator[HttpServer]:
    """Serve one metric, health and some pages."""
    registry = CollectorRegistry()
    Counter("requests", "How many.", registry=registry)
    server = HttpServer(socket.create_server(("127.0.0.1", 0)), registry, lambda: {"ready": True}, pages)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server: HttpServer) -> socket.socket:
    """Open a connection that asks for nothing, with a small buffer for answers."""
    client = socket.socket()
    client.settimeout(DEADLINE_SECONDS)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    return client


def ask(server: HttpServer, path: str) -> int:
    """Ask for a path and read the answer; return its status."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def fetched(server: HttpServer, path: str, **headers: str) -> tuple[Mapping[str, str], bytes]:
    """Ask for a path; return the headers and the body of an answer that is well."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        assert response.status == 200
        return dict(response.headers), response.read()
    finally:
        connection.close()


def test_the_first_page_says_what_is_here() -> None:
    """What this is, and where metrics, health, pages and the console are."""
    with served(groups=lambda rest: {}) as server:
        headers, body = fetched(server, "/")
    text = body.decode()
    assert headers["Content-Type"].startswith("text/html")
    for word in ("Ottla", "/metrics", "/health/ready", "/groups", "ottla console"):
        assert word in text


def test_metrics_are_compressed_for_those_who_take_it() -> None:
    """As Prometheus does; others get them as they are."""
    with served() as server:
        plain_headers, plain = fetched(server, "/metrics")
        headers, packed = fetched(server, "/metrics", Accept_Encoding="gzip")
    assert "Content-Encoding" not in plain_headers
    assert headers["Content-Encoding"] == "gzip"
    assert b"requests_total" in plain
    assert gzip.decompress(packed).splitlines()[0] == plain.splitlines()[0]


@contextmanager
def connected(server: HttpServer) -> Iterator[http.client.HTTPConnection]:
    """A connection that never opens a second one by itself."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_SECONDS)
    connection.connect()
    connection.auto_open = 0
    try:
        yield connection
    finally:
        connection.close()


def again(connection: http.client.HTTPConnection, path: str, **headers: str) -> int:
    """Ask on a connection that is open; return the status. NotConnected or RemoteDisconnected if it was closed."""
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    response.read()
    return response.status


CLOSED = (http.client.NotConnected, http.client.RemoteDisconnected, ConnectionError)


def test_a_connection_serves_several_requests() -> None:
    """Metrics and pages, also one that is not there."""
    with served(groups=lambda rest: None if rest else {}) as server, connected(server) as connection:
        assert [again(connection, path) for path in ("/metrics", "/groups", "/groups/none")] == [200, 200, 404]
        assert again(connection, "/metrics", Accept_Encoding="gzip") == 200


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/health", {}),
        ("/health/live", {}),
        ("/", {}),
        ("/nothing", {}),
        ("/metrics", {"Host": "evil.example"}),
        ("/metrics", {"Connection": "close"}),
        # The body would be taken for the next request.
        ("/metrics", {"Content_Length": "3"}),
    ],
)
def test_health_checks_strangers_and_mistakes_get_one_answer(path: str, headers: dict[str, str]) -> None:
    """Then their connection is closed, as the answer says."""
    registry = CollectorRegistry()
    server = HttpServer(
        socket.create_server(("127.0.0.1", 0)), registry, lambda: {"ready": True}, {}, HttpAccess(is_local=True)
    )
    server.start()
    try:
        with connected(server) as connection:
            connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            response.read()
            assert response.headers["Connection"] == "close"
            with pytest.raises(CLOSED):
                again(connection, "/metrics")
    finally:
        server.stop()


def test_a_connection_ends_after_a_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer says so."""
    monkeypatch.setattr(http_server, "_REQUESTS_PER_CONNECTION_MAX", 2)
    with served() as server, connected(server) as connection:
        assert [again(connection, "/metrics"), again(connection, "/metrics")] == [200, 200]
        with pytest.raises(CLOSED):
            again(connection, "/metrics")


def test_an_idle_connection_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds a thread."""
    monkeypatch.setattr(http_server, "_IDLE_SECONDS", 0.3)
    with served() as server, connected(server) as connection:
        assert again(connection, "/metrics") == 200
        until(lambda: is_closed(connection.sock), "the connection is closed")


def test_the_second_request_has_a_deadline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with the first byte, however long the connection was idle, and is the same as for the first one."""
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 0.3)
    with served() as server, connected(server) as connection:
        assert again(connection, "/metrics") == 200
        connection.sock.sendall(b"GET /met")
        until(lambda: is_closed(connection.sock), "the connection is closed")


def test_idle_connections_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is closed, which was idle the longest; the others are served."""
    monkeypatch.setattr(http_server, "_IDLE_MAX", 2)
    with served() as server, ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(3)]
        assert [again(each, "/metrics") for each in clients] == [200, 200, 200]
        until(lambda: any(is_closed(each.sock) for each in clients), "one is closed")
        kept = [each for each in clients if not is_closed(each.sock)]
        assert [again(each, "/metrics") for each in kept] == [200, 200]


def test_idle_connections_end_with_the_server() -> None:
    """Otherwise clients would keep asking a broker that has stopped."""
    with ExitStack() as stack:
        with served() as server:
            connection = stack.enter_context(connected(server))
            assert again(connection, "/metrics") == 200
        until(lambda: is_closed(connection.sock), "the connection is closed")


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed a connection on which it sent nothing."""
    if not select.select([client], [], [], 0.01)[0]:
        return False
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"])
def test_clients_that_do_not_finish_their_requests_silence_nothing(sent: bytes) -> None:
    """The oldest make room for others."""
    with served() as server, ExitStack() as stack:
        for _ in range(SLOW_CLIENTS):
            stack.enter_context(connect(server)).sendall(sent)
        assert [ask(server, path) for path in ("/health", "/health/live", "/metrics")] == [200, 200, 200]


def test_clients_that_do_not_read_their_answers_silence_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their answers do not fit into the buffers of the kernel."""
    monkeypatch.setattr(http_server, "_ANSWERS_MAX", 4)
    with served(groups=lambda _rest: LARGE) as server, ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(connect(server))
            client.sendall(b"GET /groups HTTP/1.1\r\n\r\n")
            client.recv(1)
        assert [ask(server, path) for path in ("/health", "/metrics", "/groups")] == [200, 200, 200]


def test_a_request_has_a_deadline_however_slowly_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep the connection open."""
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 0.3)
    with served() as server, connect(server) as client:

        def trickle() -> bool:
            try:
                client.send(b"G")
            except ConnectionError:
                return True
            return is_closed(client)

        until(trickle, "the connection is closed")


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_pages_that_take_long_hold_up_nothing_else(path: str) -> None:
    """And those beyond a number of them are refused in words, instead of waiting for ever."""
    asked, release = threading.Semaphore(0), threading.Event()

    def page(_rest: str) -> dict[str, Any]:
        asked.release()
        release.wait(DEADLINE_SECONDS)
        return {}

    with served(groups=page) as server, ExitStack() as stack:
        stack.callback(release.set)
        for _ in range(http_server._PAGES_MAX):
            stack.enter_context(connect(server)).sendall(b"GET /groups HTTP/1.1\r\n\r\n")
            assert asked.acquire(timeout=DEADLINE_SECONDS)
        assert ask(server, "/groups") == 503
        assert ask(server, path) == 200


def test_a_client_that_leaves_is_nothing_to_tell(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither in the middle of its request, nor of its answer."""
    left = threading.Event()

    def page(_rest: str) -> dict[str, Any]:
        left.wait(DEADLINE_SECONDS)
        return LARGE

    threads_before = threading.active_count()
    with served(groups=page) as server:
        for sent in (b"GET /gro", b"GET /groups HTTP/1.1\r\n\r\n"):
            with connect(server) as client:
                client.sendall(sent)
                # Leave with a reset, as a process that is killed does.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        left.set()
        assert ask(server, "/health") == 200
        # The server itself has some, and other tests may have left theirs; one for each client would be too many.
        until(lambda: threading.active_count() < threads_before + 10, "the threads are done")
        assert ask(server, "/health") == 200
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out
