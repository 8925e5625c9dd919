"""What a handler gets, and what it may return.

A handler is a function `(Request[S]) -> Message | Delayed | None`: the response, something that will have the response
later, or nothing at all (Produce with acks=0). It runs on an IO worker, never on the loop, and may block for a disk
read but never for the network, ZooKeeper's answer excepted. A KafkaError that it raises is answered with its code, any
other exception with UNKNOWN_SERVER_ERROR and a line in the log; the connection is closed where the API has no place for
a code, and after a RequestFailedError or a DecodeError. The same holds for what is raised later, on the way to the
response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from ottla.broker.requests.services import (
    AdminServices,
    ControlPlaneServices,
    DataServices,
    GroupServices,
    RequestServices,
    SecurityServices,
    TopicServices,
    TransactionServices,
)
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.message import Message


class Delayed(Protocol):
    """A response that comes later, from any thread."""

    def then(self, respond: Respond) -> None:
        """Call `respond` once, now or later, with a function that returns the response."""
        ...


class Later:
    """A response that a function brings, now or later."""

    __slots__ = ("_start",)

    def __init__(self, start: Callable[[Respond], None]) -> None:
        self._start = start

    def then(self, respond: Respond) -> None:
        """Call the function."""
        self._start(respond)


class EffectPending:
    """A delayed response whose request has not taken effect yet: no later one of its connection may begin."""

    __slots__ = ()

    def then(self, respond: Respond) -> None:
        """Call `respond` once, now or later, with a function that returns the response."""
        raise NotImplementedError


Answer = Message | Delayed | None
# Ends a request with the answer that a function returns. It takes the function, not the answer, so that an exception
# in the function ends the request too. It raises nothing itself.
Respond = Callable[[Callable[[], Answer]], None]


class RequestOrigin(Protocol):
    """The connection of a request."""

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed it."""
        ...


S_co = TypeVar("S_co", bound=RequestServices, covariant=True)


class Request(Struct, Generic[S_co], eq=False):
    """One request, with where it came from and what its handler may use."""

    api: Api
    version: int
    # The decoded message. Records in it are views of the frame, valid until the handler returns.
    body: Any
    client_id: str
    # The client's principal, address and listener.
    session: Session
    # What the handlers of its folder need.
    services: S_co
    # The size of the frame in bytes.
    size: int = 0
    # Where it came from; None for one that no connection brought.
    origin: RequestOrigin | None = None
    # How long the client has to wait afterwards, because the handler found it above a quota.
    throttle_ms: int = 0

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for the response any more."""
        return self.origin is not None and self.origin.is_gone

    def check_wanted(self) -> None:
        """Raise RequestFailedError if nobody waits for the response: a change that its client gave up is not made."""
        if self.is_abandoned:
            raise RequestFailedError("the client is gone")


# The requests of each folder of handlers, and one of any folder.
DataRequest = Request[DataServices]
GroupsRequest = Request[GroupServices]
TransactionsRequest = Request[TransactionServices]
TopicsRequest = Request[TopicServices]
AdminRequest = Request[AdminServices]
SecurityRequest = Request[SecurityServices]
ControlPlaneRequest = Request[ControlPlaneServices]
AnyRequest = Request[RequestServices]


class Refusal(NamedTuple):
    """The response to a failed authentication: it is sent after a pause, and then the connection is closed."""

    response: Message
    reason: str

    def then(self, respond: Respond) -> None:
        """Respond at once; the exchange adds the pause."""
        respond(lambda: self.response)


class RequestFailedError(Exception):
    """A request that cannot be answered. Its connection is closed; the message says why."""


S = TypeVar("S", bound=RequestServices)
Handler = Callable[[Request[S]], Answer]
