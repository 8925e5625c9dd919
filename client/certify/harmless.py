"""A request of each API that changes nothing, for every version: about things that do not exist, or with empty lists.

`{topic}` in a text stands for a topic of the check, `{nothing}` for a name that nothing has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.certify.trial import Topic, batch_of
from ottla.protocol.api import Api
from ottla.protocol.message import Message
from ottla.protocol.plain_values import message_of
from ottla.protocol.primitives import UUID_ZERO

# What brokers send to each other, for which a client has no harmless request.
BETWEEN_BROKERS: Final = frozenset(
    {
        Api.LEADER_AND_ISR,
        Api.STOP_REPLICA,
        Api.UPDATE_METADATA,
        Api.CONTROLLED_SHUTDOWN,
        Api.ALTER_PARTITION,
        Api.ALLOCATE_PRODUCER_IDS,
    }
)
_TOPIC: Final = "{topic}"
_NOTHING: Final = "{nothing}"
_TOPIC_ID: Final = object()
_RECORDS: Final = object()

_CONFIGS: Final = {
    "resources": [
        {"resource_type": 2, "resource_name": _NOTHING, "configs": [{"name": "retention.ms", "value": "1"}]},
    ],
    "validate_only": True,
}
_OFFSETS: Final = [
    {
        "name": _TOPIC,
        "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}],
        "partition_indexes": [0],
    }
]
_TRANSACTION: Final = {"transactional_id": _NOTHING, "producer_id": 0, "producer_epoch": 0, "group_id": _NOTHING}
_MEMBER: Final = {"group_id": _NOTHING, "member_id": _NOTHING}
_FILTER: Final = {"resource_type_filter": 2, "resource_name_filter": _NOTHING, "operation": 1, "permission_type": 1}

_VALUES: Final[dict[Api, Mapping[str, Any]]] = {
    Api.PRODUCE: {
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": _NOTHING, "partition_data": [{"index": 0, "records": _RECORDS}]}],
    },
    Api.FETCH: {
        "max_wait_ms": 0,
        "session_epoch": -1,
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "max_bytes": 1 << 20,
        "topics": [
            {
                "topic": _TOPIC,
                "topic_id": _TOPIC_ID,
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": 0,
                        "partition_max_bytes": 1 << 20,
                        "current_leader_epoch": -1,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                    }
                ],
            }
        ],
    },
    Api.LIST_OFFSETS: {
        "replica_id": -1,
        "topics": [
            {
                "name": _TOPIC,
                "partitions": [
                    {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1, "max_num_offsets": 1}
                ],
            }
        ],
    },
    Api.METADATA: {"topics": [{"name": _TOPIC}], "allow_auto_topic_creation": False},
    Api.OFFSET_COMMIT: _MEMBER | {"generation_id_or_member_epoch": 1, "topics": _OFFSETS},
    Api.OFFSET_FETCH: {
        "group_id": _NOTHING,
        "topics": _OFFSETS,
        "groups": [{"group_id": _NOTHING, "topics": _OFFSETS}],
    },
    Api.FIND_COORDINATOR: {"key": _NOTHING, "coordinator_keys": [_NOTHING]},
    Api.JOIN_GROUP: _MEMBER
    | {
        "protocol_type": "consumer",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocols": [{"name": "range", "metadata": b""}],
    },
    Api.HEARTBEAT: _MEMBER,
    Api.LEAVE_GROUP: _MEMBER | {"members": [{"member_id": _NOTHING}]},
    Api.SYNC_GROUP: _MEMBER,
    Api.DESCRIBE_GROUPS: {"groups": [_NOTHING]},
    Api.LIST_GROUPS: {},
    Api.SASL_HANDSHAKE: {"mechanism": _NOTHING},
    Api.API_VERSIONS: {"client_software_name": "ottla", "client_software_version": "1"},
    Api.CREATE_TOPICS: {
        "topics": [{"name": "no/name", "num_partitions": 1, "replication_factor": 1}],
        "timeout_ms": 1000,
        "validate_only": True,
    },
    Api.DELETE_TOPICS: {"topics": [{"name": _NOTHING}], "topic_names": [_NOTHING], "timeout_ms": 1000},
    Api.DELETE_RECORDS: {
        "topics": [{"name": _NOTHING, "partitions": [{"partition_index": 0, "offset": 0}]}],
        "timeout_ms": 1000,
    },
    Api.INIT_PRODUCER_ID: {
        "transactional_id": None,
        "transaction_timeout_ms": 1000,
        "producer_id": -1,
        "producer_epoch": -1,
    },
    Api.OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [{"topic": _TOPIC, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}],
    },
    Api.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": _NOTHING,
        "v3_and_below_topics": [{"name": _TOPIC, "partitions": [0]}],
        "transactions": [
            {"transactional_id": _NOTHING, "verify_only": True, "topics": [{"name": _TOPIC, "partitions": [0]}]}
        ],
    },
    Api.ADD_OFFSETS_TO_TXN: _TRANSACTION,
    Api.END_TXN: _TRANSACTION,
    Api.WRITE_TXN_MARKERS: {},
    Api.TXN_OFFSET_COMMIT: _TRANSACTION | {"generation_id": 1, "member_id": _NOTHING, "topics": _OFFSETS},
    Api.DESCRIBE_ACLS: _FILTER | {"pattern_type_filter": 3},
    Api.CREATE_ACLS: {},
    Api.DELETE_ACLS: {},
    Api.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": _TOPIC, "configuration_keys": None}]},
    Api.ALTER_CONFIGS: _CONFIGS,
    Api.ALTER_REPLICA_LOG_DIRS: {},
    Api.DESCRIBE_LOG_DIRS: {"topics": [{"topic": _TOPIC, "partitions": [0]}]},
    Api.SASL_AUTHENTICATE: {"auth_bytes": b""},
    Api.CREATE_PARTITIONS: {
        "topics": [{"name": _NOTHING, "count": 2, "assignments": None}],
        "timeout_ms": 1000,
        "validate_only": True,
    },
    # No broker gives a token to a renewer of this type.
    Api.CREATE_DELEGATION_TOKEN: {
        "renewers": [{"principal_type": "Nobody", "principal_name": _NOTHING}],
        "max_lifetime_ms": 1000,
    },
    Api.RENEW_DELEGATION_TOKEN: {"hmac": b"nothing", "renew_period_ms": 1},
    Api.EXPIRE_DELEGATION_TOKEN: {"hmac": b"nothing", "expiry_time_period_ms": 1},
    Api.DESCRIBE_DELEGATION_TOKEN: {"owners": []},
    Api.DELETE_GROUPS: {"groups_names": [_NOTHING]},
    Api.ELECT_LEADERS: {"topic_partitions": [{"topic": _NOTHING, "partitions": [0]}], "timeout_ms": 1000},
    Api.INCREMENTAL_ALTER_CONFIGS: _CONFIGS,
    Api.ALTER_PARTITION_REASSIGNMENTS: {"timeout_ms": 1000},
    Api.LIST_PARTITION_REASSIGNMENTS: {
        "timeout_ms": 1000,
        "topics": [{"name": _TOPIC, "partition_indexes": [0]}],
    },
    Api.OFFSET_DELETE: {"group_id": _NOTHING, "topics": _OFFSETS},
    Api.DESCRIBE_CLIENT_QUOTAS: {"components": [{"entity_type": "client-id", "match_type": 0, "match": _NOTHING}]},
    Api.ALTER_CLIENT_QUOTAS: {"validate_only": True},
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": [{"name": _NOTHING}]},
    Api.ALTER_USER_SCRAM_CREDENTIALS: {},
    Api.DESCRIBE_CLUSTER: {"endpoint_type": 1},
    Api.DESCRIBE_PRODUCERS: {"topics": [{"name": _TOPIC, "partition_indexes": [0]}]},
    Api.DESCRIBE_TRANSACTIONS: {"transactional_ids": [_NOTHING]},
    Api.LIST_TRANSACTIONS: {"duration_filter": -1},
    Api.CONSUMER_GROUP_HEARTBEAT: _MEMBER | {"member_epoch": 5, "rebalance_timeout_ms": -1},
    Api.CONSUMER_GROUP_DESCRIBE: {"group_ids": [_NOTHING]},
    Api.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": _TOPIC}], "response_partition_limit": 10, "cursor": None},
    Api.SHARE_GROUP_HEARTBEAT: _MEMBER | {"member_epoch": 5, "subscribed_topic_names": None},
    Api.SHARE_GROUP_DESCRIBE: {"group_ids": [_NOTHING]},
    Api.SHARE_FETCH: _MEMBER | {"share_session_epoch": 5, "max_bytes": 1, "max_records": 1, "batch_size": 1},
    Api.SHARE_ACKNOWLEDGE: _MEMBER | {"share_session_epoch": 5},
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: {"groups": [{"group_id": _NOTHING, "topics": None}]},
    Api.ALTER_SHARE_GROUP_OFFSETS: {"group_id": _NOTHING},
    Api.DELETE_SHARE_GROUP_OFFSETS: {"group_id": _NOTHING},
}


def has_request(api: Api) -> bool:
    """Whether there is a harmless request of an API."""
    return api in _VALUES


def harmless_request(api: Api, version: int, topic: Topic | None, nothing: str) -> Message:
    """Return a request that changes nothing; `nothing` is a name that nothing has."""
    named = _named(_VALUES[api], topic or Topic(nothing, UUID_ZERO, 0), nothing)
    return message_of(api.request, named, version)


def _named(value: Any, topic: Topic, nothing: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _named(each, topic, nothing) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, topic, nothing) for each in value]
    if isinstance(value, str):
        return {_TOPIC: topic.name, _NOTHING: nothing}.get(value, value)
    if value is _TOPIC_ID:
        return topic.topic_id
    return batch_of(b"harmless") if value is _RECORDS else value
