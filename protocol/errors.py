"""Error codes and the exceptions that broker and client share.

`ErrorCode` is the only list of Kafka's error codes, one row each. Broker code raises `KafkaError`.
Bytes that violate the protocol raise a `ProtocolError`, which affects only its own connection.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

# What a client does after an error: (may retry, refreshes its metadata first).
_FINAL = (False, False)
_RETRY = (True, False)
_REFRESH = (True, True)


class ErrorCode(IntEnum):
    """An error code of Kafka 3.9, whether a client may retry after it, and its meaning.

    A broker in ZooKeeper mode never sends the codes of KRaft, share groups and telemetry. They are listed so that
    their numbers are not used for something else.
    """

    retriable: bool
    refresh_metadata: bool
    description: str

    def __new__(cls, code: int, after: tuple[bool, bool], description: str) -> Self:
        """Create a member from its row."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable, member.refresh_metadata = after
        member.description = description
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member for a code from the wire; UNKNOWN_SERVER_ERROR if it is unknown."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, _FINAL, "The broker failed unexpectedly; see its log."
    NONE = 0, _FINAL, "No error."
    OFFSET_OUT_OF_RANGE = 1, _FINAL, "The log does not have this offset: it was deleted, or is not yet written."
    CORRUPT_MESSAGE = 2, _RETRY, "A record batch fails its CRC, or has a size or key that is not allowed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, _REFRESH, "This broker does not have the topic or partition."
    INVALID_FETCH_SIZE = 4, _FINAL, "The fetch asks for an impossible number of bytes."
    LEADER_NOT_AVAILABLE = 5, _REFRESH, "The partition has no leader yet; an election is due."
    NOT_LEADER_OR_FOLLOWER = 6, _REFRESH, "The partition is not led, or not replicated, by this broker."
    REQUEST_TIMED_OUT = 7, _RETRY, "The request did not finish within its timeout; it may still take effect."
    BROKER_NOT_AVAILABLE = 8, _FINAL, "The broker is not alive."
    REPLICA_NOT_AVAILABLE = 9, _REFRESH, "The requested replica is not on this broker."
    MESSAGE_TOO_LARGE = 10, _FINAL, "The batch is larger than max.message.bytes of its topic."
    STALE_CONTROLLER_EPOCH = 11, _FINAL, "The sender is no longer the controller; a newer one was elected."
    OFFSET_METADATA_TOO_LARGE = 12, _FINAL, "The metadata of a committed offset exceeds offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, _REFRESH, "The connection broke before the response arrived."
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, "The coordinator is still reading its log; try again shortly."
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, "There is no coordinator at the moment; find it again."
    NOT_COORDINATOR = 16, _RETRY, "Another broker coordinates this group or transaction; find it again."
    INVALID_TOPIC_EXCEPTION = 17, _FINAL, "The topic name is not allowed, or the topic is internal."
    RECORD_LIST_TOO_LARGE = 18, _FINAL, "The records of one partition are larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, _RETRY, "Fewer replicas are in sync than min.insync.replicas; nothing is written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRY, "The records are written, but to too few in-sync replicas."
    INVALID_REQUIRED_ACKS = 21, _FINAL, "The acks of a produce request must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, _FINAL, "The group has moved on to another generation; rejoin."
    INCONSISTENT_GROUP_PROTOCOL = 23, _FINAL, "The member shares no protocol type or assignor with its group."
    INVALID_GROUP_ID = 24, _FINAL, "The group id is empty or otherwise not allowed."
    UNKNOWN_MEMBER_ID = 25, _FINAL, "The group does not know this member; join again without a member id."
    INVALID_SESSION_TIMEOUT = 26, _FINAL, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, _FINAL, "The group is rebalancing; rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, _FINAL, "The offset commit is too large for the offsets topic."
    TOPIC_AUTHORIZATION_FAILED = 29, _FINAL, "The principal may not do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, _FINAL, "The principal may not do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, _FINAL, "The principal may not do this with the cluster."
    INVALID_TIMESTAMP = 32, _FINAL, "A record's timestamp is too far from the broker's clock."
    UNSUPPORTED_SASL_MECHANISM = 33, _FINAL, "The listener does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, _FINAL, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, _FINAL, "The broker does not know this version of the API; see ApiVersions."
    TOPIC_ALREADY_EXISTS = 36, _FINAL, "A topic of this name exists, or is still being deleted."
    INVALID_PARTITIONS = 37, _FINAL, "The number of partitions must be positive, and can only grow."
    INVALID_REPLICATION_FACTOR = 38, _FINAL, "The replication factor must be between 1 and the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, _FINAL, "The replica assignment has gaps, duplicates or unknown brokers."
    INVALID_CONFIG = 40, _FINAL, "A configuration key is unknown, or its value is not allowed."
    NOT_CONTROLLER = 41, _RETRY, "This broker is not the controller; ask the one in the metadata."
    INVALID_REQUEST = 42, _FINAL, "The request is inconsistent or incomplete."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _FINAL, "The log's record format is too old for this operation."
    POLICY_VIOLATION = 44, _FINAL, "A policy of this cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _FINAL, "The producer's sequence has a gap: a batch before this one is lost."
    DUPLICATE_SEQUENCE_NUMBER = 46, _FINAL, "The producer has sent this sequence before."
    INVALID_PRODUCER_EPOCH = 47, _FINAL, "The producer's epoch is older than the one in the log."
    INVALID_TXN_STATE = 48, _FINAL, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, _FINAL, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, _FINAL, "The transaction timeout exceeds transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, _RETRY, "The previous transaction of this producer is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, _FINAL, "A newer transaction coordinator has written to this partition."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _FINAL, "The principal may not use this transactional id."
    SECURITY_DISABLED = 54, _FINAL, "The cluster has no authorizer, so it has no ACLs."
    OPERATION_NOT_ATTEMPTED = 55, _FINAL, "Another part of the same request failed, so this part was not tried."
    KAFKA_STORAGE_ERROR = 56, _REFRESH, "The disk of this replica failed or is full."
    LOG_DIR_NOT_FOUND = 57, _FINAL, "The broker has no log directory of this name."
    SASL_AUTHENTICATION_FAILED = 58, _FINAL, "The credentials are wrong, or the mechanism refused them."
    UNKNOWN_PRODUCER_ID = 59, _FINAL, "The log holds no records of this producer any more."
    REASSIGNMENT_IN_PROGRESS = 60, _FINAL, "The partition is being reassigned; wait for that, or cancel it."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _FINAL, "Delegation tokens are disabled in this cluster."
    DELEGATION_TOKEN_NOT_FOUND = 62, _FINAL, "The broker does not know this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _FINAL, "The principal neither owns this token nor may renew it."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _FINAL, "Tokens need a connection that was authenticated in another way."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _FINAL, "The principal may not do this with delegation tokens."
    DELEGATION_TOKEN_EXPIRED = 66, _FINAL, "The delegation token has expired; get a new one."
    INVALID_PRINCIPAL_TYPE = 67, _FINAL, "A principal of this type cannot be used here."
    NON_EMPTY_GROUP = 68, _FINAL, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, _FINAL, "There is no group with this id."
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "The broker has dropped this fetch session; start a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRY, "The fetch session's epoch is out of step; start a new session."
    LISTENER_NOT_FOUND = 72, _REFRESH, "The leader does not have the listener on which this request came in."
    TOPIC_DELETION_DISABLED = 73, _FINAL, "The broker runs with delete.topic.enable=false."
    FENCED_LEADER_EPOCH = 74, _REFRESH, "The leader epoch in the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, "The leader epoch in the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, _FINAL, "This version of the request does not allow the batch's codec."
    STALE_BROKER_EPOCH = 77, _FINAL, "The request is meant for an earlier registration of this broker."
    OFFSET_NOT_AVAILABLE = 78, _RETRY, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, _FINAL, "Join again with the member id in this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _REFRESH, "The preferred replica is dead or out of sync, so it cannot lead."
    GROUP_MAX_SIZE_REACHED = 81, _FINAL, "The group already has group.max.size members."
    FENCED_INSTANCE_ID = 82, _FINAL, "Another consumer has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _REFRESH, "No replica that is allowed to lead is alive."
    ELECTION_NOT_NEEDED = 84, _REFRESH, "The partition already has the leader that the election would give it."
    NO_REASSIGNMENT_IN_PROGRESS = 85, _FINAL, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _FINAL, "The group is consuming this topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, _FINAL, "A record breaks a rule of its topic, such as a missing key on a compacted one."
    UNSTABLE_OFFSET_COMMIT = 88, _RETRY, "Offsets of an open transaction are pending; ask again when it has ended."
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "The quota is used up; wait for throttle_time_ms."
    PRODUCER_FENCED = 90, _FINAL, "Another producer has taken over this transactional id."
    RESOURCE_NOT_FOUND = 91, _FINAL, "The resource in the request does not exist."
    DUPLICATE_RESOURCE = 92, _FINAL, "The request names the same resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, _FINAL, "The credential is not strong enough, or not well formed."
    INCONSISTENT_VOTER_SET = 94, _FINAL, "KRaft: the sender has another set of voters."
    INVALID_UPDATE_VERSION = 95, _FINAL, "The ISR or feature was changed since the version that the request names."
    FEATURE_UPDATE_FAILED = 96, _FINAL, "The finalized features could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _FINAL, "The principal in a forwarded request cannot be decoded."
    SNAPSHOT_NOT_FOUND = 98, _FINAL, "KRaft: the requested snapshot does not exist any more."
    POSITION_OUT_OF_RANGE = 99, _FINAL, "KRaft: the position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, _REFRESH, "This broker does not know a topic with this id."
    DUPLICATE_BROKER_REGISTRATION = 101, _FINAL, "KRaft: a live broker already has this broker id."
    BROKER_ID_NOT_REGISTERED = 102, _FINAL, "KRaft: no broker is registered with this id."
    INCONSISTENT_TOPIC_ID = 103, _REFRESH, "The topic's id in the log differs from the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, _FINAL, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, _FINAL, "The coordinator does not know this transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRY, "The fetch session mixes topic names and topic ids; start a new one."
    INELIGIBLE_REPLICA = 107, _FINAL, "A replica may not join the ISR, for example because it is shutting down."
    NEW_LEADER_ELECTED = 108, _FINAL, "The ISR change has made another broker the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _FINAL, "The offset is only in remote storage now."
    FENCED_MEMBER_EPOCH = 110, _FINAL, "The coordinator has fenced the member; give up its partitions and rejoin."
    UNRELEASED_INSTANCE_ID = 111, _FINAL, "Another member still holds this group.instance.id; it must leave first."
    UNSUPPORTED_ASSIGNOR = 112, _FINAL, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, _FINAL, "The member's epoch is behind; retry after its next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, _FINAL, "KRaft: the request for a controller reached a broker, or the reverse."
    UNSUPPORTED_ENDPOINT_TYPE = 115, _FINAL, "KRaft: endpoints of this type are not supported."
    UNKNOWN_CONTROLLER_ID = 116, _FINAL, "KRaft: there is no controller with this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, _FINAL, "Telemetry: the subscription is out of date; fetch a new one."
    TELEMETRY_TOO_LARGE = 118, _FINAL, "Telemetry: the client sent more bytes than the broker accepts."
    INVALID_REGISTRATION = 119, _FINAL, "KRaft: the controller refuses this broker's registration."
    TRANSACTION_ABORTABLE = 120, _FINAL, "The transaction cannot continue; abort it and begin another."
    INVALID_RECORD_STATE = 121, _FINAL, "Share groups: the record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, _RETRY, "Share groups: the broker has dropped this session."
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRY, "Share groups: the session's epoch is out of step."
    FENCED_STATE_EPOCH = 124, _FINAL, "Share groups: the state epoch is older than the stored one."
    INVALID_VOTER_KEY = 125, _FINAL, "KRaft: the request is meant for another voter."
    DUPLICATE_VOTER = 126, _FINAL, "KRaft: the voter is already in the set."
    VOTER_NOT_FOUND = 127, _FINAL, "KRaft: the voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, _FINAL, "The regular expression of a subscription is not valid."


