"""An attempt to connect that is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.settings import ClientSettings


class MuteTransport(asyncio.Transport):
    """A transport that never reports its end, as uvloop's if `create_connection` is cancelled at the wrong moment."""

    is_aborted = False

    def abort(self) -> None:
        """Note it, and say nothing."""
        self.is_aborted = True


async def test_it_ends_without_word_from_its_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was stopped while it connected stood still for minutes."""
    connecting, transport = asyncio.Event(), MuteTransport()

    async def create_connection(factory: Callable[[], asyncio.Protocol], *_: Any, **__: Any) -> None:
        factory().connection_made(transport)
        connecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
    opening = asyncio.create_task(AsyncioConnection.open("localhost", 9092, ClientSettings()))
    await connecting.wait()
    opening.cancel()
    done, _ = await asyncio.wait([opening], timeout=5)

    assert done == {opening}
    assert opening.cancelled()
    assert transport.is_aborted
