"""The table of what the broker serves."""

from __future__ import annotations

import re
import sys

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version

from ottla.broker.handlers.table import HANDLERS
from ottla.protocol.api import Api
from ottla.protocol.messages.api_versions import ApiVersionsRequest

# What clients look for, from the reference of Kafka 3.9.
ADVERTISED = {
    Api.PRODUCE: "0-11",
    Api.FETCH: "0-17",
    Api.LIST_OFFSETS: "0-9",
    Api.METADATA: "0-12",
    Api.LEADER_AND_ISR: "0-7",
    Api.STOP_REPLICA: "0-4",
    Api.UPDATE_METADATA: "0-8",
    Api.API_VERSIONS: "0-4",
    Api.CREATE_TOPICS: "0-7",
    Api.DELETE_TOPICS: "0-6",
    Api.DELETE_RECORDS: "0-2",
    Api.INIT_PRODUCER_ID: "0-5",
    Api.OFFSET_FOR_LEADER_EPOCH: "0-4",
    Api.DESCRIBE_CONFIGS: "0-4",
    Api.ALTER_CONFIGS: "0-2",
    Api.ALTER_REPLICA_LOG_DIRS: "0-2",
    Api.DESCRIBE_LOG_DIRS: "0-4",
    Api.CREATE_PARTITIONS: "0-3",
    Api.INCREMENTAL_ALTER_CONFIGS: "0-1",
    Api.DESCRIBE_CLUSTER: "0-1",
    Api.ALTER_PARTITION: "0-3",
    Api.ALLOCATE_PRODUCER_IDS: "0",
    Api.CONTROLLED_SHUTDOWN: "0-3",
    Api.ELECT_LEADERS: "0-2",
    Api.ALTER_PARTITION_REASSIGNMENTS: "0",
    Api.LIST_PARTITION_REASSIGNMENTS: "0",
    Api.SASL_HANDSHAKE: "0-1",
    Api.SASL_AUTHENTICATE: "0-2",
    Api.DESCRIBE_ACLS: "0-3",
    Api.CREATE_ACLS: "0-3",
    Api.DELETE_ACLS: "0-3",
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: "0",
    Api.ALTER_USER_SCRAM_CREDENTIALS: "0",
    Api.CREATE_DELEGATION_TOKEN: "0-3",
    Api.RENEW_DELEGATION_TOKEN: "0-2",
    Api.EXPIRE_DELEGATION_TOKEN: "0-2",
    Api.DESCRIBE_DELEGATION_TOKEN: "0-3",
    Api.DESCRIBE_CLIENT_QUOTAS: "0-1",
    Api.ALTER_CLIENT_QUOTAS: "0-1",
    Api.FIND_COORDINATOR: "0-6",
    Api.JOIN_GROUP: "0-9",
    Api.SYNC_GROUP: "0-5",
    Api.HEARTBEAT: "0-4",
    Api.LEAVE_GROUP: "0-5",
    Api.OFFSET_COMMIT: "0-9",
    Api.OFFSET_FETCH: "0-9",
    Api.OFFSET_DELETE: "0",
    Api.DESCRIBE_GROUPS: "0-5",
    Api.LIST_GROUPS: "0-5",
    Api.DELETE_GROUPS: "0-2",
    Api.ADD_PARTITIONS_TO_TXN: "0-5",
    Api.ADD_OFFSETS_TO_TXN: "0-4",
    Api.END_TXN: "0-4",
    Api.WRITE_TXN_MARKERS: "0-1",
    Api.TXN_OFFSET_COMMIT: "0-4",
    Api.DESCRIBE_PRODUCERS: "0",
    Api.DESCRIBE_TRANSACTIONS: "0",
    Api.LIST_TRANSACTIONS: "0-1",
    # Kafka 3.9 serves these without ZooKeeper only.
    Api.CONSUMER_GROUP_HEARTBEAT: "0-1",
    Api.CONSUMER_GROUP_DESCRIBE: "0-1",
    # Ours alone.
    Api.MIRROR_APPEND: "0",
    Api.UNDELETE_TOPICS: "0",
}


def test_each_api_is_served_in_kafkas_versions() -> None:
    """A version that is missing disables a feature of some client without a word."""
    served = {api: str(entry.versions) for api, entry in HANDLERS.items()}

    assert served == ADVERTISED


@pytest.mark.parametrize("version", every_version(Api.API_VERSIONS))
def test_clients_are_told_what_the_table_has(version: int) -> None:
    """In every version of the question."""
    body = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    if version < 3:
        body = ApiVersionsRequest()

    response = SmallCluster().ask(Api.API_VERSIONS, version, body)

    told = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert told == {api: tuple(entry.versions) for api, entry in HANDLERS.items()}


@pytest.mark.parametrize("api", [api for api in ADVERTISED if api is not Api.API_VERSIONS])
def test_the_contract_on_top_of_a_handler_names_api_key_and_versions(api: Api) -> None:
    """As the table has them."""
    entry = HANDLERS[api]
    contract = sys.modules[entry.handle.__module__].__doc__ or ""

    assert re.match(rf"{api.label} \({api.value}\), versions? {entry.versions}\.", contract)
