"""Waiting a moment for the coordinator of a group, where the client would only ask again.

A broker that has just been made coordinator reads its partition first, which usually takes milliseconds; a client that
is sent away comes back after its backoff, a tenth of a second and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.groups.placement import CONSUMER_OFFSETS
from ottla.broker.requests.request import Delayed, GroupsRequest, Respond
from ottla.protocol.message import Message

_WAIT_SECONDS: Final = 1.0

Answer = Callable[[GroupsRequest], Message | Delayed]


def when_ready(request: GroupsRequest, group_ids: Iterable[str], answer: Answer) -> Message | Delayed:
    """Answer at once, or when the groups are loaded if they soon will be; `answer` finds out whether they are."""
    expected = [group_id for group_id in group_ids if request.services.groups.is_expected(group_id)]
    return _Waiting(request, expected, answer) if expected else answer(request)


class _Waiting(DelayedOperation):
    """Waits under the topic's name, which is checked when the metadata tells of it and when a partition is loaded."""

    __slots__ = ("_answer", "_group_ids", "_request", "_respond")

    def __init__(self, request: GroupsRequest, group_ids: list[str], answer: Answer) -> None:
        super().__init__()
        self._request = request
        self._group_ids = group_ids
        self._answer = answer
        self._respond: Respond | None = None

    def is_satisfied(self) -> bool:
        """Whether none of the groups is expected any more."""
        groups = self._request.services.groups
        return not any(groups.is_expected(group_id) for group_id in self._group_ids)

    def on_complete(self, *, expired: bool) -> None:
        """Answer with what is known now."""
        assert self._respond is not None
        self._respond(lambda: self._answer(self._request))

    def then(self, respond: Respond) -> None:
        """Wait in purgatory, and answer from there."""
        self._respond = respond
        self._request.services.delayed_topics.watch(self, [CONSUMER_OFFSETS], _WAIT_SECONDS)
