"""Pages of the brokers' HTTP ports: large ones are read to their end, endless ones are given up, connections stay."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import test_utils, web
from prometheus_client import CollectorRegistry

from ottla.broker.observability.http_server import HttpServer
from ottla.client.net.metadata import BrokerAddress
from ottla.console.cluster.brokers_http import BrokersHttp, PageError

EVENTS = [{"text": "x" * 1000} for _ in range(2000)]


def admin_of(port: int) -> Any:
    """An admin client of one broker, which has its HTTP port here."""
    entry = SimpleNamespace(name="ottla.http.listener", value=f"127.0.0.1:{port}")

    async def describe_configs(_resources: object, names: list[str]) -> list[Any]:
        return [SimpleNamespace(entries=[entry])]

    cluster = SimpleNamespace(
        brokers={1: BrokerAddress(1, "127.0.0.1", 9092)},
        settings=SimpleNamespace(addresses=[BrokerAddress(1, "127.0.0.1", 1)]),
    )
    return SimpleNamespace(cluster=cluster, describe_configs=describe_configs)


async def test_a_large_page_is_read_to_its_end() -> None:
    """It arrives in many parts; a broker that remembers a thousand events must not look as if it did not answer."""

    async def events(_request: web.Request) -> web.Response:
        return web.json_response({"events": EVENTS})

    async def endless(_request: web.Request) -> web.Response:
        return web.Response(body=b"[" + b"1," * (5 * 1024 * 1024) + b"1]")

    app = web.Application()
    app.router.add_get("/inside/v1/events", events)
    app.router.add_get("/inside/v1/endless", endless)
    async with test_utils.TestServer(app, host="127.0.0.1") as server, aiohttp.ClientSession() as http:
        assert server.port is not None
        pages = BrokersHttp(admin_of(server.port), http)
        assert await pages.get(1, "/inside/v1/events") == {"events": EVENTS}
        with pytest.raises(PageError, match="larger than"):
            await pages.get(1, "/inside/v1/endless")
        await pages.close()


async def test_polls_share_a_connection() -> None:
    """A broker would otherwise open a thread and a socket for each of them. It keeps the connection, and so do we."""
    opened = 0

    async def count(*_: object) -> None:
        nonlocal opened
        opened += 1

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    server = HttpServer(
        socket.create_server(("127.0.0.1", 0)),
        CollectorRegistry(),
        lambda: {"ready": True},
        {"groups": lambda _: {"a": 1}},
    )
    server.start()
    try:
        async with aiohttp.ClientSession(trace_configs=[trace]) as http:
            pages = BrokersHttp(admin_of(server.port), http)
            assert [await pages.get(1, "/groups") for _ in range(3)] == [{"a": 1}] * 3
            await pages.close()
    finally:
        server.stop()
    assert opened == 1
