"""Waiting a moment for a coordinator, so that the client need not retry.

A broker that has just become coordinator reads its partition first, which usually takes milliseconds. The markers of a
transaction take as long, and the producer's next one cannot begin before they are written. A client that gets an error
instead retries after its backoff, of a tenth of a second or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.requests.request import Delayed, GroupsRequest, Respond, TransactionsRequest
from ottla.protocol.message import Message

_WAIT_SECONDS: Final = 1.0


def when_ready(
    request: GroupsRequest, group_ids: Iterable[str], answer: Callable[[GroupsRequest], Message | Delayed]
) -> Message | Delayed:
    """Return `answer(request)` at once, or later if the groups are about to be loaded. `answer` checks their state."""
    groups, delayed_topics = request.services.groups, request.services.delayed_topics
    expected = [group_id for group_id in group_ids if groups.is_expected(group_id)]
    if not expected:
        return answer(request)

    def is_waiting() -> bool:
        return any(groups.is_expected(group_id) for group_id in expected)

    # The offsets topic is checked on new metadata and when a partition is loaded.
    def watch(operation: DelayedOperation) -> None:
        delayed_topics.watch(operation, [CONSUMER_OFFSETS], _WAIT_SECONDS)

    return _Waiting(is_waiting, watch, lambda: answer(request))


def when_at_rest(
    request: TransactionsRequest,
    transactional_id: str,
    answer: Callable[[TransactionsRequest], Message | Delayed],
) -> Message | Delayed:
    """Return `answer(request)` at once, or later if the transactional id is busy. `answer` checks its state.

    What a client asked for that is gone is not done. It has asked again by now, on another connection, and may have
    ended its transaction: a late request would be taken for one about the next transaction.
    """
    transactions = request.services.transactions

    def answer_present() -> Message | Delayed:
        request.check_wanted()
        return answer(request)

    if not transactions.is_busy(transactional_id):
        return answer_present()

    def watch(operation: DelayedOperation) -> None:
        transactions.await_rest(operation, transactional_id, _WAIT_SECONDS)

    return _Waiting(lambda: transactions.is_busy(transactional_id), watch, answer_present)


class _Waiting(DelayedOperation):
    """Waits in purgatory, and answers with the state of that moment."""

    __slots__ = ("_answer", "_is_waiting", "_respond", "_watch")

    def __init__(
        self,
        is_waiting: Callable[[], bool],
        watch: Callable[[DelayedOperation], None],
        answer: Callable[[], Message | Delayed],
    ) -> None:
        super().__init__()
        self._is_waiting = is_waiting
        self._watch = watch
        self._answer = answer
        self._respond: Respond | None = None

    def is_satisfied(self) -> bool:
        """Whether there is nothing left to wait for."""
        return not self._is_waiting()

    def on_complete(self, *, expired: bool) -> None:
        """Answer."""
        assert self._respond is not None
        self._respond(self._answer)

    def then(self, respond: Respond) -> None:
        """Wait, then respond."""
        self._respond = respond
        self._watch(self)
