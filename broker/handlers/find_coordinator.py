"""FindCoordinator (10), versions 0-6.

Behavior: answers each key that there is no coordinator. Groups get COORDINATOR_NOT_AVAILABLE, transactional ids
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which makes clients give up at once (`init_producer_id.py` says more); other
kinds of keys are INVALID_REQUEST.

Version notes: version 0 asks for groups only; 4 asks for several keys.

Not implemented: groups and transactions. The API is served nevertheless, since librdkafka takes a broker without it
for one that cannot read lz4, and sends uncompressed batches without a word.
"""

from __future__ import annotations

from ottla.broker.handlers.outcome import Outcome
from ottla.broker.handlers.request import Request
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION = 0, 1
_SEVERAL_KEYS_VERSION = 4
_NOBODY = -1


def find_coordinator(request: Request) -> FindCoordinatorResponse:
    """Say that nobody coordinates."""
    body: FindCoordinatorRequest = request.body
    outcome = _outcome(body.key_type)
    if request.version < _SEVERAL_KEYS_VERSION:
        return FindCoordinatorResponse(
            error_code=outcome.code, error_message=outcome.message, node_id=_NOBODY, host="", port=_NOBODY
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=_NOBODY,
                host="",
                port=_NOBODY,
                error_code=outcome.code,
                error_message=outcome.message,
            )
            for key in body.coordinator_keys
        ]
    )


def _outcome(key_type: int) -> Outcome:
    if key_type == _GROUP:
        return Outcome.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker has no groups.")
    if key_type == _TRANSACTION:
        return Outcome.of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker has no transactions.")
    return Outcome.of(ErrorCode.INVALID_REQUEST, f"There are no keys of type {key_type}.")
