"""Error codes of transactions, as clients of each version know them."""

from __future__ import annotations

from typing import Final

from ottla.broker.requests.request import TransactionsRequest
from ottla.protocol.errors import ErrorCode

# Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.
_FENCED_VERSION: Final = 2


def known_to_client(request: TransactionsRequest, code: ErrorCode) -> ErrorCode:
    """Return the code for a client of AddPartitionsToTxn, AddOffsetsToTxn or EndTxn: old ones do not know all."""
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FENCED_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
