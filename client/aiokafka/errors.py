"""aiokafka's errors: the same names, numbers and base classes.

They are not those of `ottla.errors`: aiokafka's KafkaError is a RuntimeError, and ConsumerStoppedError is not a
KafkaError, so that a handler for all KafkaErrors does not catch it. `translation.py` makes these from ours.
"""

from __future__ import annotations

from typing import Any


class KafkaError(RuntimeError):
    """The base class of nearly all of them; `retriable` says whether a retry may help."""

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


class IllegalStateError(KafkaError): ...


class IllegalArgumentError(KafkaError): ...


class NoBrokersAvailable(KafkaError):  # noqa: N818
    retriable = True
    invalid_metadata = True


class NodeNotReadyError(KafkaError):
    retriable = True


class KafkaProtocolError(KafkaError):
    retriable = True


class CorrelationIdError(KafkaProtocolError): ...


class Cancelled(KafkaError):  # noqa: N818
    retriable = True


class TooManyInFlightRequests(KafkaError):  # noqa: N818
    retriable = True


class StaleMetadata(KafkaError):  # noqa: N818
    retriable = True
    invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):  # noqa: N818
    retriable = True


class UnrecognizedBrokerVersion(KafkaError): ...  # noqa: N818


class IncompatibleBrokerVersion(KafkaError): ...  # noqa: N818


class CommitFailedError(KafkaError):
    """The group gave the partitions to another member before their offsets were committed."""

    def __init__(self, *args: Any) -> None:
        super().__init__("the group has rebalanced, and another member may have the partitions", *args)


class AuthenticationMethodNotSupported(KafkaError): ...  # noqa: N818


class AuthenticationFailedError(KafkaError): ...


class KafkaUnavailableError(KafkaError): ...


class KafkaTimeoutError(KafkaError): ...


class KafkaConnectionError(KafkaError):
    retriable = True
    invalid_metadata = True


class UnsupportedCodecError(KafkaError): ...


class KafkaConfigurationError(KafkaError): ...


class QuotaViolationError(KafkaError): ...


class ConsumerStoppedError(Exception):
    """The consumer was stopped while a call waited for records, or before."""


class IllegalOperation(Exception):  # noqa: N818
    """The call needs an option that is not set, such as group_id or transactional_id."""


class NoOffsetForPartitionError(KafkaError): ...


class RecordTooLargeError(KafkaError): ...


class ProducerClosed(KafkaError): ...  # noqa: N818


class ProducerFenced(KafkaError):  # noqa: N818
    """Another producer has the transactional_id, or the transaction took too long."""

    def __init__(self, msg: str = "another producer has this transactional_id, or the transaction timed out") -> None:
        super().__init__(msg)


class BrokerResponseError(KafkaError):
    """An error that a broker has sent; each code has its class."""

    errno: int
    message: str
    description: str = ""

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class UnknownError(BrokerResponseError):
    errno = -1
    message = "UNKNOWN"


class NoError(BrokerResponseError):
    errno = 0
    message = "NO_ERROR"


class OffsetOutOfRangeError(BrokerResponseError):
    errno = 1
    message = "OFFSET_OUT_OF_RANGE"


class CorruptRecordException(BrokerResponseError):  # noqa: N818
    errno = 2
    message = "CORRUPT_MESSAGE"


class UnknownTopicOrPartitionError(BrokerResponseError):
    errno = 3
    message = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True
    invalid_metadata = True


class InvalidFetchRequestError(BrokerResponseError):
    errno = 4
    message = "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(BrokerResponseError):
    errno = 5
    message = "LEADER_NOT_AVAILABLE"
    retriable = True
    invalid_metadata = True


class NotLeaderForPartitionError(BrokerResponseError):
    errno = 6
    message = "NOT_LEADER_FOR_PARTITION"
    retriable = True
    invalid_metadata = True


class RequestTimedOutError(BrokerResponseError):
    errno = 7
    message = "REQUEST_TIMED_OUT"
    retriable = True


class BrokerNotAvailableError(BrokerResponseError):
    errno = 8
    message = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(BrokerResponseError):
    errno = 9
    message = "REPLICA_NOT_AVAILABLE"


class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10
    message = "MESSAGE_SIZE_TOO_LARGE"


class StaleControllerEpochError(BrokerResponseError):
    errno = 11
    message = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12
    message = "OFFSET_METADATA_TOO_LARGE"


class StaleLeaderEpochCodeError(BrokerResponseError):
    errno = 13
    message = "STALE_LEADER_EPOCH_CODE"


class GroupLoadInProgressError(BrokerResponseError):
    errno = 14
    message = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class GroupCoordinatorNotAvailableError(BrokerResponseError):
    errno = 15
    message = "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinatorForGroupError(BrokerResponseError):
    errno = 16
    message = "NOT_COORDINATOR"
    retriable = True


class InvalidTopicError(BrokerResponseError):
    errno = 17
    message = "INVALID_TOPIC"


