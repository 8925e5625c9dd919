"""Open pages of the console, as browsers have them: each loads its files, then watches the cluster.

    python -m bench.support.console_pages http://localhost:8080 5

Prints a line when all of them show something, and goes on until it is ended.
"""

from __future__ import annotations

import asyncio
import re
import sys

import aiohttp

# What the overview does: one stream of events, and the picture of the partitions.
_WATCH = {"watch": "overview", "every_ms": "2000"}
_PARTITIONS = {"state": "any", "internal": "true", "limit": "300"}
_PARTITIONS_EVERY_S = 3.0


async def open_page(url: str, shown: asyncio.Event) -> None:
    """Load the overview and watch it until cancelled."""
    async with aiohttp.ClientSession(base_url=url, timeout=aiohttp.ClientTimeout(total=None, connect=30)) as http:
        async with http.get("/", headers={"Accept": "text/html"}) as answer:
            page = await answer.text()
        for file in re.findall(r'(?:href|src)="(static/[^"]+)"', page):
            async with http.get(f"/{file}") as answer:
                await answer.read()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_watch(http, shown))
            tasks.create_task(_look_at_partitions(http))


async def _watch(http: aiohttp.ClientSession, shown: asyncio.Event) -> None:
    async with http.get("/api/v1/events", params=_WATCH) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"event: overview"):
                shown.set()
    raise RuntimeError("the stream of events ended")


async def _look_at_partitions(http: aiohttp.ClientSession) -> None:
    while True:
        async with http.get("/api/v1/partitions", params=_PARTITIONS) as answer:
            answer.raise_for_status()
            await answer.read()
        await asyncio.sleep(_PARTITIONS_EVERY_S)


async def main(url: str, count: int) -> None:
    """Open the pages, and say when all of them show something."""
    shown = [asyncio.Event() for _ in range(count)]
    async with asyncio.TaskGroup() as tasks:
        for each in shown:
            tasks.create_task(open_page(url, each))
        for each in shown:
            await each.wait()
        print("open", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
