"""The error table is complete and right, and `KafkaError` says what happened."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from ottla.protocol.errors import (
    CompressionError,
    CorruptBatchError,
    DecodeError,
    EncodeError,
    ErrorCode,
    FrameError,
    KafkaError,
    ProtocolError,
)

# The names of the codes -1 to 127 in order, as of Kafka 3.9.
NAMES = """
UNKNOWN_SERVER_ERROR NONE OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE
LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE
MESSAGE_TOO_LARGE STALE_CONTROLLER_EPOCH OFFSET_METADATA_TOO_LARGE NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS
COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR INVALID_TOPIC_EXCEPTION RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS
NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID
UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED
GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED INVALID_TIMESTAMP UNSUPPORTED_SASL_MECHANISM
ILLEGAL_SASL_STATE UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS INVALID_PARTITIONS INVALID_REPLICATION_FACTOR
INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG NOT_CONTROLLER INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT
POLICY_VIOLATION OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH INVALID_TXN_STATE
INVALID_PRODUCER_ID_MAPPING INVALID_TRANSACTION_TIMEOUT CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED
TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND
SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID REASSIGNMENT_IN_PROGRESS DELEGATION_TOKEN_AUTH_DISABLED
DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP
GROUP_ID_NOT_FOUND FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND TOPIC_DELETION_DISABLED
FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNSUPPORTED_COMPRESSION_TYPE STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE
MEMBER_ID_REQUIRED PREFERRED_LEADER_NOT_AVAILABLE GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID
ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC
INVALID_RECORD UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED PRODUCER_FENCED RESOURCE_NOT_FOUND DUPLICATE_RESOURCE
UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED
PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID
DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID INCONSISTENT_CLUSTER_ID
TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR INELIGIBLE_REPLICA NEW_LEADER_ELECTED
OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH
MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE
INVALID_REGISTRATION TRANSACTION_ABORTABLE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH
FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION
"""
RETRIABLE = {
    *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89),
    *(100, 103, 106, 122, 123),
}
REFRESH_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}


def test_the_table_is_that_of_kafka() -> None:
    """Every code has Kafka's name and Kafka's retry class, and there is no code besides."""
    expected = [
        (code, name, code in RETRIABLE, code in REFRESH_METADATA)
        for code, name in zip(range(-1, 129), NAMES.split(), strict=True)
    ]

    assert expected == [(error.value, error.name, error.retriable, error.refresh_metadata) for error in ErrorCode]


@pytest.mark.parametrize("error", ErrorCode)
def test_every_description_is_one_sentence(error: ErrorCode) -> None:
    """A description can be shown to a user as it is."""
    assert error.description.endswith(".")
    assert error.description[0].isupper()
    assert error.description.isprintable()
    assert ". " not in error.description


def test_descriptions_differ() -> None:
    """No two codes say the same thing."""
    assert len({error.description for error in ErrorCode}) == len(ErrorCode)


@pytest.mark.parametrize("error", ErrorCode)
def test_a_code_from_the_wire_finds_its_member(error: ErrorCode) -> None:
    """`of` is the inverse of the value."""
    assert ErrorCode.of(error.value) is error


@pytest.mark.parametrize("code", [-2, 129, 32767, -32768])
def test_an_unknown_code_is_an_unknown_server_error(code: int) -> None:
    """A newer peer may send codes that are not in the table."""
    assert ErrorCode.of(code) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_only_none_is_false() -> None:
    """`if error_code:` reads as "if something went wrong"."""
    assert [error for error in ErrorCode if not error] == [ErrorCode.NONE]


def test_kafka_error_tells_name_code_meaning_and_detail() -> None:
    """The message is complete without a look at the table."""
    error = KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is broker 2.")

    assert error.code is ErrorCode.NOT_CONTROLLER
    assert error.retriable
    assert error.detail == "The controller is broker 2."
    assert str(error) == f"NOT_CONTROLLER (41): {error.code.description} The controller is broker 2."


def test_kafka_error_without_detail_ends_with_the_meaning() -> None:
    """There is no trailing blank."""
    error = KafkaError(ErrorCode.INVALID_REQUEST)

    assert not error.retriable
    assert str(error) == f"INVALID_REQUEST (42): {error.code.description}"


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        ("", "(error code 999 is not in the table)"),
        ("Topic t.", "Topic t. (error code 999 is not in the table)"),
    ],
)
def test_kafka_error_keeps_a_number_that_is_not_in_the_table(detail: str, shown: str) -> None:
    """Whoever reads the message can look the number up in a newer table."""
    error = KafkaError(999, detail)

    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error.detail == shown


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, 999])
def test_kafka_error_survives_pickling(code: int) -> None:
    """Worker processes hand their exceptions to their parent."""
    error = KafkaError(code, "Epoch 3 is behind 5.")

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), copy.code, copy.detail, str(copy)) == (KafkaError, error.code, error.detail, str(error))


@pytest.mark.parametrize("error", [FrameError, CorruptBatchError, CompressionError])
def test_bad_bytes_are_decode_errors(error: type[Exception]) -> None:
    """One `except DecodeError` covers whatever a peer can get wrong."""
    assert issubclass(error, DecodeError)


def test_protocol_errors_are_no_kafka_errors() -> None:
    """Broken bytes close the connection; they are never turned into a response."""
    assert issubclass(DecodeError, ProtocolError)
    assert issubclass(EncodeError, ProtocolError)
    assert not issubclass(ProtocolError, KafkaError)


def test_importing_the_table_is_cheap() -> None:
    """The command line loads it for every call: no third-party module, and no heavy one of Python."""
    script = "import sys; old = set(sys.modules); import ottla.protocol.errors; print(*sorted(set(sys.modules) - old))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()

    roots = {name.partition(".")[0] for name in loaded}

    assert "ottla.protocol.errors" in loaded
    assert roots - {"ottla"} <= sys.stdlib_module_names
    assert not roots & {"asyncio", "ctypes", "dataclasses", "inspect", "logging", "socket", "subprocess"}
