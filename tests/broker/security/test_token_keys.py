"""Keys of tokens from an issuer that really answers over HTTP: refreshed, and kept while it is away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.kit.clock import FakeClock
from tests.kit.token_issuer import HttpAnswer, TokenIssuer
from tests.kit.waiting import until

from ottla.broker.security.sasl.oauth_bearer import InvalidTokenError, TokenRules, TokenVerifier
from ottla.broker.security.sasl.token_keys import EndpointKeys, TokenKeysError, parsed_keys
from ottla.client.net.security.endpoint import EndpointError, check_url, fetch

NEVER_MS = 3_600_000


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    """An issuer with one key."""
    with TokenIssuer() as made:
        yield made


def keys_of(issuer: TokenIssuer, **changes: Any) -> EndpointKeys:
    """The keys of an issuer, fetched once; then a broker would wait for an hour."""
    options = {"refresh_ms": NEVER_MS, "retry_ms": 1, "retry_max_ms": 10, **changes}
    return EndpointKeys(issuer.keys_url, **options)


def test_keys_are_there_after_the_start(issuer: TokenIssuer) -> None:
    """One request, however many tokens are checked."""
    with closing(keys_of(issuer)) as keys:
        keys.start()
        verify = TokenVerifier(keys, TokenRules(issuer=issuer.url))
        for _ in range(10):
            assert verify(issuer.token("alice")).user == "alice"
    assert issuer.requests == ["/keys"]


def test_keys_are_refreshed(issuer: TokenIssuer) -> None:
    """By the clock, without a token that asks for it; what the issuer withdraws is refused then."""
    with closing(keys_of(issuer, refresh_ms=10)) as keys:
        keys.start()
        old = issuer.token()
        issuer.rotate("second")
        until(lambda: "second" in keys.current(), "the new key is known")
        verify = TokenVerifier(keys, TokenRules())
        assert verify(issuer.token()).user
        with pytest.raises(InvalidTokenError, match="no key has the id"):
            verify(old)


def test_an_unknown_key_has_the_set_refreshed_early_but_rarely(issuer: TokenIssuer) -> None:
    """Anybody can make up keys: a thousand tokens are one request."""
    clock = FakeClock(1000.0)
    with closing(keys_of(issuer, monotonic=clock)) as keys:
        keys.start()
        verify = TokenVerifier(keys, TokenRules())
        issuer.rotate("second")
        with pytest.raises(InvalidTokenError):
            verify(issuer.token())
        until(lambda: "second" in keys.current(), "the new key is known")
        assert verify(issuer.token()).user
        stranger = TokenIssuer()
        stranger.rotate("made up")
        stranger._server.server_close()
        token = stranger.token()
        for _ in range(1000):
            with pytest.raises(InvalidTokenError):
                verify(token)
        assert len(issuer.requests) == 2
        clock.now += 10
        with pytest.raises(InvalidTokenError):
            verify(token)
        until(lambda: len(issuer.requests) == 3, "the set is refreshed again")


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(500, b"oops"),
        HttpAnswer(200, b"{"),
        HttpAnswer(200, b'{"keys":[]}'),
        HttpAnswer(200, b"x" * (1 << 20) + b"x"),
        HttpAnswer(302, b"", {"Location": "http://127.0.0.1:1/keys"}),
        HttpAnswer(200, json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "first"}]}).encode()),
    ],
    ids=["error", "torn", "empty", "too large", "redirect", "shared secret"],
)
def test_the_last_keys_stay_while_the_issuer_answers_badly(issuer: TokenIssuer, answer: HttpAnswer) -> None:
    """And it is asked again."""
    with closing(keys_of(issuer, refresh_ms=1)) as keys:
        keys.start()
        issuer.answer = lambda _path: answer
        asked = len(issuer.requests)
        until(lambda: len(issuer.requests) >= asked + 3, "it is asked again")
        assert list(keys.current()) == ["first"]
        assert TokenVerifier(keys, TokenRules())(issuer.token()).user


def test_a_broker_starts_without_its_issuer_and_finds_it_later() -> None:
    """Nobody gets in before."""
    issuer = TokenIssuer()
    issuer.answer = lambda _path: HttpAnswer(503, b"")
    with issuer, closing(keys_of(issuer)) as keys:
        keys.start()
        verify = TokenVerifier(keys, TokenRules())
        with pytest.raises(InvalidTokenError):
            verify(issuer.token())
        issuer.answer = None
        until(keys.current, "the keys are fetched")
        assert verify(issuer.token()).user


def test_closing_ends_the_thread(issuer: TokenIssuer) -> None:
    """Although it would sleep for an hour."""
    keys = keys_of(issuer)
    keys.start()
    keys.close()
    keys._thread.join(60)
    assert not keys._thread.is_alive()


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example.org/keys",
        "http://169.254.169.254/latest",
        "https:///keys",
        "https://user:secret@issuer.example.org/keys",
        "ftp://127.0.0.1/keys",
        "file:///etc/passwd",
        "https://issuer.example.org:99999/",
        "",
    ],
)
def test_only_https_or_this_machine_is_asked(url: str) -> None:
    """Before a socket is opened; the message says what to write."""
    with pytest.raises(ValueError, match=r"must|[Pp]ort"):
        check_url(url)
    with pytest.raises(TokenKeysError):
        EndpointKeys(url, refresh_ms=1, retry_ms=1, retry_max_ms=1)
    with pytest.raises(EndpointError):
        fetch(url, bytes_max=1)


def test_a_redirect_is_not_followed(issuer: TokenIssuer) -> None:
    """Not even to the same server."""
    issuer.answer = lambda _path: HttpAnswer(307, b"", {"Location": f"{issuer.url}/elsewhere"})
    with pytest.raises(EndpointError, match="307"):
        fetch(issuer.keys_url, bytes_max=1000)
    assert issuer.requests == ["/keys"]


def test_a_slow_answer_has_a_deadline(issuer: TokenIssuer) -> None:
    """It ends with an error, and not when the server likes."""
    hanging = threading.Event()

    def hang(_path: str) -> HttpAnswer:
        hanging.wait(60)
        return HttpAnswer(200, b"")

    issuer.answer = hang
    try:
        with pytest.raises(EndpointError):
            fetch(issuer.keys_url, bytes_max=1000, timeout_seconds=0.05)
    finally:
        hanging.set()


def test_keys_for_encryption_are_left_out(issuer: TokenIssuer, tmp_path: Path) -> None:
    """They sign nothing."""
    (key,) = json.loads(issuer.keys)["keys"]
    other = {**key, "use": "enc", "kid": "for encryption"}
    assert list(parsed_keys(json.dumps({"keys": [key, other]}).encode())) == ["first"]
    with pytest.raises(TokenKeysError, match="no key"):
        parsed_keys(json.dumps({"keys": [other]}).encode())
