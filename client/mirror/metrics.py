"""What a mirror measures, for Prometheus, on an HTTP port of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from ottla.client.mirror.partition_copy import PartitionCopy
from ottla.protocol.identifiers import TopicPartition

_REQUEST_BYTES_MAX: Final = 8192
_REQUEST_SECONDS: Final = 5.0
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

# By name: the type, the text, and the value of a partition at a time in milliseconds.
_METRICS: Final[Mapping[str, tuple[str, str, Callable[[PartitionCopy, int], float]]]] = {
    "ottla_mirror_lag_records": (
        "gauge",
        "Offsets that the destination is behind the source.",
        lambda copy, now_ms: copy.lag_records,
    ),
    "ottla_mirror_lag_bytes": (
        "gauge",
        "The size of the records that are missing, estimated by those copied so far.",
        lambda copy, now_ms: copy.lag_bytes,
    ),
    "ottla_mirror_lag_seconds": (
        "gauge",
        "The age of the newest record that was copied, while the source has newer ones.",
        lambda copy, now_ms: copy.lag_seconds(now_ms),
    ),
    "ottla_mirror_records_total": (
        "counter",
        "Records copied since the start.",
        lambda copy, now_ms: copy.records_copied,
    ),
    "ottla_mirror_bytes_total": (
        "counter",
        "Bytes of batches copied since the start.",
        lambda copy, now_ms: copy.bytes_copied,
    ),
    "ottla_mirror_stopped": (
        "gauge",
        "1 if the partition is not copied any more, and somebody has to look at it.",
        lambda copy, now_ms: copy.problem is not None,
    ),
}


class Measured(Protocol):
    """A mirror, as far as it is measured."""

    @property
    def copies(self) -> Mapping[TopicPartition, PartitionCopy]: ...

    def now_ms(self) -> int: ...


def page(copies: Iterable[PartitionCopy], now_ms: int) -> str:
    """Return the metrics in Prometheus' text format."""
    return "".join(_lines(list(copies), now_ms))


def _lines(copies: list[PartitionCopy], now_ms: int) -> Iterator[str]:
    for name, (kind, text, value) in _METRICS.items():
        yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        for copy in copies:
            topic = copy.partition.topic.translate(_LABEL_ESCAPES)
            yield f'{name}{{topic="{topic}",partition="{copy.partition.partition}"}} {float(value(copy, now_ms)):g}\n'


@asynccontextmanager
async def served(host: str, port: int, mirror: Measured) -> AsyncIterator[int]:
    """Serve the metrics at every path; give the port, which is another one if it was 0. OSError if it is in use."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                body = page(mirror.copies.values(), mirror.now_ms()).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host, port, limit=_REQUEST_BYTES_MAX)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
