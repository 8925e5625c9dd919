"""Options of listeners, connections and the request queue."""

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
        "Addresses to listen on; an empty host means every interface.",
        PER_BROKER,
    )
    advertised_listeners = Option(
        EndpointsKind(), listeners, "Addresses that clients and other brokers should connect to.", PER_BROKER
    )
    listener_security_protocol_map = Option(
        ProtocolMapKind(),
        MappingProxyType({protocol.value: protocol for protocol in SecurityProtocol}),
        "Security protocol of each listener name.",
        PER_BROKER,
    )
    inter_broker_listener_name = Option(
        String(), None, "Listener for requests between brokers; by default that of `security.inter.broker.protocol`."
    )
    security_inter_broker_protocol = Option(
        String(one_of=tuple(SecurityProtocol.__members__)), "PLAINTEXT", "Security protocol between brokers."
    )
    control_plane_listener_name = Option(
        String(), None, "Separate listener for the controller's requests; by default the one between brokers."
    )
    socket_request_max_bytes = Option(Int(at_least=1), 100 * MiB, "Maximum size of a request.")
    ottla_request_max_bytes = Option(
        Int(at_least=64 * 1024), 8 * MiB, "Maximum size of a request that is neither a Produce nor one of a broker."
    )
    ottla_request_max_entries = Option(
        Int(at_least=64 * 1024),
        64 * 1024,
        "Maximum number of entries in the lists of a request, all lists together; brokers may send more.",
    )
    # With a larger one, sending costs twice the processor time: the data is no longer in the caches when the client
    # reads it (docs/adr/0017).
    socket_send_buffer_bytes = Option(
        Int(at_least=-1),
        256 * 1024,
        "Send buffer of a socket; -1 lets the system choose, which is better for clients that are far away.",
        kafka_default="102400",
    )
    socket_receive_buffer_bytes = Option(
        Int(at_least=-1), -1, "Receive buffer of a socket; -1 lets the system choose.", kafka_default="102400"
    )
    socket_listen_backlog_size = Option(Int(at_least=1), 50, "Connections that may wait to be accepted.")
    socket_connection_setup_timeout_ms = Option(
        Long(at_least=1), 10 * SECONDS, "First timeout for connecting to another broker; it grows with each failure."
    )
    socket_connection_setup_timeout_max_ms = Option(
        Long(at_least=1), 30 * SECONDS, "Maximum timeout for connecting to another broker."
    )
    request_timeout_ms = Option(
        Int(at_least=1),
        30 * SECONDS,
        "Timeout of requests to other brokers.",
        no_effect="`replica.socket.timeout.ms` and `controller.socket.timeout.ms` count instead",
    )
    max_connections = Option(Int(at_least=0), INT_MAX, "Maximum connections to a broker or listener.", CLUSTER_WIDE)
    max_connections_per_ip = Option(Int(at_least=0), INT_MAX, "Maximum connections from one address.", CLUSTER_WIDE)
    max_connections_per_ip_overrides = Option(
        CountsKind(), MappingProxyType({}), "Other maximums for single addresses.", CLUSTER_WIDE
    )
    max_connection_creation_rate = Option(Int(at_least=0), INT_MAX, "Maximum new connections per second.", CLUSTER_WIDE)
    connections_max_idle_ms = Option(
        Long(at_least=-1), 10 * MINUTES, "Idle time after which a connection is closed; -1 means never."
    )
    ottla_connection_frame_timeout_ms = Option(
        Long(at_least=1), 30 * SECONDS, "Time in which a request must arrive completely after its first byte."
    )
    ottla_connection_write_timeout_ms = Option(
        Long(at_least=1), 30 * SECONDS, "Time in which a client must read at least a part of a waiting response."
    )
    connection_failed_authentication_delay_ms = Option(
        Int(at_least=0), 100, "Delay before a connection is closed after a failed authentication."
    )
    queued_max_requests = Option(Int(at_least=1), 500, "Requests that may wait for a worker before reading stops.")
    queued_max_request_bytes = Option(
        Long(at_least=-1),
        256 * MiB,
        "Memory of requests that are being received, wait for a worker or are being processed, small ones aside; "
        "0 or -1 means no limit. At least `socket.request.max.bytes` counts.",
        kafka_default="-1",
    )
    fetch_max_bytes = Option(Int(at_least=1024), 55 * MiB, "Maximum size of a fetch response.")
    max_incremental_fetch_session_cache_slots = Option(Int(at_least=0), 1000, "Maximum number of fetch sessions.")
    max_request_partition_size_limit = Option(
        Int(at_least=1),
        2000,
        "Maximum partitions in one response to DescribeTopicPartitions.",
        no_effect="this API is not supported",
    )
