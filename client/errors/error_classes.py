"""One class for each error code that a client may receive, with the names of Python's other Kafka clients."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition


class UnknownError(KafkaError, code=ErrorCode.UNKNOWN_SERVER_ERROR): ...


class OffsetOutOfRangeError(
    KafkaError, code=ErrorCode.OFFSET_OUT_OF_RANGE, advice="Seek to an offset that exists, or set auto_offset_reset."
):
    """A partition has no such offset, or auto_offset_reset is none and there is no offset to start at."""

    offsets: Mapping[TopicPartition, int | None] | None = None
    """The partition and the offset that it lacks, from a consumer; None for an offset that was never committed."""


class CorruptRecordError(KafkaError, code=ErrorCode.CORRUPT_MESSAGE): ...


class UnknownTopicOrPartitionError(
    KafkaError,
    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    advice="Check the name, or create the topic: `ottla topic create NAME`.",
): ...


class InvalidFetchRequestError(KafkaError, code=ErrorCode.INVALID_FETCH_SIZE): ...


class LeaderNotAvailableError(KafkaError, code=ErrorCode.LEADER_NOT_AVAILABLE): ...


class NotLeaderForPartitionError(KafkaError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER): ...


class RequestTimedOutError(KafkaError, code=ErrorCode.REQUEST_TIMED_OUT): ...


class BrokerNotAvailableError(KafkaError, code=ErrorCode.BROKER_NOT_AVAILABLE): ...


class ReplicaNotAvailableError(KafkaError, code=ErrorCode.REPLICA_NOT_AVAILABLE): ...


class MessageSizeTooLargeError(
    KafkaError,
    code=ErrorCode.MESSAGE_TOO_LARGE,
    advice="Send smaller records or a smaller max_batch_size, compress, or raise max.message.bytes of the topic.",
): ...


class OffsetMetadataTooLargeError(
    KafkaError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE, advice="Commit shorter metadata."
): ...


class NetworkExceptionError(KafkaError, code=ErrorCode.NETWORK_EXCEPTION): ...


class CoordinatorLoadInProgressError(KafkaError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): ...


class CoordinatorNotAvailableError(KafkaError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE): ...


class NotCoordinatorError(KafkaError, code=ErrorCode.NOT_COORDINATOR): ...


class InvalidTopicError(
    KafkaError,
    code=ErrorCode.INVALID_TOPIC_EXCEPTION,
    advice="A name has 1 to 249 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`.",
): ...


class RecordListTooLargeError(KafkaError, code=ErrorCode.RECORD_LIST_TOO_LARGE, advice="Lower max_batch_size."): ...


class NotEnoughReplicasError(
    KafkaError,
    code=ErrorCode.NOT_ENOUGH_REPLICAS,
    advice="Start the missing brokers (`ottla cluster health` shows them), or lower min.insync.replicas of the topic.",
): ...


class NotEnoughReplicasAfterAppendError(
    KafkaError,
    code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    advice="The records may be lost if the leader fails now; `ottla cluster health` shows what is missing.",
): ...


class InvalidRequiredAcksError(KafkaError, code=ErrorCode.INVALID_REQUIRED_ACKS): ...


class IllegalGenerationError(KafkaError, code=ErrorCode.ILLEGAL_GENERATION): ...


class InconsistentGroupProtocolError(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL): ...


class InvalidGroupIdError(KafkaError, code=ErrorCode.INVALID_GROUP_ID): ...


class UnknownMemberIdError(KafkaError, code=ErrorCode.UNKNOWN_MEMBER_ID): ...


class InvalidSessionTimeoutError(
    KafkaError,
    code=ErrorCode.INVALID_SESSION_TIMEOUT,
    advice="Keep session_timeout_ms within group.min.session.timeout.ms and group.max.session.timeout.ms.",
): ...


class RebalanceInProgressError(KafkaError, code=ErrorCode.REBALANCE_IN_PROGRESS): ...


class InvalidCommitOffsetSizeError(KafkaError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE): ...


class TopicAuthorizationFailedError(
    KafkaError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, advice="Ask for an ACL on the topic."
): ...


class GroupAuthorizationFailedError(
    KafkaError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED, advice="Ask for an ACL on the group."
): ...


class ClusterAuthorizationFailedError(
    KafkaError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, advice="Ask for an ACL on the cluster."
): ...


class InvalidTimestampError(
    KafkaError,
    code=ErrorCode.INVALID_TIMESTAMP,
    advice="Use milliseconds, not seconds; see message.timestamp.before.max.ms and after.max.ms of the topic.",
): ...


class UnsupportedSaslMechanismError(
    KafkaError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, advice="Choose a sasl_mechanism that the listener offers."
): ...


class IllegalSaslStateError(KafkaError, code=ErrorCode.ILLEGAL_SASL_STATE): ...


class UnsupportedVersionError(
    KafkaError, code=ErrorCode.UNSUPPORTED_VERSION, advice="The broker is too old, or too new, for this call."
): ...


class TopicAlreadyExistsError(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS): ...


class InvalidPartitionsError(KafkaError, code=ErrorCode.INVALID_PARTITIONS): ...


class InvalidReplicationFactorError(
    KafkaError, code=ErrorCode.INVALID_REPLICATION_FACTOR, advice="Ask for no more replicas than there are brokers."
): ...


class InvalidReplicationAssignmentError(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT): ...


class InvalidConfigurationError(KafkaError, code=ErrorCode.INVALID_CONFIG): ...


class NotControllerError(KafkaError, code=ErrorCode.NOT_CONTROLLER): ...


class InvalidRequestError(KafkaError, code=ErrorCode.INVALID_REQUEST): ...


class UnsupportedForMessageFormatError(KafkaError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT): ...


class PolicyViolationError(KafkaError, code=ErrorCode.POLICY_VIOLATION): ...


class OutOfOrderSequenceNumberError(KafkaError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER): ...


class DuplicateSequenceNumberError(KafkaError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER): ...


class InvalidProducerEpochError(KafkaError, code=ErrorCode.INVALID_PRODUCER_EPOCH): ...


class InvalidTxnStateError(KafkaError, code=ErrorCode.INVALID_TXN_STATE): ...


class InvalidProducerIdMappingError(KafkaError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING): ...


class InvalidTransactionTimeoutError(
    KafkaError,
    code=ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    advice="Lower transaction_timeout_ms, or raise transaction.max.timeout.ms of the brokers.",
): ...


class ConcurrentTransactionsError(KafkaError, code=ErrorCode.CONCURRENT_TRANSACTIONS): ...


class TransactionCoordinatorFencedError(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED): ...


class TransactionalIdAuthorizationFailedError(
    KafkaError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, advice="Ask for an ACL on the transactional id."
): ...


class SecurityDisabledError(KafkaError, code=ErrorCode.SECURITY_DISABLED): ...


class OperationNotAttemptedError(KafkaError, code=ErrorCode.OPERATION_NOT_ATTEMPTED): ...


class KafkaStorageError(KafkaError, code=ErrorCode.KAFKA_STORAGE_ERROR): ...


class LogDirNotFoundError(KafkaError, code=ErrorCode.LOG_DIR_NOT_FOUND): ...


class SaslAuthenticationFailedError(
    KafkaError, code=ErrorCode.SASL_AUTHENTICATION_FAILED, advice="Check user name and password."
): ...


class UnknownProducerIdError(KafkaError, code=ErrorCode.UNKNOWN_PRODUCER_ID): ...


class ReassignmentInProgressError(KafkaError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS): ...


class DelegationTokenAuthDisabledError(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED): ...


class DelegationTokenNotFoundError(KafkaError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND): ...


class DelegationTokenRequestNotAllowedError(KafkaError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED): ...


class DelegationTokenAuthorizationFailedError(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED): ...


class DelegationTokenExpiredError(KafkaError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED): ...


class InvalidPrincipalTypeError(KafkaError, code=ErrorCode.INVALID_PRINCIPAL_TYPE): ...


class NonEmptyGroupError(KafkaError, code=ErrorCode.NON_EMPTY_GROUP, advice="Stop its consumers first."): ...


class GroupIdNotFoundError(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND): ...


class FetchSessionIdNotFoundError(KafkaError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND): ...


class InvalidFetchSessionEpochError(KafkaError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH): ...


class ListenerNotFoundError(KafkaError, code=ErrorCode.LISTENER_NOT_FOUND): ...


class TopicDeletionDisabledError(
    KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED, advice="Set delete.topic.enable=true."
): ...


class FencedLeaderEpochError(KafkaError, code=ErrorCode.FENCED_LEADER_EPOCH): ...


class UnknownLeaderEpochError(KafkaError, code=ErrorCode.UNKNOWN_LEADER_EPOCH): ...


class UnsupportedCompressionTypeError(
    KafkaError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, advice="Use gzip, snappy or lz4 with this broker."
): ...


class OffsetNotAvailableError(KafkaError, code=ErrorCode.OFFSET_NOT_AVAILABLE): ...


class MemberIdRequiredError(KafkaError, code=ErrorCode.MEMBER_ID_REQUIRED): ...


class PreferredLeaderNotAvailableError(KafkaError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE): ...


class GroupMaxSizeReachedError(
    KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED, advice="Run fewer consumers, or raise group.max.size."
): ...


class FencedInstanceIdError(
    KafkaError, code=ErrorCode.FENCED_INSTANCE_ID, advice="Give every consumer its own group_instance_id."
): ...


class EligibleLeadersNotAvailableError(KafkaError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE): ...


class ElectionNotNeededError(KafkaError, code=ErrorCode.ELECTION_NOT_NEEDED): ...


class NoReassignmentInProgressError(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS): ...


class GroupSubscribedToTopicError(KafkaError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC): ...


class InvalidRecordError(KafkaError, code=ErrorCode.INVALID_RECORD): ...


class UnstableOffsetCommitError(KafkaError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT): ...


class ThrottlingQuotaExceededError(KafkaError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED): ...


class ProducerFencedError(
    KafkaError,
    code=ErrorCode.PRODUCER_FENCED,
    advice="Only one producer may use a transactional_id at a time.",
): ...


class ResourceNotFoundError(KafkaError, code=ErrorCode.RESOURCE_NOT_FOUND): ...


class DuplicateResourceError(KafkaError, code=ErrorCode.DUPLICATE_RESOURCE): ...


class UnacceptableCredentialError(KafkaError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL): ...


class FeatureUpdateFailedError(KafkaError, code=ErrorCode.FEATURE_UPDATE_FAILED): ...


class UnknownTopicIdError(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_ID): ...


class InconsistentTopicIdError(KafkaError, code=ErrorCode.INCONSISTENT_TOPIC_ID): ...


class InconsistentClusterIdError(KafkaError, code=ErrorCode.INCONSISTENT_CLUSTER_ID): ...


class TransactionalIdNotFoundError(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): ...


class FetchSessionTopicIdError(KafkaError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR): ...


class OffsetMovedToTieredStorageError(KafkaError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE): ...


class FencedMemberEpochError(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH): ...


class UnreleasedInstanceIdError(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID): ...


class UnsupportedAssignorError(KafkaError, code=ErrorCode.UNSUPPORTED_ASSIGNOR): ...


class StaleMemberEpochError(KafkaError, code=ErrorCode.STALE_MEMBER_EPOCH): ...


class TransactionAbortableError(KafkaError, code=ErrorCode.TRANSACTION_ABORTABLE): ...


class InvalidRegularExpressionError(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION): ...


ProducerFenced = ProducerFencedError
