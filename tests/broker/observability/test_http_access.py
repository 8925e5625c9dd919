"""Who is answered on the HTTP port."""

from __future__ import annotations

import http.client
import json
import socket
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from ottla.broker.config import BrokerConfig
from ottla.broker.observability.http_access import HttpAccess
from ottla.broker.observability.http_server import HttpServer

ALL = "0.0.0.0"
TOKEN = "planted-token"
USER = "prometheus:planted-password"


@contextmanager
def served(host: str = "127.0.0.1", **options: str) -> Iterator[HttpServer]:
    """Serve on loopback as if it were on `host`."""
    config = BrokerConfig.of({key.replace("_", "."): value for key, value in options.items()})
    health = {"ready": True, "cluster_id": "secret"}
    server = HttpServer(
        socket.create_server(("127.0.0.1", 0)),
        CollectorRegistry(),
        lambda: health,
        {"groups": lambda _rest: {}},
        HttpAccess.of(config, host),
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ask(
    server: HttpServer, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, str, Any]:
    """Ask for a path; return the status, the body and the headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def basic(user: str) -> dict[str, str]:
    """The header of a user with a password."""
    return {"Authorization": f"Basic {b64encode(user.encode()).decode()}"}


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.3.2.1"])
def test_on_loopback_everybody_is_answered(host: str) -> None:
    """Which is the default."""
    with served(host) as server:
        assert ask(server, "/metrics")[0] == 200
        assert json.loads(ask(server, "/health/ready")[1])["cluster_id"] == "secret"


@pytest.mark.parametrize("host", [ALL, "", "::", "10.0.0.1", "broker.example.org"])
def test_elsewhere_nobody_is_told_more_than_that_the_broker_is_ready(host: str) -> None:
    """With a word about what to set."""
    with served(host) as server:
        for path in ("/metrics", "/groups", "/nothing"):
            status, body, _ = ask(server, path)
            assert status == 401
            assert "ottla.http.token" in json.loads(body)["error"]
        assert ask(server, "/health/live")[:2] == (200, '{"live": true}\n')
        assert ask(server, "/health/ready")[:2] == (200, '{"ready": true}\n')


def test_a_server_that_was_never_started_stops_at_once() -> None:
    """It has no port to give back: a broker that fails to start stops what it has not started yet."""
    server = HttpServer(socket.create_server(("127.0.0.1", 0)), CollectorRegistry(), lambda: {"ready": True})

    server.stop()


def test_elsewhere_everybody_is_answered_when_that_is_wanted() -> None:
    """By whatever name."""
    with served(ALL, ottla_http_open="true") as server:
        assert ask(server, "/metrics", {"Host": "broker-1:9644"})[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1", ALL])
def test_a_token_or_a_user_lets_in_and_nothing_else_does(host: str) -> None:
    """Also from this machine, and though the port is said to be open."""
    with served(host, ottla_http_token=TOKEN, ottla_http_users=f"other:one,{USER}", ottla_http_open="true") as server:
        for right in (bearer(TOKEN), basic(USER), {"Authorization": f"bearer  {TOKEN} "}):
            assert ask(server, "/metrics", right)[0] == 200
        for wrong in (
            {},
            bearer(""),
            bearer(TOKEN[:-1]),
            bearer(USER),
            basic(TOKEN),
            basic(USER[:-1]),
            basic("prometheus"),
            {"Authorization": "Basic !"},
            {"Authorization": TOKEN},
            {"Authorization": f"Digest {TOKEN}"},
        ):
            status, body, headers = ask(server, "/metrics", wrong)
            assert status == 401
            assert headers["WWW-Authenticate"] == 'Bearer realm="ottla"'
            assert "planted" not in body


def test_secrets_of_the_port_do_not_show() -> None:
    """Neither in the options nor in what is made of them."""
    config = BrokerConfig.of({"ottla.http.token": TOKEN, "ottla.http.users": USER})

    assert "planted" not in f"{config.ottla_http_token!r} {config.ottla_http_users!r}"
    assert config.resolve("ottla.http.token").option.sensitive
    assert config.resolve("ottla.http.users").option.sensitive
    assert "planted" not in repr(HttpAccess.of(config, ALL))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_nothing_is_changed_here(method: str) -> None:
    """There is nothing that a page in a browser could have changed."""
    with served() as server:
        status, _, headers = ask(server, "/metrics", {"Origin": "https://example.org"}, method)

    assert (status, headers["Allow"]) == (405, "GET")
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("127.0.0.1:9644", 200),
        ("localhost:9644", 200),
        ("[::1]:9644", 200),
        ("10.1.2.3", 200),
        ("example.org:9644", 403),
        ("localhost.example.org", 403),
        ("", 403),
    ],
)
def test_a_page_that_calls_this_machine_by_its_own_name_reads_nothing(name: str, status: int) -> None:
    """Whoever has a name can make it stand for any address."""
    with served() as server:
        assert ask(server, "/metrics", {"Host": name})[0] == status
