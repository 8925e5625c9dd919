"""DescribeCluster, version by version."""

from __future__ import annotations

import pytest
from tests.broker.handlers.small_cluster import LISTENER, SmallCluster, every_version, live_broker

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest


@pytest.mark.parametrize("version", every_version(Api.DESCRIBE_CLUSTER))
def test_the_cluster_is_described_as_its_listener_shows_it(version: int) -> None:
    """Brokers without the listener cannot be reached by this client."""
    cluster = SmallCluster()
    cluster.brokers = [live_broker(1, rack="r1"), live_broker(2, "INSIDE", LISTENER), live_broker(3, "INSIDE")]
    cluster.tell()

    response = cluster.ask(
        Api.DESCRIBE_CLUSTER, version, DescribeClusterRequest(include_cluster_authorized_operations=True)
    )

    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "a-cluster-id", 1)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers] == [
        (1, "broker-1", 9092, "r1"),
        (2, "broker-2", 9092, None),
    ]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (3, 115)],
)
def test_only_brokers_can_be_asked_for(endpoint_type: int, code: int) -> None:
    """There are no controllers apart from brokers."""
    cluster = SmallCluster()
    cluster.tell()
    body = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)

    response = cluster.ask(Api.DESCRIBE_CLUSTER, 1, body)

    assert (response.error_code, response.brokers) == (code, [])
    assert response.error_message
