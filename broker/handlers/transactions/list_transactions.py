"""ListTransactions (66), versions 0-1.

Behavior: lists the transactional ids that this broker coordinates and the client may describe. Filters by state and by
producer. Names of states that do not exist are returned; if there are only such names, the list is empty. While a
partition is being loaded, the answer is COORDINATOR_LOAD_IN_PROGRESS.

Version notes: version 1 adds a duration: only transactions that are open for longer. As in Kafka, ids without a
transaction count as open since 1970.
"""

from __future__ import annotations

from ottla.broker.requests.access import TRANSACTIONAL_ID, denied
from ottla.broker.requests.request import TransactionsRequest
from ottla.broker.transactions.transaction import Transaction, TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.list_transactions import TransactionState as ListedTransaction

_TITLES = {state.title: state for state in TransactionState}
_ANY_DURATION = -1


def list_transactions(request: TransactionsRequest) -> ListTransactionsResponse:
    """List transactional ids."""
    body: ListTransactionsRequest = request.body
    coordinator = request.services.transactions
    unknown = [name for name in body.state_filters if name not in _TITLES]
    if coordinator.is_loading:
        return _response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, unknown, [])
    states = {_TITLES[name] for name in body.state_filters if name in _TITLES}
    if unknown and not states:
        return _response(ErrorCode.NONE, unknown, [])
    producers, now_ms = frozenset(body.producer_id_filters), request.services.clock()

    def is_wanted(transaction: Transaction) -> bool:
        stored = transaction.stored
        return (
            stored.state is not TransactionState.DEAD
            and (not states or stored.state in states)
            and (not producers or stored.producer_id in producers)
            and (body.duration_filter <= _ANY_DURATION or now_ms - stored.start_ms > body.duration_filter)
        )

    found = [entry.transaction for entry in coordinator if is_wanted(entry.transaction)]
    hidden = denied(request, TRANSACTIONAL_ID, (each.transactional_id for each in found), log_if_denied=False)
    return _response(ErrorCode.NONE, unknown, [each for each in found if each.transactional_id not in hidden])


def _response(code: ErrorCode, unknown: list[str], found: list[Transaction]) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=code,
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.stored.producer_id,
                transaction_state=each.state.title,
            )
            for each in found
        ],
    )
