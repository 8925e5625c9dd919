"""Listeners, connections and the request queue."""

from __future__ import annotations

from types import MappingProxyType

from ottla.broker.config.addresses import (
    Address,
    CountsKind,
    Endpoint,
    EndpointsKind,
    ProtocolMapKind,
    SecurityProtocol,
)
from ottla.broker.config.kinds import Int, Long, String
from ottla.broker.config.option import CLUSTER_WIDE, INT_MAX, MINUTES, PER_BROKER, SECONDS, MiB, Option, Options


class NetworkOptions(Options):
    """Listeners, connections and the request queue."""

    theme = "Network"

    listeners = Option(
        EndpointsKind(),
        (Endpoint("PLAINTEXT", Address("", 9092)),),
        "Addresses to listen on; an empty host is every interface.",
        PER_BROKER,
    )
    advertised_listeners = Option(
        EndpointsKind(), listeners, "Addresses that clients and other brokers are told to connect to.", PER_BROKER
    )
    listener_security_protocol_map = Option(
        ProtocolMapKind(),
        MappingProxyType({protocol.value: protocol for protocol in SecurityProtocol}),
        "Security protocol of each listener name.",
        PER_BROKER,
    )
    inter_broker_listener_name = Option(
        String(), None, "Listener for requests among brokers; unset, the one named by `security.inter.broker.protocol`."
    )
    security_inter_broker_protocol = Option(
        String(one_of=tuple(SecurityProtocol.__members__)), "PLAINTEXT", "Security protocol among brokers."
    )
    control_plane_listener_name = Option(
        String(), None, "Listener of its own for the controller's requests; unset, they share the brokers' listener."
    )
    socket_request_max_bytes = Option(Int(at_least=1), 100 * MiB, "Largest request that is accepted.")
    socket_send_buffer_bytes = Option(
        Int(at_least=-1), -1, "Send buffer of a socket; -1 is the system's, which grows.", kafka_default="102400"
    )
    socket_receive_buffer_bytes = Option(
        Int(at_least=-1), -1, "Receive buffer of a socket; -1 is the system's, which grows.", kafka_default="102400"
    )
    socket_listen_backlog_size = Option(Int(at_least=1), 50, "Connections that may wait to be accepted.")
    socket_connection_setup_timeout_ms = Option(
        Long(at_least=1), 10 * SECONDS, "First limit for connecting to another broker; grows with each failure."
    )
    socket_connection_setup_timeout_max_ms = Option(
        Long(at_least=1), 30 * SECONDS, "Highest limit for connecting to another broker."
    )
    request_timeout_ms = Option(
        Int(at_least=1),
        30 * SECONDS,
        "Limit for an answer from another broker.",
        no_effect="`replica.socket.timeout.ms` and `controller.socket.timeout.ms` are the limits",
    )
    max_connections = Option(Int(at_least=0), INT_MAX, "Connections to the broker, or to one listener.", CLUSTER_WIDE)
    max_connections_per_ip = Option(Int(at_least=0), INT_MAX, "Connections from one address.", CLUSTER_WIDE)
    max_connections_per_ip_overrides = Option(
        CountsKind(), MappingProxyType({}), "Other limits for connections from some addresses.", CLUSTER_WIDE
    )
    max_connection_creation_rate = Option(Int(at_least=0), INT_MAX, "New connections in a second.", CLUSTER_WIDE)
    connections_max_idle_ms = Option(
        Long(at_least=-1), 10 * MINUTES, "Silence after which a connection is closed; -1 is never."
    )
    ottla_connection_frame_timeout_ms = Option(
        Long(at_least=1), 30 * SECONDS, "Time in which a request that has begun to arrive must be complete."
    )
    ottla_connection_write_timeout_ms = Option(
        Long(at_least=1), 30 * SECONDS, "Time in which a client must take some of the answer that waits for it."
    )
    connection_failed_authentication_delay_ms = Option(
        Int(at_least=0), 100, "Pause before a connection that failed to authenticate is closed."
    )
    queued_max_requests = Option(Int(at_least=1), 500, "Requests that may wait for a worker; then reading stops.")
    queued_max_request_bytes = Option(
        Long(at_least=-1), -1, "Bytes of requests that may wait for a worker; 0 or -1 is no limit."
    )
    fetch_max_bytes = Option(Int(at_least=1024), 55 * MiB, "Largest answer to a fetch.")
    max_incremental_fetch_session_cache_slots = Option(Int(at_least=0), 1000, "Number of fetch sessions kept.")
    max_request_partition_size_limit = Option(
        Int(at_least=1),
        2000,
        "Partitions in one answer to DescribeTopicPartitions.",
        no_effect="this API is not served",
    )
