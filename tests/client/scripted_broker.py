"""A broker for tests of the client: a port behind which a function answers requests, on the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ottla.client.net.settings import HostPort
from ottla.protocol.api import Api
from ottla.protocol.frame import FrameSplitter, frame
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.requests import decode_request, encode_response


class Silence:
    """An answer that never comes."""


class Hangup:
    """The end of the connection in place of an answer."""


SILENCE = Silence()
HANGUP = Hangup()
Reply = Message | Silence | Hangup | bytes
# Gets the API, the version and the request. Bytes are sent as they are.
Answer = Callable[[Api, int, Any], Awaitable[Reply]]


class ScriptedBroker:
    """Answers the requests of each connection in order; `requests` has all that came, but for ApiVersions."""

    def __init__(
        self, answer: Answer, versions: Mapping[Api, Versions] | None = None, offer: Answer | None = None
    ) -> None:
        self._answer = answer
        self._versions = versions
        self._offer = offer or self._offer_versions
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self.connected = 0
        self.requests: list[tuple[Api, Any]] = []
        self.address = HostPort("127.0.0.1", 0)

    async def start(self) -> None:
        """Listen, on the port that it had before if it had one."""
        self._server = await asyncio.start_server(self._serve, self.address.host, self.address.port)
        self.address = HostPort(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        """Stop listening and break all connections."""
        assert self._server is not None
        self._server.close()
        self.break_connections()
        await self._server.wait_closed()
        if self._serving:
            await asyncio.wait(self._serving)

    def break_connections(self) -> None:
        """Break what is connected now."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.add(writer)
        splitter = FrameSplitter(100_000_000)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                while received := await reader.read(65536):
                    for body in splitter.feed(received):
                        if not await self._respond(body, writer):
                            return
        finally:
            self._writers.discard(writer)
            self._serving.discard(task)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _respond(self, body: bytes, writer: asyncio.StreamWriter) -> bool:
        header, request = decode_request(body)
        api = Api(header.request_api_key)
        if api is Api.API_VERSIONS:
            reply = await self._offer(api, header.request_api_version, request)
        else:
            self.requests.append((api, request))
            reply = await self._answer(api, header.request_api_version, request)
        if isinstance(reply, Hangup):
            return False
        if isinstance(reply, Message):
            reply = frame(encode_response(api, header.request_api_version, header.correlation_id, reply))
        if isinstance(reply, bytes):
            writer.write(reply)
        return True

    async def _offer_versions(self, api: Api, version: int, request: Any) -> Reply:
        offered = self._versions or {api: api.versions for api in Api}
        rows = [
            ApiVersion(api_key=key, min_version=range_.first, max_version=range_.last)
            for key, range_ in offered.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=rows)


@asynccontextmanager
async def scripted_broker(
    answer: Answer, versions: Mapping[Api, Versions] | None = None, offer: Answer | None = None
) -> AsyncIterator[ScriptedBroker]:
    """Run a scripted broker; `offer`, if given, answers ApiVersions."""
    running = ScriptedBroker(answer, versions, offer)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def metadata_response(
    brokers: Mapping[int, HostPort],
    leaders: Mapping[str, list[int]],
    *,
    leader_epoch: int = 0,
    controller_id: int = 1,
    errors: Mapping[str, int] | None = None,
) -> MetadataResponse:
    """Make an answer in which partition i of a topic is led by `leaders[topic][i]`; -1 for nobody."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=address.host, port=address.port)
            for node_id, address in brokers.items()
        ],
        cluster_id="scripted",
        controller_id=controller_id,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=topic,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0 if leader >= 0 else 5,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=leader_epoch,
                        replica_nodes=[max(leader, 0)],
                        isr_nodes=[max(leader, 0)],
                    )
                    for index, leader in enumerate(of_topic)
                ],
            )
            for topic, of_topic in leaders.items()
        ]
        + [MetadataResponseTopic(error_code=code, name=topic, partitions=[]) for topic, code in (errors or {}).items()],
    )
