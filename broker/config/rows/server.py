"""Options of the broker itself: identity, ZooKeeper, threads, shutdown, HTTP."""

from __future__ import annotations

from ottla.broker.config.addresses import Address, AddressKind, ZooKeeperKind
from ottla.broker.config.kinds import Boolean, Int, Long, Secret, String
from ottla.broker.config.option import CLUSTER_WIDE, SECONDS, Option, Options


class ServerOptions(Options):
    """Identity, threads and life cycle."""

    theme = "Broker"

    node_id = Option(Int(at_least=-1), -1, "Newer name of `broker.id`; if both are set, `broker.id` counts.")
    broker_id = Option(Int(at_least=-1), node_id, "Id of this broker in the cluster; -1 generates one.")
    broker_id_generation_enable = Option(Boolean(), True, "Generate an id for a broker without one.")
    reserved_broker_max_id = Option(Int(at_least=0), 1000, "Highest id set by hand; generated ids are above it.")
    broker_rack = Option(String(), None, "Rack or zone of this broker; replicas are spread over the racks.")
    num_io_threads = Option(Int(at_least=1), 8, "Number of workers that process requests.", CLUSTER_WIDE)
    num_network_threads = Option(Int(at_least=1), 3, "Number of network coroutines per listener.", CLUSTER_WIDE)
    background_threads = Option(
        Int(at_least=1),
        10,
        "Number of threads for retention and other background tasks.",
        CLUSTER_WIDE,
        no_effect="each kind of background task has its own thread",
    )
    controlled_shutdown_enable = Option(Boolean(), True, "Move leadership to other brokers before the broker stops.")
    controlled_shutdown_max_retries = Option(Int(at_least=0), 3, "Attempts to move leadership before stopping anyway.")
    controlled_shutdown_retry_backoff_ms = Option(
        Long(at_least=0), 5 * SECONDS, "Pause between two attempts to move leadership."
    )
    ottla_http_listener = Option(
        AddressKind(), Address("127.0.0.1", 9644), "Address of metrics, health and console, over HTTP."
    )
    ottla_http_token = Option(Secret(), None, "Token that HTTP clients must send as a bearer token.")
    ottla_http_users = Option(
        Secret(),
        None,
        "Users that may use HTTP with basic authentication: name:password, separated by commas.",
    )
    ottla_http_open = Option(
        Boolean(), False, "Answer HTTP requests without a token or user, even on an address that is not loopback."
    )
    ottla_metrics_partitions = Option(
        Boolean(), True, "Publish metrics of every partition, not only of topics.", CLUSTER_WIDE
    )


class ZooKeeperOptions(Options):
    """The connection to ZooKeeper."""

    theme = "ZooKeeper"

    zookeeper_connect = Option(
        ZooKeeperKind(), None, "Servers of the ensemble, and the path of this cluster. Required."
    )
    zookeeper_session_timeout_ms = Option(
        Int(at_least=1), 18 * SECONDS, "Time without contact after which ZooKeeper considers the broker dead."
    )
    zookeeper_connection_timeout_ms = Option(
        Int(at_least=1), zookeeper_session_timeout_ms, "How long to try to connect when the broker starts."
    )
    zookeeper_max_in_flight_requests = Option(
        Int(at_least=1), 10, "Maximum requests to ZooKeeper that are sent without waiting for responses."
    )
    ottla_guardian_enable = Option(
        Boolean(),
        True,
        "Run a small process beside the broker that closes its session with ZooKeeper if the broker dies. Other "
        "brokers then take over at once, not after the session timeout.",
    )
