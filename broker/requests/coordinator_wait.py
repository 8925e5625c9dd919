"""Waiting a moment for the coordinator of a group, so that the client need not retry.

A broker that has just become coordinator reads its partition first, which usually takes milliseconds. A client that
gets an error instead retries after its backoff of a tenth of a second or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.requests.request import Delayed, GroupsRequest, Respond
from ottla.protocol.message import Message

_WAIT_SECONDS: Final = 1.0

Answer = Callable[[GroupsRequest], Message | Delayed]


def when_ready(request: GroupsRequest, group_ids: Iterable[str], answer: Answer) -> Message | Delayed:
    """Return `answer(request)` at once, or later if the groups are about to be loaded. `answer` checks their state."""
    expected = [group_id for group_id in group_ids if request.services.groups.is_expected(group_id)]
    return _Waiting(request, expected, answer) if expected else answer(request)


class _Waiting(DelayedOperation):
    """Waits under the name of the offsets topic, which is checked on new metadata and when a partition is loaded."""

    __slots__ = ("_answer", "_group_ids", "_request", "_respond")

    def __init__(self, request: GroupsRequest, group_ids: list[str], answer: Answer) -> None:
        super().__init__()
        self._request = request
        self._group_ids = group_ids
        self._answer = answer
        self._respond: Respond | None = None

    def is_satisfied(self) -> bool:
        """Whether all groups are loaded, or no longer expected here."""
        groups = self._request.services.groups
        return not any(groups.is_expected(group_id) for group_id in self._group_ids)

    def on_complete(self, *, expired: bool) -> None:
        """Answer with the state of this moment."""
        assert self._respond is not None
        self._respond(lambda: self._answer(self._request))

    def then(self, respond: Respond) -> None:
        """Wait in purgatory, then respond."""
        self._respond = respond
        self._request.services.delayed_topics.watch(self, [CONSUMER_OFFSETS], _WAIT_SECONDS)
