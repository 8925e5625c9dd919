"""The end of a request without a connection: what an exchange is in the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.requests.request import Answer, Respond
from ottla.protocol.message import Message


def answering(take: Callable[[Any], object]) -> Respond:
    """Give the response to a function, when it is there; an answer that waits again is waited for."""

    def respond(make: Callable[[], Answer]) -> None:
        answer = make()
        if answer is None or isinstance(answer, Message):
            take(answer)
        else:
            answer.then(respond)

    return respond
