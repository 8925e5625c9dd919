"""A connection that is secured and authenticated as any other, on which a check sends bytes of its own."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.settings import ClientSettings
from ottla.protocol.frame import Buffer, frame

# Of the frames that are received and not asked for.
_FRAMES_MAX: Final = 1000


class Probe(AsyncioConnection):
    """From `take_over` on, frames are kept as they come, and nothing is made of them."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._taken_over = False
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(_FRAMES_MAX)

    @classmethod
    async def dial(cls, host: str, port: int, settings: ClientSettings) -> Self:
        """Connect and log in."""
        probe = await cls.open(host, port, settings)
        assert isinstance(probe, cls)
        probe._taken_over = True
        return probe

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self._transport is not None
        self._transport.write(data)

    def send_frame(self, body: bytes) -> None:
        """Send bytes with their size before them."""
        self.send(frame([body]))

    def frame_received(self, frame: Buffer) -> None:
        """Keep an answer."""
        if not self._taken_over:
            super().frame_received(frame)
        elif not self._frames.full():
            self._frames.put_nowait(bytes(frame))

    async def answer(self, timeout_s: float) -> bytes | None:
        """Return the next answer without its size; None if the broker closes the connection instead.

        Raises TimeoutError if neither happens in time.
        """
        received: asyncio.Future[Any] = asyncio.ensure_future(self._frames.get())
        try:
            async with asyncio.timeout(timeout_s):
                ends: set[asyncio.Future[Any]] = {received, self._closed}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return bytes(received.result()) if received.done() else None
        finally:
            received.cancel()
