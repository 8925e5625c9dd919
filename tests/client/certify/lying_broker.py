"""A relay in front of a real broker that breaks one rule: it changes requests or answers on their way.

Addresses in answers become that of the relay, so that clients stay with it. What cannot be read is passed on as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ottla.protocol.api import Api
from ottla.protocol.errors import FrameError, ProtocolError
from ottla.protocol.frame import FrameSplitter, frame
from ottla.protocol.requests import decode_request, decode_response, encode_request, encode_response

_FRAME_BYTES_MAX = 100_000_000


@dataclass
class Exchange:
    """A request that was read, and what a lie wants to remember of it."""

    api: Api
    version: int
    correlation_id: int
    request: Any
    # A lie may answer by itself.
    answer: bytes | None = None


@dataclass
class Lie:
    """What a relay changes. Each function may change the message in place; bytes replace the whole answer."""

    name: str
    red: set[str]
    request: Callable[[Exchange], None] = lambda exchange: None
    response: Callable[[Exchange, Any], bytes | None] = lambda exchange, response: None
    # Gets a frame that is not a request of ours; bytes are sent to the client as an answer.
    stranger: Callable[[bytes], bytes | None] = lambda body: None
    # Closes the connection for this frame.
    hangs_up: Callable[[bytes], bool] = lambda body: False
    # How long this frame takes to the broker, and all behind it.
    delay_s: Callable[[bytes], float] = lambda body: 0.0

    def __str__(self) -> str:
        return self.name


class LyingBroker:
    """The relay."""

    def __init__(self, real: str, lie: Lie) -> None:
        self._host, _, port = real.rpartition(":")
        self._port = int(port)
        self._lie = lie
        self._mine = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Listen, and return the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._mine = server.sockets[0].getsockname()[1]
        try:
            yield f"127.0.0.1:{self._mine}"
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.add(writer)
        real_reader, real_writer = await asyncio.open_connection(self._host, self._port)
        asked: deque[Exchange | None] = deque()
        directions = [
            asyncio.create_task(self._forth(reader, real_writer, writer, asked)),
            asyncio.create_task(self._back(real_reader, writer, asked)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            for each in (writer, real_writer):
                each.transport.abort()
                with contextlib.suppress(OSError):
                    await each.wait_closed()
            self._writers.discard(writer)
            self._serving.discard(task)

    async def _forth(
        self,
        reader: asyncio.StreamReader,
        real: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        asked: deque[Exchange | None],
    ) -> None:
        splitter: FrameSplitter | None = FrameSplitter(_FRAME_BYTES_MAX)
        while received := await reader.read(65536):
            if splitter is None:
                real.write(received)
                continue
            try:
                bodies = list(splitter.feed(received))
            except FrameError:
                # The broker gets it, too, and closes the connection.
                splitter = None
                real.write(received)
                continue
            for body in bodies:
                if self._lie.hangs_up(bytes(body)):
                    return
                await asyncio.sleep(self._lie.delay_s(bytes(body)))
                self._pass(bytes(body), real, client, asked)

    def _pass(
        self, body: bytes, real: asyncio.StreamWriter, client: asyncio.StreamWriter, asked: deque[Exchange | None]
    ) -> None:
        try:
            header, request = decode_request(body)
        except ProtocolError:
            if (answer := self._lie.stranger(body)) is not None:
                client.write(answer)
                return
            asked.append(None)
            real.write(frame([body]))
            return
        exchange = Exchange(Api(header.request_api_key), header.request_api_version, header.correlation_id, request)
        self._lie.request(exchange)
        if exchange.answer is not None:
            client.write(exchange.answer)
        if exchange.api is not Api.PRODUCE or request.acks != 0:
            asked.append(exchange)
        parts = encode_request(
            exchange.api, exchange.version, exchange.correlation_id, header.client_id, exchange.request
        )
        real.write(frame([bytes(part) for part in parts]))

    async def _back(
        self, real: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[Exchange | None]
    ) -> None:
        splitter = FrameSplitter(_FRAME_BYTES_MAX)
        while received := await real.read(65536):
            for body in splitter.feed(received):
                exchange = asked.popleft() if asked else None
                writer.write(frame([bytes(body)]) if exchange is None else self._answered(exchange, bytes(body)))

    def _answered(self, exchange: Exchange, body: bytes) -> bytes:
        try:
            _, response = decode_response(exchange.api, exchange.version, body)
        except ProtocolError:
            return frame([body])
        self._claim(response)
        lied = self._lie.response(exchange, response)
        if lied is not None:
            return lied
        return answered(exchange, response)

    def _claim(self, response: Any) -> None:
        """Put our port in place of the broker's."""
        for rows in (getattr(response, "brokers", ()), getattr(response, "coordinators", ()), [response]):
            for row in rows:
                if getattr(row, "port", 0) == self._port:
                    row.port = self._mine


def answered(exchange: Exchange, response: Any) -> bytes:
    """Return a response as a frame."""
    parts = encode_response(exchange.api, exchange.version, exchange.correlation_id, response)
    return frame([bytes(part) for part in parts])
