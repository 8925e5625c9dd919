"""What members are told where `__consumer_offsets` cannot be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.protocol.errors import ErrorCode

# What members are told when a group cannot be written.
_GROUP_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
# The same for offsets, where that differs.
_COMMIT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **_GROUP_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
# Errors of the producer, for offsets in its transaction.
_PRODUCER_ERRORS: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


def group_error(error: ErrorCode) -> ErrorCode:
    """Say in terms of the group protocol how writing a group ended."""
    return _GROUP_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def commit_error(error: ErrorCode) -> ErrorCode:
    """Say in terms of the group protocol how writing offsets ended."""
    return _COMMIT_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def transactional_commit_error(error: ErrorCode) -> ErrorCode:
    """Say how writing the offsets of a transaction ended."""
    return error if error in _PRODUCER_ERRORS else commit_error(error)