class RecordListTooLargeError(BrokerResponseError):
    errno = 18
    message = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(BrokerResponseError):
    errno = 19
    message = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppendError(BrokerResponseError):
    errno = 20
    message = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class InvalidRequiredAcksError(BrokerResponseError):
    errno = 21
    message = "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(BrokerResponseError):
    errno = 22
    message = "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(BrokerResponseError):
    errno = 23
    message = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(BrokerResponseError):
    errno = 24
    message = "INVALID_GROUP_ID"


class UnknownMemberIdError(BrokerResponseError):
    errno = 25
    message = "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(BrokerResponseError):
    errno = 26
    message = "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(BrokerResponseError):
    errno = 27
    message = "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = 28
    message = "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(BrokerResponseError):
    errno = 29
    message = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(BrokerResponseError):
    errno = 30
    message = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(BrokerResponseError):
    errno = 31
    message = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(BrokerResponseError):
    errno = 32
    message = "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(BrokerResponseError):
    errno = 33
    message = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(BrokerResponseError):
    errno = 34
    message = "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(BrokerResponseError):
    errno = 35
    message = "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(BrokerResponseError):
    errno = 36
    message = "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(BrokerResponseError):
    errno = 37
    message = "INVALID_PARTITIONS"


class InvalidReplicationFactorError(BrokerResponseError):
    errno = 38
    message = "INVALID_REPLICATION_FACTOR"


class InvalidReplicationAssignmentError(BrokerResponseError):
    errno = 39
    message = "INVALID_REPLICATION_ASSIGNMENT"


class InvalidConfigurationError(BrokerResponseError):
    errno = 40
    message = "INVALID_CONFIG"


class NotControllerError(BrokerResponseError):
    errno = 41
    message = "NOT_CONTROLLER"
    retriable = True


class InvalidRequestError(BrokerResponseError):
    errno = 42
    message = "INVALID_REQUEST"


class UnsupportedForMessageFormatError(BrokerResponseError):
    errno = 43
    message = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(BrokerResponseError):
    errno = 44
    message = "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(BrokerResponseError):  # noqa: N818
    errno = 45
    message = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(BrokerResponseError):  # noqa: N818
    errno = 46
    message = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(BrokerResponseError):  # noqa: N818
    errno = 47
    message = "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(BrokerResponseError):  # noqa: N818
    errno = 48
    message = "INVALID_TXN_STATE"


class InvalidProducerIdMapping(BrokerResponseError):  # noqa: N818
    errno = 49
    message = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(BrokerResponseError):  # noqa: N818
    errno = 50
    message = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(BrokerResponseError):  # noqa: N818
    errno = 51
    message = "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFenced(BrokerResponseError):  # noqa: N818
    errno = 52
    message = "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(BrokerResponseError):  # noqa: N818
    errno = 53
    message = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(BrokerResponseError):  # noqa: N818
    errno = 54
    message = "SECURITY_DISABLED"


class OperationNotAttempted(BrokerResponseError):  # noqa: N818
    errno = 55
    message = "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(BrokerResponseError):
    errno = 56
    message = "KAFKA_STORAGE_ERROR"
    retriable = True
    invalid_metadata = True


class LogDirNotFound(BrokerResponseError):  # noqa: N818
    errno = 57
    message = "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(BrokerResponseError):  # noqa: N818
    errno = 58
    message = "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(BrokerResponseError):  # noqa: N818
    errno = 59
    message = "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgress(BrokerResponseError):  # noqa: N818
    errno = 60
    message = "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabled(BrokerResponseError):  # noqa: N818
    errno = 61
    message = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(BrokerResponseError):  # noqa: N818
    errno = 62
    message = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(BrokerResponseError):  # noqa: N818
    errno = 63
    message = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(BrokerResponseError):  # noqa: N818
    errno = 64
    message = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(BrokerResponseError):  # noqa: N818
    errno = 65
    message = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(BrokerResponseError):  # noqa: N818
    errno = 66
    message = "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(BrokerResponseError):  # noqa: N818
    errno = 67
    message = "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroup(BrokerResponseError):  # noqa: N818
    errno = 68
    message = "NON_EMPTY_GROUP"


class GroupIdNotFound(BrokerResponseError):  # noqa: N818
    errno = 69
    message = "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(BrokerResponseError):  # noqa: N818
    errno = 70
    message = "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpoch(BrokerResponseError):  # noqa: N818
    errno = 71
    message = "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFound(BrokerResponseError):  # noqa: N818
    errno = 72
    message = "LISTENER_NOT_FOUND"


class MemberIdRequired(BrokerResponseError):  # noqa: N818
    errno = 79
    message = "MEMBER_ID_REQUIRED"


# Older names.
InvalidMessageError = CorruptRecordException
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError

kafka_errors: dict[int, type[BrokerResponseError]] = {
    error.errno: error for error in BrokerResponseError.__subclasses__()
}


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of an error code; UnknownError for a code that has none."""
    return kafka_errors.get(error_code, UnknownError)
