"""The process of the console: the HTTP server, from start to stop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

from ottla.console.api.live import read_first
from ottla.console.api.session import ottla_version, session_info
from ottla.console.api.table import ROUTES
from ottla.console.login.sessions import Sessions
from ottla.console.settings import ConsoleSettings
from ottla.console.web.answering import Answering, json_response
from ottla.console.web.call import Call
from ottla.console.web.openapi import openapi
from ottla.console.web.route import PREFIX
from ottla.console.web.static_files import STATIC, StaticFiles

_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
_EXPIRE_EVERY_S: Final = 30.0
_SHUTDOWN_S: Final = 2.0
_CONNECTIONS_TO_BROKERS_MAX: Final = 32
_CONNECTIONS_MAX: Final = 512


class ConsoleServer:
    """Serves the page and the API; use it on one event loop, between `start` and `close`."""

    def __init__(self, settings: ConsoleSettings, static: Path | None = None) -> None:
        self._settings = settings
        self._static = static
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._http: aiohttp.ClientSession | None = None
        self._sessions: Sessions | None = None
        self.port = settings.port

    @property
    def url(self) -> str:
        """Where browsers find the console."""
        if self._settings.public_url:
            return self._settings.public_url
        scheme = "https" if self._settings.certificate else "http"
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{scheme}://{'localhost' if host == '127.0.0.1' else host}:{self.port}/"

    async def start(self) -> None:
        """Open the port and serve. Raises OSError if the port is taken."""
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS_TO_BROKERS_MAX, limit_per_host=4)
        self._http = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=True
        )
        self._sessions = Sessions(self._settings, self._http)
        app = self._app(self._sessions)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S, keepalive_timeout=30
        )
        await self._runner.setup()
        tls: ssl.SSLContext | None = None
        if self._settings.certificate:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(self._settings.certificate, self._settings.key)
        handlers = self._runner.server
        assert handlers is not None

        def accepted() -> asyncio.Protocol:
            return handlers() if len(handlers.connections) < _CONNECTIONS_MAX else _Refused()

        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(accepted, self._settings.host, self._settings.port, ssl=tls)
        except BaseException:
            await self.close()
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        self._expiring = asyncio.create_task(self._expire())

    async def close(self) -> None:
        """Give the port back, and close all clients."""
        if self._expiring is not None:
            self._expiring.cancel()
        if self._server is not None:
            self._server.close()
        if self._sessions is not None:
            # Streams would hold up the end of their connections.
            await self._sessions.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    def _app(self, sessions: Sessions) -> web.Application:
        answering = Answering(self._settings, sessions)
        files = StaticFiles(self._settings, self._static or STATIC, is_live=self._static is not None)
        app = web.Application(client_max_size=_BODY_BYTES_MAX, middlewares=[answering.protect])
        description = openapi(ROUTES, ottla_version())

        async def describe(request: web.Request) -> web.Response:
            return json_response(description)

        async def page(request: web.Request) -> web.Response:
            session = answering.session_of_browser(request)
            if session is not None:
                call = Call(request, self._settings, sessions, session)
                session.begin(lambda: read_first(call))
            told = session_info(self._settings, None if session is None else session.user)
            return files.page(request, msgspec.json.encode(told))

        prefixes = dict.fromkeys(("", self._settings.base_path.rstrip("/")))
        for prefix in prefixes:
            app.router.add_get(f"{prefix}{PREFIX}/openapi.json", describe)
            for route in ROUTES:
                app.router.add_route(route.method, f"{prefix}{PREFIX}{route.path}", answering.handler(route))
            app.router.add_get(f"{prefix}/static/{{version}}/{{name:.+}}", files.asset)
        app.router.add_get("/{path:.*}", page)
        return app

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_EVERY_S)
            if self._sessions is not None:
                self._sessions.expire()


class _Refused(asyncio.Protocol):
    """A connection beyond the limit; it is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def serve(server: ConsoleServer, started: Callable[[ConsoleServer], Any], stopped: asyncio.Event) -> None:
    """Run the console until it is stopped."""
    await server.start()
    try:
        started(server)
        await stopped.wait()
    finally:
        await server.close()
