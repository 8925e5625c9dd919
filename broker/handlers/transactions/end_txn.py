"""EndTxn (26), versions 0-4.

Behavior: decides the outcome of a transaction, and responds when every in-sync replica of `__transaction_state` has the
decision. The markers follow; until all partitions have theirs, the producer's next request waits a moment. A client
that repeats its request gets the same answer. INVALID_TXN_STATE: there is no transaction, or it has ended otherwise.

Version notes: before version 2, a fenced producer gets INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from ottla.broker.requests.access import TRANSACTIONAL_ID, allows
from ottla.broker.requests.coordinator_wait import when_at_rest
from ottla.broker.requests.request import Delayed, Later, Respond, TransactionsRequest
from ottla.broker.requests.transaction_errors import known_to_client
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse


def end_txn(request: TransactionsRequest) -> Message | Delayed:
    """Commit or abort a transaction."""
    transactional_id = request.body.transactional_id
    if not allows(request, TRANSACTIONAL_ID, transactional_id):
        return _response(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return when_at_rest(request, transactional_id, _end)


def _end(request: TransactionsRequest) -> Delayed:
    body: EndTxnRequest = request.body

    def start(respond: Respond) -> None:
        request.services.transactions.end(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            lambda code: respond(lambda: _response(request, code)),
            commit=body.committed,
        )

    return Later(start)


def _response(request: TransactionsRequest, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=known_to_client(request, code))
