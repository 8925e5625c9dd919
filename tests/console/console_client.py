"""A console on a free port, in this process, and a client that talks to it as a browser or curl would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ottla.console.server import ConsoleServer
from ottla.console.settings import ConsoleSettings
from ottla.console.web.protection import CHANGE_HEADER


class ConsoleClient:
    """Sends requests to a console. Cookies are kept, as a browser does."""

    def __init__(self, server: ConsoleServer, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.http = http
        self.base = f"http://127.0.0.1:{server.port}"

    async def get(self, path: str, *, status: int = 200, **query: Any) -> Any:
        """Return the JSON of a route."""
        return await self.send("GET", path, status=status, query=query)

    async def post(self, path: str, body: Any, *, status: int = 200) -> Any:
        """Post JSON to a route, and return its JSON."""
        return await self.send("POST", path, body, status=status)

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        status: int = 200,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request to a route, and return its JSON; fails if the status is another one."""
        sent = {CHANGE_HEADER: "1"} if headers is None else dict(headers)
        params = {
            name: str(value).lower() if isinstance(value, bool) else value for name, value in (query or {}).items()
        }
        async with self.http.request(
            method, f"{self.base}/api/v1{path}", json=body, params=params, headers=sent
        ) as answer:
            text = await answer.text()
            assert answer.status == status, f"{method} {path}: {answer.status} {text[:2000]}"
            problem = answer.status >= 400
            assert answer.content_type == ("application/problem+json" if problem else "application/json")
            return json.loads(text)

    async def lines(self, path: str, **query: Any) -> list[Any]:
        """Return all lines of a stream that ends."""
        async with self.http.get(f"{self.base}/api/v1{path}", params=query) as answer:
            text = await answer.text()
            assert answer.status == 200, text
            assert answer.content_type == "application/x-ndjson"
            return [json.loads(line) for line in text.splitlines()]


@asynccontextmanager
async def running_console(
    bootstrap: str, *, http_cookies: bool = True, **settings: Any
) -> AsyncIterator[ConsoleClient]:
    """Run a console for a cluster, on any free port."""
    client = {"bootstrap_servers": bootstrap, **settings.pop("client", {})}
    server = ConsoleServer(ConsoleSettings(client=client, port=0, **settings))
    await server.start()
    # Cookies of an address are refused by default.
    jar = aiohttp.CookieJar(unsafe=True) if http_cookies else aiohttp.DummyCookieJar()
    try:
        async with aiohttp.ClientSession(cookie_jar=jar) as http:
            yield ConsoleClient(server, http)
    finally:
        await server.close()