# A plain dictionary: `ErrorCode(code)` would raise for the unknown codes of newer peers.
_BY_CODE: dict[int, ErrorCode] = {member.value: member for member in ErrorCode}


_DETAIL_LENGTH_MAX = 1000


class KafkaError(Exception):
    """The only error that broker code raises on purpose; the client's exceptions build on it.

    `detail` says what was wrong in this case: the name, the number, the limit.
    """

    def __init__(self, code: int, detail: str = "") -> None:
        """Take a code of the table, or an unknown one from the wire."""
        # The arguments are kept as given, so that the exception can be pickled.
        super().__init__(code, detail)
        self.code = ErrorCode.of(code)
        if self.code != code:
            detail = f"{detail} (error code {code} is not in the table)".lstrip()
        # Details often repeat a name from a request. They go into log lines, and into responses whose strings are
        # limited.
        self.detail = detail if len(detail) <= _DETAIL_LENGTH_MAX else f"{detail[:_DETAIL_LENGTH_MAX]}..."

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable

    def __str__(self) -> str:
        """Return the name, number and meaning, and the detail if there is one."""
        return f"{self.code.name} ({self.code.value}): {self.code.description} {self.detail}".rstrip()


class ProtocolError(Exception):
    """Bytes that violate the protocol, or a message that cannot be encoded."""


class DecodeError(ProtocolError):
    """The bytes cannot be decoded; the peer, or the file, is at fault."""


class EncodeError(ProtocolError):
    """The message cannot be encoded in the requested version; our side is at fault."""


class FrameError(DecodeError):
    """The size of a frame is one that no valid peer sends."""


class CorruptBatchError(DecodeError):
    """A record batch whose size, magic, CRC or records are wrong."""


class CompressionError(DecodeError):
    """Compressed data that is broken, or expands beyond the limit."""
