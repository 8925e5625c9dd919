"""A response that the controller's thread has to work out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.broker.controller.controller import Controller
from ottla.broker.controller.term import Term
from ottla.broker.requests.request import Delayed, Respond
from ottla.protocol.errors import KafkaError
from ottla.protocol.message import Message

T = TypeVar("T")


class OnController(Generic[T]):
    """Submits `work` to the controller, and makes the response of what becomes of it; a Delayed."""

    def __init__(
        self,
        controller: Controller,
        work: Callable[[Term], T],
        answer: Callable[[T | KafkaError], Message | Delayed],
    ) -> None:
        self._controller = controller
        self._work = work
        self._answer = answer

    def then(self, respond: Respond) -> None:
        """Begin, and call `respond` when the work is done, or what `answer` waits for then."""
        self._controller.submit(self._work, lambda outcome: respond(lambda: self._answer(outcome)))
