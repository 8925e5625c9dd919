"""DescribeCluster: cluster id, controller and brokers."""

from __future__ import annotations

from ottla.protocol.message import Message, message, struct, wire
from ottla.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String


@message("0-1", flexible="0+")
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = wire(Boolean)
    endpoint_type: int = wire(Int8, "1+", default=1)


@struct
class DescribeClusterBroker(Message):
    broker_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, nullable="0+", default=None)


@message("0-1", flexible="0+")
class DescribeClusterResponse(Message):
    throttle_time_ms: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, nullable="0+", default=None)
    endpoint_type: int = wire(Int8, "1+", default=1)
    cluster_id: str = wire(String)
    controller_id: int = wire(Int32, default=-1)
    brokers: list[DescribeClusterBroker] = wire(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(Int32, default=-2147483648)
