"""What the tests give to clients and get from them, in one form for all clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from ottla.protocol.errors import ErrorCode

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Acks: TypeAlias = Literal[0, 1, "all"]

# Bounds a hang; no test is expected to come near it.
DEADLINE_S = 90.0

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Sent:
    """A record for a client to produce; without a timestamp the client gives it one."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a client shows it to whoever consumes it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Producing:
    """How to produce; `options` are the client's own, by its own names."""

    acks: Acks = "all"
    codec: str = "none"
    idempotent: bool = False
    linger_ms: int = 0
    request_bytes_max: int = 1_000_000
    options: tuple[tuple[str, Any], ...] = ()


# With acks=all and else as clients do it without options.
SAFELY = Producing()


class ClientError(Exception):
    """What a client told its user: the broker's code, and the words of the client."""

    def __init__(self, code: int, words: str) -> None:
        self.code = ErrorCode.of(code)
        super().__init__(f"{self.code.name}: {words}")


class Client(Protocol):
    """A client library or tool, used like its documentation says; each call is a client from start to close."""

    name: str
    codecs: tuple[str, ...]

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Producing = SAFELY, *, partition: int = 0
    ) -> list[int]:
        """Produce, wait for all acknowledgements and return the offsets; -1 for each where the client knows none."""
        ...

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0, partition: int = 0) -> list[Received]:
        """Consume so many records of an assigned partition, from an offset on."""
        ...


def plain(records: Sequence[Received]) -> list[Sent]:
    """Return what was received without where it was."""
    return [Sent(record.value, record.key, record.headers, record.timestamp_ms) for record in records]
