"""What a handler is given, and what it may answer.

A handler is a function `(Request[S]) -> Message | Delayed | None`: the response, something that will have the response
later, or nothing at all (Produce with acks=0). It runs on an IO worker, never on the loop, and may block for a disk
read but never for the network, ZooKeeper's answer excepted. A KafkaError that it raises is answered with its code, any
other exception with UNKNOWN_SERVER_ERROR and a line in the log; the connection is closed where the API has no place for
a code, and after a RequestFailedError or a DecodeError. The same holds for what is raised later, on the way to the
response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.requests.services import (
    AdminServices,
    ControlPlaneServices,
    DataServices,
    GroupServices,
    RequestServices,
    SecurityServices,
    TopicServices,
)
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.message import Message


class Delayed(Protocol):
    """A response that comes later, from any thread."""

    def then(self, respond: Respond) -> None:
        """Call `respond` once, now or later, with what makes the response."""
        ...


Answer = Message | Delayed | None
# Ends a request with the answer that a function makes. It takes the function, not the answer, so that whatever making
# it raises ends the request too: nobody else would know whom to tell. It raises nothing itself.
Respond = Callable[[Callable[[], Answer]], None]


S_co = TypeVar("S_co", bound=RequestServices, covariant=True)


@dataclass(slots=True, eq=False)
class Request(Generic[S_co]):
    """One request, with where it came from and what its handler may use."""

    api: Api
    version: int
    # The decoded message; records in it are views of the frame, valid until the response is sent.
    body: Any
    client_id: str
    # Who asks, and from where.
    session: Session
    # What the handlers of its folder need.
    services: S_co
    # Bytes that came over the wire for it.
    size: int = 0
    # For how long the client is to wait afterwards, where the handler found it beyond a quota.
    throttle_ms: int = 0


# The requests of each folder of handlers, and one of any folder.
DataRequest = Request[DataServices]
GroupsRequest = Request[GroupServices]
TopicsRequest = Request[TopicServices]
AdminRequest = Request[AdminServices]
SecurityRequest = Request[SecurityServices]
ControlPlaneRequest = Request[ControlPlaneServices]
AnyRequest = Request[RequestServices]


class Refusal(NamedTuple):
    """The answer to a client that failed to say who it is: sent after a pause, and then the connection is closed."""

    response: Message
    reason: str

    def then(self, respond: Respond) -> None:
        """Give the response; `dispatch` sees to the pause."""
        respond(lambda: self.response)


class RequestFailedError(Exception):
    """A request that cannot be answered: its connection is closed, and the text says why."""


S = TypeVar("S", bound=RequestServices)
Handler = Callable[[Request[S]], Answer]
