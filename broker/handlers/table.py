"""`HANDLERS`: the APIs that this broker serves. Dispatch and ApiVersions read this table; there is no other list.

An API is served in every version in which its messages are declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.broker.handlers.admin.alter_client_quotas import alter_client_quotas
from ottla.broker.handlers.admin.alter_configs import alter_configs
from ottla.broker.handlers.admin.alter_replica_log_dirs import alter_replica_log_dirs
from ottla.broker.handlers.admin.api_versions import api_versions
from ottla.broker.handlers.admin.describe_client_quotas import describe_client_quotas
from ottla.broker.handlers.admin.describe_cluster import describe_cluster
from ottla.broker.handlers.admin.describe_configs import describe_configs
from ottla.broker.handlers.admin.describe_log_dirs import describe_log_dirs
from ottla.broker.handlers.admin.incremental_alter_configs import incremental_alter_configs
from ottla.broker.handlers.controller.allocate_producer_ids import allocate_producer_ids
from ottla.broker.handlers.controller.alter_partition import alter_partition
from ottla.broker.handlers.controller.controlled_shutdown import controlled_shutdown
from ottla.broker.handlers.controller.leader_and_isr import leader_and_isr
from ottla.broker.handlers.controller.stop_replica import stop_replica
from ottla.broker.handlers.controller.update_metadata import update_metadata
from ottla.broker.handlers.data.delete_records import delete_records
from ottla.broker.handlers.data.describe_producers import describe_producers
from ottla.broker.handlers.data.fetch import fetch
from ottla.broker.handlers.data.list_offsets import list_offsets
from ottla.broker.handlers.data.mirror_append import mirror_append
from ottla.broker.handlers.data.offset_for_leader_epoch import offset_for_leader_epoch
from ottla.broker.handlers.data.produce import produce
from ottla.broker.handlers.groups.consumer_group_describe import consumer_group_describe
from ottla.broker.handlers.groups.consumer_group_heartbeat import consumer_group_heartbeat
from ottla.broker.handlers.groups.delete_groups import delete_groups
from ottla.broker.handlers.groups.describe_groups import describe_groups
from ottla.broker.handlers.groups.find_coordinator import find_coordinator
from ottla.broker.handlers.groups.heartbeat import heartbeat
from ottla.broker.handlers.groups.join_group import join_group
from ottla.broker.handlers.groups.leave_group import leave_group
from ottla.broker.handlers.groups.list_groups import list_groups
from ottla.broker.handlers.groups.offset_commit import offset_commit
from ottla.broker.handlers.groups.offset_delete import offset_delete
from ottla.broker.handlers.groups.offset_fetch import offset_fetch
from ottla.broker.handlers.groups.sync_group import sync_group
from ottla.broker.handlers.groups.txn_offset_commit import txn_offset_commit
from ottla.broker.handlers.security.alter_user_scram_credentials import alter_user_scram_credentials
from ottla.broker.handlers.security.create_acls import create_acls
from ottla.broker.handlers.security.create_delegation_token import create_delegation_token
from ottla.broker.handlers.security.delete_acls import delete_acls
from ottla.broker.handlers.security.describe_acls import describe_acls
from ottla.broker.handlers.security.describe_delegation_token import describe_delegation_token
from ottla.broker.handlers.security.describe_user_scram_credentials import describe_user_scram_credentials
from ottla.broker.handlers.security.expire_delegation_token import expire_delegation_token
from ottla.broker.handlers.security.renew_delegation_token import renew_delegation_token
from ottla.broker.handlers.security.sasl_authenticate import sasl_authenticate
from ottla.broker.handlers.security.sasl_handshake import sasl_handshake
from ottla.broker.handlers.topics.alter_partition_reassignments import alter_partition_reassignments
from ottla.broker.handlers.topics.create_partitions import create_partitions
from ottla.broker.handlers.topics.create_topics import create_topics
from ottla.broker.handlers.topics.delete_topics import delete_topics
from ottla.broker.handlers.topics.elect_leaders import elect_leaders
from ottla.broker.handlers.topics.list_partition_reassignments import list_partition_reassignments
from ottla.broker.handlers.topics.metadata import metadata
from ottla.broker.handlers.topics.undelete_topics import undelete_topics
from ottla.broker.handlers.transactions.add_offsets_to_txn import add_offsets_to_txn
from ottla.broker.handlers.transactions.add_partitions_to_txn import add_partitions_to_txn
from ottla.broker.handlers.transactions.describe_transactions import describe_transactions
from ottla.broker.handlers.transactions.end_txn import end_txn
from ottla.broker.handlers.transactions.init_producer_id import init_producer_id
from ottla.broker.handlers.transactions.list_transactions import list_transactions
from ottla.broker.handlers.transactions.write_txn_markers import write_txn_markers
from ottla.broker.requests.access import guarded
from ottla.broker.requests.dispatch import Entry
from ottla.broker.requests.request import Handler, S
from ottla.broker.requests.services import (
    AdminServices,
    ControlPlaneServices,
    DataServices,
    GroupServices,
    SecurityServices,
    TopicServices,
    TransactionServices,
)
from ottla.protocol.api import Api


def _served(services: type[S], handlers: Mapping[Api, Handler[S]]) -> dict[Api, Entry]:
    """Return the rows of handlers that need the same services: those of one folder."""
    return {api: Entry(guarded(api, handle), api.versions, services) for api, handle in handlers.items()}


HANDLERS: Final[dict[Api, Entry]] = {
    **_served(
        SecurityServices,
        {
            Api.SASL_HANDSHAKE: sasl_handshake,
            Api.SASL_AUTHENTICATE: sasl_authenticate,
            Api.DESCRIBE_ACLS: describe_acls,
            Api.CREATE_ACLS: create_acls,
            Api.DELETE_ACLS: delete_acls,
            Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
            Api.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
            Api.CREATE_DELEGATION_TOKEN: create_delegation_token,
            Api.RENEW_DELEGATION_TOKEN: renew_delegation_token,
            Api.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
            Api.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
        },
    ),
    **_served(
        DataServices,
        {
            Api.PRODUCE: produce,
            Api.FETCH: fetch,
            Api.LIST_OFFSETS: list_offsets,
            Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
            Api.DELETE_RECORDS: delete_records,
            Api.DESCRIBE_PRODUCERS: describe_producers,
            Api.MIRROR_APPEND: mirror_append,
        },
    ),
    **_served(
        TopicServices,
        {
            Api.METADATA: metadata,
            Api.CREATE_TOPICS: create_topics,
            Api.DELETE_TOPICS: delete_topics,
            Api.CREATE_PARTITIONS: create_partitions,
            Api.ELECT_LEADERS: elect_leaders,
            Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
            Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
            Api.UNDELETE_TOPICS: undelete_topics,
        },
    ),
    **_served(
        AdminServices,
        {
            Api.DESCRIBE_CLUSTER: describe_cluster,
            Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
            Api.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
            Api.DESCRIBE_CONFIGS: describe_configs,
            Api.ALTER_CONFIGS: alter_configs,
            Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
            Api.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
            Api.ALTER_CLIENT_QUOTAS: alter_client_quotas,
        },
    ),
    **_served(
        GroupServices,
        {
            Api.FIND_COORDINATOR: find_coordinator,
            Api.JOIN_GROUP: join_group,
            Api.SYNC_GROUP: sync_group,
            Api.HEARTBEAT: heartbeat,
            Api.LEAVE_GROUP: leave_group,
            Api.OFFSET_COMMIT: offset_commit,
            Api.OFFSET_FETCH: offset_fetch,
            Api.OFFSET_DELETE: offset_delete,
            Api.DESCRIBE_GROUPS: describe_groups,
            Api.LIST_GROUPS: list_groups,
            Api.DELETE_GROUPS: delete_groups,
            Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
            Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
            Api.TXN_OFFSET_COMMIT: txn_offset_commit,
        },
    ),
    **_served(
        TransactionServices,
        {
            Api.INIT_PRODUCER_ID: init_producer_id,
            Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
            Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
            Api.END_TXN: end_txn,
            Api.WRITE_TXN_MARKERS: write_txn_markers,
            Api.DESCRIBE_TRANSACTIONS: describe_transactions,
            Api.LIST_TRANSACTIONS: list_transactions,
        },
    ),
    **_served(
        ControlPlaneServices,
        {
            Api.LEADER_AND_ISR: leader_and_isr,
            Api.STOP_REPLICA: stop_replica,
            Api.UPDATE_METADATA: update_metadata,
            Api.ALTER_PARTITION: alter_partition,
            Api.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
            Api.CONTROLLED_SHUTDOWN: controlled_shutdown,
        },
    ),
}
HANDLERS[Api.API_VERSIONS] = Entry(api_versions(HANDLERS), Api.API_VERSIONS.versions, AdminServices)
