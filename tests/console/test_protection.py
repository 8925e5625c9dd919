"""Other sites cannot use the console through a browser: names, origins, headers and content types are checked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.console.console_client import ConsoleClient, running_console

from ottla.client.errors import KafkaConfigurationError
from ottla.console.settings import ConsoleSettings

NOWHERE = "127.0.0.1:1"
CHANGE = {"X-Ottla-Console": "1"}


@pytest_asyncio.fixture
async def console() -> AsyncIterator[ConsoleClient]:
    """A console whose cluster is down: protection comes before that."""
    async with running_console(NOWHERE) as client:
        yield client


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", ""])
async def test_another_host_name_is_refused(console: ConsoleClient, host: str) -> None:
    """A site that lets its name resolve to 127.0.0.1 gets nothing, not even the page."""
    for path in ("/", "/api/v1/session", "/api/v1/openapi.json"):
        async with console.http.get(console.base + path, headers={"Host": host}) as answer:
            assert answer.status == 403
            assert (await answer.json())["title"] == "Unknown host name"


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
async def test_names_of_this_machine_are_served(console: ConsoleClient, host: str) -> None:
    """With any port: only the name matters."""
    await console.send("GET", "/session", headers={"Host": host})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**CHANGE, "Origin": "http://evil.example"},
        {**CHANGE, "Origin": "null"},
        {**CHANGE, "Origin": "https://127.0.0.1"},
        {**CHANGE, "Sec-Fetch-Site": "cross-site"},
        {**CHANGE, "Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_change_from_elsewhere_is_refused(console: ConsoleClient, headers: dict[str, str]) -> None:
    """Without the header, from another origin, or with the browser's word that it is another site."""
    await console.send("POST", "/topics", {"name": "x"}, status=403, headers=headers)


async def test_a_change_from_the_page_is_let_through(console: ConsoleClient) -> None:
    """It fails only because the cluster is down."""
    own = {**CHANGE, "Origin": console.base, "Sec-Fetch-Site": "same-origin"}
    problem = await console.send("POST", "/topics", {"name": "x"}, status=503, headers=own)
    assert problem["retriable"] is True


async def test_a_form_of_another_site_is_refused(console: ConsoleClient) -> None:
    """Forms cannot send JSON."""
    url = f"{console.base}/api/v1/topics"
    async with console.http.post(url, data={"name": "x"}, headers=CHANGE) as answer:
        assert answer.status == 415


async def test_reading_from_another_site_is_refused_but_links_work(console: ConsoleClient) -> None:
    """A page elsewhere may link to the console, and cannot read it."""
    await console.send(
        "GET", "/session", status=403, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    )
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
    async with console.http.get(console.base + "/", headers=followed) as answer:
        assert answer.status == 200


async def test_every_answer_has_the_protecting_headers(console: ConsoleClient) -> None:
    """Pages, files, answers and problems; scripts and styles come from the console alone."""
    for path in ("/", "/api/v1/session", "/api/v1/overview", "/static/x/y.js", "/nothing"):
        async with console.http.get(console.base + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "*" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert "aiohttp" not in answer.headers["Server"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../settings.py",
        "/static/%2e%2e/settings.py",
        "/static/x/..%2f..%2fsettings.py",
        "/static/x//etc/passwd",
    ],
)
async def test_files_outside_the_page_are_not_served(console: ConsoleClient, path: str) -> None:
    """And a missing file is never the page itself."""
    from yarl import URL

    async with console.http.get(URL(console.base + path, encoded=True), headers={"Accept": "text/html"}) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/topics", b"{"),
        ("/topics", b"[]"),
        ("/topics", b'{"name": 7}'),
        ("/topics", b'{"name": "x", "unknown": 1}'),
        ("/topics", b"[" * 100_000),
        ("/topics", b"\xff\xff"),
        ("/elections", b'{"type": "x"}'),
    ],
)
async def test_a_body_that_does_not_fit_is_a_problem(console: ConsoleClient, path: str, body: bytes) -> None:
    """With the place that is wrong, and never a failure of the console."""
    headers = {**CHANGE, "Content-Type": "application/json"}
    async with console.http.post(f"{console.base}/api/v1{path}", data=body, headers=headers) as answer:
        assert answer.status == 400
        assert answer.content_type == "application/problem+json"


async def test_unknown_parameters_are_named(console: ConsoleClient) -> None:
    """A typo must not look like an empty filter."""
    problem = await console.get("/topics", status=400, limti=3)
    assert "limti" in problem["detail"]
    await console.get("/topics", status=400, limit=0)
    await console.get("/brokers/x", status=400)


async def test_a_read_only_console_changes_nothing() -> None:
    """Before anything is asked of the cluster."""
    async with running_console(NOWHERE, is_read_only=True) as console:
        for method, path in (("POST", "/topics"), ("DELETE", "/topics/x"), ("PATCH", "/options/topic/x")):
            problem = await console.send(method, path, {}, status=403)
            assert problem["title"] == "This console is read-only"


async def test_a_console_that_hides_records_shows_none() -> None:
    """Neither read nor exported."""
    async with running_console(NOWHERE, hides_records=True) as console:
        await console.get("/topics/x/records", status=403)
        await console.get("/topics/x/export", status=403)


async def test_behind_a_proxy_its_name_and_path_are_served() -> None:
    """The name of the proxy and the origin of its pages; the console itself stays where it is."""
    async with running_console(NOWHERE, public_url="https://console.example/ottla") as console:
        headers = {"Host": "console.example", "Origin": "https://console.example", **CHANGE}
        await console.send("POST", "/topics", {"name": "x"}, status=503, headers=headers)
        for path in ("/ottla/", "/"):
            async with console.http.get(console.base + path, headers={"Host": "console.example"}) as answer:
                assert '<base href="/ottla/">' in await answer.text()
        async with console.http.get(f"{console.base}/ottla/api/v1/session") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "--public-url"),
        ({"host": "0.0.0.0", "public_url": "http://c.example"}, "--open"),
        (
            {
                "host": "0.0.0.0",
                "public_url": "http://c.example",
                "client": {"security_protocol": "SASL_SSL"},
            },
            "in the clear",
        ),
        ({"public_url": "c.example"}, "--public-url takes"),
        ({"certificate": "x.pem"}, "go together"),
    ],
)
def test_settings_that_would_expose_the_cluster_are_refused(settings: dict[str, object], words: str) -> None:
    """The sentence says what to give instead."""
    with pytest.raises(KafkaConfigurationError, match=words):
        ConsoleSettings(**settings)  # type: ignore[arg-type]


def test_a_user_in_the_options_is_not_used() -> None:
    """Visitors must not act as whoever started the console."""
    client = {"security_protocol": "SASL_SSL", "sasl_plain_username": "admin", "sasl_plain_password": "secret"}
    settings = ConsoleSettings(client=client)
    assert "secret" not in repr(settings)
    kwargs = settings.client_for("alice", "hers")
    assert (kwargs["sasl_plain_username"], kwargs["sasl_plain_password"]) == ("alice", "hers")
    assert "sasl_plain_password" not in settings.client_for(None, None)
