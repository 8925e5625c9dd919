"""A response that is ready when each of several things is done, whenever and on whichever thread that is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ottla.broker.requests.request import Respond
from ottla.protocol.message import Message

T = TypeVar("T")
R = TypeVar("R")


class Gathering(Generic[T, R]):
    """Begins to handle every item, and responds with the results of all."""

    __slots__ = ("_answer", "_begin", "_items")

    def __init__(
        self,
        items: Sequence[T],
        begin: Callable[[T, Callable[[R], None]], None],
        answer: Callable[[Sequence[R]], Message],
    ) -> None:
        """`begin` calls back once for its item, now or later. `answer` gets the results in the order of the items."""
        self._items = items
        self._begin = begin
        self._answer = answer

    def then(self, respond: Respond) -> None:
        """Begin, and respond when the last item is done."""
        count = len(self._items)
        results: dict[int, R] = {}
        lock = threading.Lock()

        def gathered() -> Message:
            return self._answer([results[position] for position in range(count)])

        def begin(position: int, item: T) -> None:
            def done(result: R) -> None:
                with lock:
                    results[position] = result
                    is_last = len(results) == count
                if is_last:
                    respond(gathered)

            self._begin(item, done)

        if not count:
            respond(gathered)
        for position, item in enumerate(self._items):
            begin(position, item)
