"""A response that is computed on the controller's thread."""

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
    """A delayed response: submits `work` to the controller, and makes the response from its result or error."""

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
        """Submit the work; call `respond` when it is done. `answer` may return another delayed response."""
        self._controller.submit(self._work, lambda outcome: respond(lambda: self._answer(outcome)))
