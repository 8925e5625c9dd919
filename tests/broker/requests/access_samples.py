"""A request of every API for every kind of resource that it touches, made of plain values in any version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.broker.handlers.data_path import batch, topic_id

from ottla.broker.requests.access import CLUSTER, DELEGATION_TOKEN, GROUP, TOPIC, TRANSACTIONAL_ID, USER
from ottla.protocol.acls import ResourceType
from ottla.protocol.api import Api

NAMES = {
    TOPIC: "t",
    GROUP: "readers",
    TRANSACTIONAL_ID: "txn",
    CLUSTER: "kafka-cluster",
    DELEGATION_TOKEN: "token-1",
    USER: "User:bob",
}
T, G, X = NAMES[TOPIC], NAMES[GROUP], NAMES[TRANSACTIONAL_ID]


def _produce(**batch_fields: Any) -> dict[str, Any]:
    rows = [{"index": 0, "records": batch(b"v", **batch_fields)}]
    return {"transactional_id": X, "acks": 1, "timeout_ms": 1000, "topic_data": [{"name": T, "partition_data": rows}]}


def _fetch(replica_id: int) -> dict[str, Any]:
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": -1},
        "max_wait_ms": 0,
        "session_epoch": -1,
        "topics": [{"topic": T, "topic_id": topic_id(T), "partitions": rows}],
    }


def _configs(resource_type: int, name: str) -> dict[str, Any]:
    config = (
        {"name": "retention.ms", "value": "1"} if resource_type == 2 else {"name": "background.threads", "value": "9"}
    )
    row = {"resource_type": resource_type, "resource_name": name, "configs": [config], "configuration_keys": None}
    return {"resources": [row], "validate_only": True}


_OFFSETS = [{"name": T, "partitions": [{"partition_index": 0}], "partition_indexes": [0]}]
_COMMIT = {"group_id": G, "generation_id_or_member_epoch": -1, "topics": _OFFSETS}
_FETCH_OFFSETS = {"group_id": G, "topics": _OFFSETS, "groups": [{"group_id": G, "topics": _OFFSETS}]}
_FIND = {"coordinator_keys": [G], "key": G}
_HEARTBEAT = {
    "group_id": G,
    "member_id": "m",
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": [T],
    "topic_partitions": [],
}
_ACL = {
    "resource_type": 2,
    "resource_name": T,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
_QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "bob"}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
}

_ADD_PARTITIONS = {
    "v3_and_below_transactional_id": X,
    "v3_and_below_topics": [{"name": T, "partitions": [0]}],
    "transactions": [{"transactional_id": X, "topics": [{"name": T, "partitions": [0]}]}],
}
_TXN_COMMIT = {"transactional_id": X, "group_id": G, "generation_id": -1, "topics": _OFFSETS}

# What makes an API touch a resource of each kind that its row in the table of rights names.
SAMPLES: dict[tuple[Api, ResourceType], Mapping[str, Any]] = {
    (Api.PRODUCE, TOPIC): _produce(),
    (Api.PRODUCE, TRANSACTIONAL_ID): _produce(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
    (Api.FETCH, TOPIC): _fetch(-1),
    (Api.FETCH, CLUSTER): _fetch(2),
    (Api.LIST_OFFSETS, TOPIC): {"replica_id": -1, "topics": [{"name": T, "partitions": [{"timestamp": -1}]}]},
    (Api.OFFSET_FOR_LEADER_EPOCH, TOPIC): {"topics": [{"topic": T, "partitions": [{"leader_epoch": 0}]}]},
    (Api.DELETE_RECORDS, TOPIC): {"topics": [{"name": T, "partitions": [{"offset": 0}]}]},
    (Api.INIT_PRODUCER_ID, TRANSACTIONAL_ID): {"transactional_id": X, "producer_id": -1, "producer_epoch": -1},
    (Api.INIT_PRODUCER_ID, CLUSTER): {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    (Api.DESCRIBE_PRODUCERS, TOPIC): {"topics": [{"name": T, "partition_indexes": [0]}]},
    (Api.ADD_PARTITIONS_TO_TXN, TRANSACTIONAL_ID): _ADD_PARTITIONS,
    (Api.ADD_PARTITIONS_TO_TXN, TOPIC): _ADD_PARTITIONS,
    (Api.ADD_PARTITIONS_TO_TXN, CLUSTER): _ADD_PARTITIONS,
    (Api.ADD_OFFSETS_TO_TXN, TRANSACTIONAL_ID): {"transactional_id": X, "group_id": G},
    (Api.ADD_OFFSETS_TO_TXN, GROUP): {"transactional_id": X, "group_id": G},
    (Api.END_TXN, TRANSACTIONAL_ID): {"transactional_id": X},
    (Api.WRITE_TXN_MARKERS, CLUSTER): {
        "markers": [{"producer_id": 1, "topics": [{"name": "nowhere", "partition_indexes": [0]}]}]
    },
    (Api.MIRROR_APPEND, CLUSTER): {"topics": [{"name": T, "partitions": [{"partition_index": 0}]}]},
    (Api.TXN_OFFSET_COMMIT, TRANSACTIONAL_ID): _TXN_COMMIT,
    (Api.TXN_OFFSET_COMMIT, GROUP): _TXN_COMMIT,
    (Api.TXN_OFFSET_COMMIT, TOPIC): _TXN_COMMIT,
    (Api.DESCRIBE_TRANSACTIONS, TRANSACTIONAL_ID): {"transactional_ids": [X]},
    (Api.DESCRIBE_TRANSACTIONS, TOPIC): {"transactional_ids": [X]},
    (Api.LIST_TRANSACTIONS, TRANSACTIONAL_ID): {},
    (Api.METADATA, TOPIC): {"topics": [{"name": T}], "allow_auto_topic_creation": False},
    (Api.METADATA, CLUSTER): {"topics": None, "include_cluster_authorized_operations": True},
    (Api.DESCRIBE_CLUSTER, CLUSTER): {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    (Api.DESCRIBE_LOG_DIRS, CLUSTER): {"topics": None},
    (Api.ALTER_REPLICA_LOG_DIRS, CLUSTER): {"dirs": [{"path": "/data", "topics": [{"name": T, "partitions": [0]}]}]},
    (Api.CREATE_TOPICS, TOPIC): {
        "topics": [{"name": T, "num_partitions": 1, "replication_factor": 1}],
        "validate_only": True,
    },
    (Api.DELETE_TOPICS, TOPIC): {"topics": [{"name": T}], "topic_names": [T]},
    (Api.CREATE_PARTITIONS, TOPIC): {"topics": [{"name": T, "count": 2, "assignments": None}], "validate_only": True},
    (Api.DESCRIBE_CONFIGS, TOPIC): _configs(2, T),
    (Api.DESCRIBE_CONFIGS, CLUSTER): _configs(4, "1"),
    (Api.ALTER_CONFIGS, TOPIC): _configs(2, T),
    (Api.ALTER_CONFIGS, CLUSTER): _configs(4, "1"),
    (Api.INCREMENTAL_ALTER_CONFIGS, TOPIC): _configs(2, T),
    (Api.INCREMENTAL_ALTER_CONFIGS, CLUSTER): _configs(4, "1"),
    (Api.FIND_COORDINATOR, GROUP): _FIND,
    (Api.FIND_COORDINATOR, TRANSACTIONAL_ID): {"coordinator_keys": [X], "key": X, "key_type": 1},
    (Api.JOIN_GROUP, GROUP): {"group_id": G, "protocol_type": "consumer", "session_timeout_ms": 10_000},
    (Api.SYNC_GROUP, GROUP): {"group_id": G, "member_id": "m"},
    (Api.HEARTBEAT, GROUP): {"group_id": G, "member_id": "m"},
    (Api.LEAVE_GROUP, GROUP): {"group_id": G, "member_id": "m", "members": [{"member_id": "m"}]},
    (Api.OFFSET_COMMIT, GROUP): _COMMIT,
    (Api.OFFSET_COMMIT, TOPIC): _COMMIT,
    (Api.OFFSET_FETCH, GROUP): _FETCH_OFFSETS,
    (Api.OFFSET_FETCH, TOPIC): _FETCH_OFFSETS,
    (Api.OFFSET_DELETE, GROUP): {"group_id": G, "topics": _OFFSETS},
    (Api.OFFSET_DELETE, TOPIC): {"group_id": G, "topics": _OFFSETS},
    (Api.DESCRIBE_GROUPS, GROUP): {"groups": [G], "include_authorized_operations": True},
    (Api.LIST_GROUPS, GROUP): {},
    (Api.DELETE_GROUPS, GROUP): {"groups_names": [G]},
    (Api.CONSUMER_GROUP_HEARTBEAT, GROUP): _HEARTBEAT,
    (Api.CONSUMER_GROUP_HEARTBEAT, TOPIC): _HEARTBEAT,
    (Api.CONSUMER_GROUP_DESCRIBE, GROUP): {"group_ids": [G], "include_authorized_operations": True},
    (Api.CONSUMER_GROUP_DESCRIBE, TOPIC): {"group_ids": ["new-readers"], "include_authorized_operations": True},
    (Api.DESCRIBE_ACLS, CLUSTER): _ANY_ACL,
    (Api.CREATE_ACLS, CLUSTER): {"creations": [_ACL]},
    (Api.DELETE_ACLS, CLUSTER): {"filters": [_ANY_ACL]},
    (Api.DESCRIBE_USER_SCRAM_CREDENTIALS, CLUSTER): {"users": [{"name": ""}]},
    (Api.ALTER_USER_SCRAM_CREDENTIALS, CLUSTER): {"deletions": [{"name": "", "mechanism": 1}]},
    (Api.DESCRIBE_CLIENT_QUOTAS, CLUSTER): {"components": [], "strict": False},
    (Api.ALTER_CLIENT_QUOTAS, CLUSTER): {"entries": [_QUOTA], "validate_only": True},
    (Api.CREATE_DELEGATION_TOKEN, USER): {
        "owner_principal_type": "User",
        "owner_principal_name": "bob",
        "max_lifetime_ms": -1,
    },
    (Api.DESCRIBE_DELEGATION_TOKEN, DELEGATION_TOKEN): {"owners": None},
    (Api.DESCRIBE_DELEGATION_TOKEN, USER): {"owners": None},
    (Api.LEADER_AND_ISR, CLUSTER): {"controller_epoch": 1, "broker_epoch": -1},
    (Api.STOP_REPLICA, CLUSTER): {"controller_epoch": 1, "broker_epoch": -1},
    (Api.UPDATE_METADATA, CLUSTER): {"controller_epoch": 0, "broker_epoch": -1},
    (Api.ALTER_PARTITION, CLUSTER): {},
    (Api.ALLOCATE_PRODUCER_IDS, CLUSTER): {},
    (Api.CONTROLLED_SHUTDOWN, CLUSTER): {},
    (Api.ELECT_LEADERS, CLUSTER): {"topic_partitions": [{"topic": T, "partitions": [0]}]},
    (Api.ALTER_PARTITION_REASSIGNMENTS, CLUSTER): {},
    (Api.LIST_PARTITION_REASSIGNMENTS, CLUSTER): {},
    (Api.UNDELETE_TOPICS, CLUSTER): {},
}
