"""Pages of brokers over HTTP: who gets the token of the administrator."""

from __future__ import annotations

import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ottla.client.cli.health.http_pages import TOKEN_VARIABLE, UntrustedHostError, get_page

TOKEN = {TOKEN_VARIABLE: "planted-token"}
TIMEOUT_S = 60


class Thief(ThreadingHTTPServer):
    """Redirects to itself, and notes the tokens that it is shown."""

    def __init__(self) -> None:
        self.shown: dict[str, str | None] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Thief)
        server.shown[self.path] = self.headers.get("Authorization")
        self.send_response(302 if self.path == "/groups/g" else 200)
        # Another name of the same machine.
        self.send_header("Location", f"http://localhost:{server.server_address[1]}/stolen")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def thief() -> Iterator[Thief]:
    """A server in a thread."""
    with Thief() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(TIMEOUT_S)


@pytest.mark.parametrize("named", [["broker"], ["127.0.0.1.example.org"], ["10.0.0.1", "broker"]])
def test_a_host_that_only_a_broker_names_gets_no_token(thief: Thief, named: list[str]) -> None:
    """It is not even asked."""
    with pytest.raises(UntrustedHostError):
        get_page(f"{thief.url}/page", TIMEOUT_S, token_for=named, environment=TOKEN)
    assert thief.shown == {}


@pytest.mark.parametrize("named", [["127.0.0.1"], ["localhost"], ["broker", "LOCALHOST"], ["::1"]])
def test_a_host_that_the_user_names_gets_it(thief: Thief, named: list[str]) -> None:
    """By any name of this machine, too."""
    get_page(f"{thief.url}/page", TIMEOUT_S, token_for=named, environment=TOKEN).close()
    assert thief.shown == {"/page": "Bearer planted-token"}


def test_without_a_token_none_is_shown(thief: Thief) -> None:
    """And any host may be asked."""
    get_page(f"{thief.url}/page", TIMEOUT_S, token_for=["broker"], environment={}).close()
    assert thief.shown == {"/page": None}


def test_redirects_are_not_followed(thief: Thief) -> None:
    """They would carry the token away."""
    with pytest.raises(urllib.error.HTTPError):
        get_page(f"{thief.url}/groups/g", TIMEOUT_S, token_for=["127.0.0.1"], environment=TOKEN)
    assert list(thief.shown) == ["/groups/g"]


@pytest.mark.parametrize("environment", [{}, TOKEN])
def test_pages_for_everybody_are_asked_for_without_a_token(thief: Thief, environment: dict[str, str]) -> None:
    """Such as the one that tells the time."""
    get_page(f"{thief.url}/page", TIMEOUT_S, environment=environment).close()
    assert thief.shown == {"/page": None}
