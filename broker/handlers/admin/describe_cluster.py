"""DescribeCluster (60), versions 0-1.

Behavior: returns the cluster's id, its controller, and the live brokers that have the listener of the request. If
requested, it adds the client's authorized operations on the cluster: none if it may not describe the cluster.

Version notes: version 1 can ask for controllers instead. A ZooKeeper cluster has no separate controllers:
MISMATCHED_ENDPOINT_TYPE. An unknown type is UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from ottla.broker.requests.access import NOT_ASKED, cluster_operations
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import AdminRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def describe_cluster(request: AdminRequest) -> DescribeClusterResponse:
    """Describe the cluster."""
    body: DescribeClusterRequest = request.body
    if body.endpoint_type != _BROKERS:
        is_known = body.endpoint_type == _CONTROLLERS
        outcome = Outcome.of(ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
        return DescribeClusterResponse(
            throttle_time_ms=0, error_code=outcome.code, error_message=outcome.message, cluster_id="", brokers=[]
        )
    cluster = request.services.cluster
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=cluster.id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in request.services.metadata.snapshot.brokers_with(request.session.listener)
        ],
        cluster_authorized_operations=cluster_operations(request)
        if body.include_cluster_authorized_operations
        else NOT_ASKED,
    )
