"""Options of the broker itself: identity, ZooKeeper, threads, shutdown, HTTP."""

from __future__ import annotations

from ottla.broker.config.addresses import Address, AddressKind, ZooKeeperKind
from ottla.broker.config.kinds import Boolean, Int, List, Long, Secret, String
from ottla.broker.config.option import CLUSTER_WIDE, SECONDS, Option, Options

# A file of type JKS may be PKCS12, which Java writes today under this name. A real one is refused with the command that
# converts it.
_STORE_TYPES = ("JKS", "PEM", "PKCS12")


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
    zookeeper_set_acl = Option(
        Boolean(), False, "Reserve the nodes that brokers create for the brokers' login to ZooKeeper."
    )
    ottla_zookeeper_sasl_jaas_config = Option(
        Secret(), None, "Login to ZooKeeper with DIGEST-MD5: a DigestLoginModule with username and password."
    )
    zookeeper_ssl_client_enable = Option(Boolean(), False, "Connect to ZooKeeper with TLS.")
    zookeeper_ssl_keystore_location = Option(
        String(), None, "File with the key and the certificates to show to ZooKeeper."
    )
    zookeeper_ssl_keystore_password = Option(Secret(), None, "Password of that file, or of the key in it.")
    zookeeper_ssl_keystore_type = Option(
        String(one_of=_STORE_TYPES), None, "Format of that file; by default PEM if its name ends with .pem."
    )
    zookeeper_ssl_truststore_location = Option(
        String(), None, "File with the certificates that ZooKeeper's must be signed by; by default those of the system."
    )
    zookeeper_ssl_truststore_password = Option(Secret(), None, "Password of that file.")
    zookeeper_ssl_truststore_type = Option(
        String(one_of=_STORE_TYPES), None, "Format of that file; by default PEM if its name ends with .pem."
    )
    zookeeper_ssl_enabled_protocols = Option(
        List(one_of=("TLSv1.2", "TLSv1.3")), None, "Versions of TLS to use with ZooKeeper; by default both."
    )
    zookeeper_ssl_cipher_suites = Option(
        List(), None, "Cipher suites to use with ZooKeeper; by default those of the library."
    )
    zookeeper_ssl_endpoint_identification_algorithm = Option(
        String(one_of=("HTTPS", "https", "")),
        "HTTPS",
        "Check the host name in ZooKeeper's certificate; empty means no check.",
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
