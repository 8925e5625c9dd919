"""The broker itself: identity, ZooKeeper, threads, shutdown, topics by default, HTTP."""

from __future__ import annotations

from ottla.broker.config.addresses import Address, AddressKind, ZooKeeperKind
from ottla.broker.config.kinds import Boolean, Int, Long, Secret, String
from ottla.broker.config.option import CLUSTER_WIDE, SECONDS, Option, Options


class ServerOptions(Options):
    """Identity, threads and the life of the process."""

    theme = "Broker"

    node_id = Option(Int(at_least=-1), -1, "Newer name of `broker.id`, which counts where both are set.")
    broker_id = Option(Int(at_least=-1), node_id, "Number of this broker in the cluster; -1 lets it choose one.")
    broker_id_generation_enable = Option(Boolean(), True, "Let a broker without an id choose one.")
    reserved_broker_max_id = Option(Int(at_least=0), 1000, "Highest id given by hand; chosen ids are above it.")
    broker_rack = Option(String(), None, "Rack or zone of this broker; replicas are spread over the racks.")
    num_io_threads = Option(Int(at_least=1), 8, "Number of workers that handle requests.", CLUSTER_WIDE)
    num_network_threads = Option(Int(at_least=1), 3, "Number of network coroutines of a listener.", CLUSTER_WIDE)
    background_threads = Option(
        Int(at_least=1),
        10,
        "Number of threads for retention and other chores.",
        CLUSTER_WIDE,
        no_effect="each kind of chore has one thread of its own",
    )
    controlled_shutdown_enable = Option(Boolean(), True, "Hand over leadership before the broker stops.")
    controlled_shutdown_max_retries = Option(Int(at_least=0), 3, "Attempts to hand over before stopping anyway.")
    controlled_shutdown_retry_backoff_ms = Option(
        Long(at_least=0), 5 * SECONDS, "Pause between two attempts to hand over."
    )
    ottla_http_listener = Option(
        AddressKind(), Address("127.0.0.1", 9644), "Address of metrics, health and console, over HTTP."
    )
    ottla_http_token = Option(Secret(), None, "Token that whoever asks over HTTP shows as bearer.")
    ottla_http_users = Option(
        Secret(),
        None,
        "Users that may ask over HTTP instead, by basic authentication: name:password, between commas.",
    )
    ottla_http_open = Option(
        Boolean(), False, "Answer everybody over HTTP without token or user, also at an address that is not loopback."
    )
    ottla_metrics_partitions = Option(
        Boolean(), True, "Have metrics of every partition, not only of topics.", CLUSTER_WIDE
    )


class ZooKeeperOptions(Options):
    """The connection to ZooKeeper."""

    theme = "ZooKeeper"

    zookeeper_connect = Option(
        ZooKeeperKind(), None, "Servers of the ensemble, and the path of this cluster. Every broker needs it."
    )
    zookeeper_session_timeout_ms = Option(
        Int(at_least=1), 18 * SECONDS, "Silence after which ZooKeeper takes the broker for dead."
    )
    zookeeper_connection_timeout_ms = Option(
        Int(at_least=1), zookeeper_session_timeout_ms, "How long to try to connect at the start."
    )
    zookeeper_max_in_flight_requests = Option(
        Int(at_least=1), 10, "Requests sent to ZooKeeper without waiting for the answers."
    )
