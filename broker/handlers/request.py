"""What a handler is given, and what it may answer.

A handler is a function `(Request) -> Message | Delayed | None`: the response, something that will have the response
later, or nothing at all (Produce with acks=0). It runs on an IO worker, never on the loop, and may block for a disk
read but never for the network, ZooKeeper's answer excepted. What it raises as KafkaError, `dispatch` answers with the
error code where the API has a place for it; anything else closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ottla.broker.security.session import Session
from ottla.broker.services import Services
from ottla.protocol.api import Api
from ottla.protocol.message import Message


class Delayed(Protocol):
    """A response that comes later, from any thread."""

    def then(self, respond: Callable[[Message], None]) -> None:
        """Call `respond` once, now or later, with the response."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """One request with where it came from."""

    api: Api
    version: int
    # The decoded message; records in it are views of the frame, valid until the response is sent.
    body: Any
    client_id: str
    # Who asks, and from where.
    session: Session
    services: Services
    # Bytes that came over the wire for it.
    size: int = 0
    # For how long the client is to wait afterwards, where the handler found it beyond a quota.
    throttle_ms: int = 0


class Refusal(NamedTuple):
    """The answer to a client that failed to say who it is: sent after a pause, and then the connection is closed."""

    response: Message
    reason: str

    def then(self, respond: Callable[[Message], None]) -> None:
        """Give the response; `dispatch` sees to the pause."""
        respond(self.response)


class RequestFailedError(Exception):
    """A request that cannot be answered: its connection is closed, and the text says why."""


Handler = Callable[[Request], Message | Delayed | None]
