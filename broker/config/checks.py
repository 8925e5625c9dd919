"""Rules between options. Each check yields the problems that it finds.

A check may see the default of an option whose value could not be read. Problems that name such an option are dropped,
so every problem must name all the options that it depends on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from ottla.broker.config.layers import ConfigSource, Problem
from ottla.broker.config.option import MiB, Option
from ottla.broker.config.rows.broker import BrokerOptions

if TYPE_CHECKING:
    from ottla.broker.config.broker_config import BrokerConfig

ZOOKEEPER_MISSING = Problem(
    ("zookeeper.connect",),
    "zookeeper.connect is not set: a broker needs ZooKeeper, for example zookeeper.connect=localhost:2181",
)

_EVERY_INTERFACE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound


def problems_between_options(config: BrokerConfig) -> Iterator[Problem]:
    """Run all checks."""
    checks = (
        _zookeeper,
        _limits,
        _identity,
        _acknowledgements,
        _connections,
        _listeners,
        _inter_broker,
        _control_plane,
        _secrets,
    )
    return chain.from_iterable(check(config) for check in checks)


def _zookeeper(config: BrokerConfig) -> Iterator[Problem]:
    has_key = config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location
    if config.zookeeper_set_acl and not has_key and config.ottla_zookeeper_sasl_jaas_config is None:
        yield _problem(
            config,
            "{} needs a login that the nodes belong to: set {}, or {} with {}",
            BrokerOptions.zookeeper_set_acl,
            BrokerOptions.ottla_zookeeper_sasl_jaas_config,
            BrokerOptions.zookeeper_ssl_client_enable,
            BrokerOptions.zookeeper_ssl_keystore_location,
        )


def _limits(config: BrokerConfig) -> Iterator[Problem]:
    for smaller, larger in (
        (BrokerOptions.replica_fetch_wait_max_ms, BrokerOptions.replica_socket_timeout_ms),
        (BrokerOptions.replica_fetch_wait_max_ms, BrokerOptions.replica_lag_time_max_ms),
        (BrokerOptions.group_min_session_timeout_ms, BrokerOptions.group_max_session_timeout_ms),
        (BrokerOptions.group_consumer_min_session_timeout_ms, BrokerOptions.group_consumer_session_timeout_ms),
        (BrokerOptions.group_consumer_session_timeout_ms, BrokerOptions.group_consumer_max_session_timeout_ms),
        (BrokerOptions.group_consumer_min_heartbeat_interval_ms, BrokerOptions.group_consumer_heartbeat_interval_ms),
        (BrokerOptions.group_consumer_heartbeat_interval_ms, BrokerOptions.group_consumer_max_heartbeat_interval_ms),
        (BrokerOptions.log_cleaner_min_compaction_lag_ms, BrokerOptions.log_cleaner_max_compaction_lag_ms),
        (BrokerOptions.socket_connection_setup_timeout_ms, BrokerOptions.socket_connection_setup_timeout_max_ms),
    ):
        if _value(config, smaller) > _value(config, larger):
            yield _problem(config, "{} must be at most {}", smaller, larger)
    is_set = config.resolve(BrokerOptions.queued_max_request_bytes.name).source is not ConfigSource.DEFAULT
    if is_set and 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield _problem(
            config,
            "{} must be at least {}, or one request could never be read",
            BrokerOptions.queued_max_request_bytes,
            BrokerOptions.socket_request_max_bytes,
        )
    if config.log_cleaner_dedupe_buffer_size <= config.log_cleaner_threads * MiB:
        yield _problem(
            config,
            "{} must be above 1 MiB for each of {}",
            BrokerOptions.log_cleaner_dedupe_buffer_size,
            BrokerOptions.log_cleaner_threads,
        )


def _identity(config: BrokerConfig) -> Iterator[Problem]:
    if config.broker_id_generation_enable and config.broker_id > config.reserved_broker_max_id:
        yield _problem(
            config,
            "{} must be at most {}, because broker.id.generation.enable assigns the higher ids",
            BrokerOptions.broker_id,
            BrokerOptions.reserved_broker_max_id,
        )
    if not config.broker_id_generation_enable and config.broker_id < 0:
        yield _problem(
            config,
            "{} must be at least 0 with {}",
            BrokerOptions.broker_id,
            BrokerOptions.broker_id_generation_enable,
        )


def _acknowledgements(config: BrokerConfig) -> Iterator[Problem]:
    if config.offsets_commit_required_acks > config.offsets_topic_replication_factor:
        yield _problem(
            config,
            "{} must be at most {}",
            BrokerOptions.offsets_commit_required_acks,
            BrokerOptions.offsets_topic_replication_factor,
        )


def _connections(config: BrokerConfig) -> Iterator[Problem]:
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        yield _problem(
            config,
            "{} lets nobody connect without {}",
            BrokerOptions.max_connections_per_ip,
            BrokerOptions.max_connections_per_ip_overrides,
        )


def _listeners(config: BrokerConfig) -> Iterator[Problem]:
    rows = (BrokerOptions.listeners, BrokerOptions.advertised_listeners)
    protocols = config.listener_security_protocol_map
    bound = {endpoint.listener_name for endpoint in config.listeners}
    public = {endpoint.listener_name for endpoint in config.advertised_listeners}
    for name in sorted((bound | public) - set(protocols)):
        yield _problem(
            config,
            f"listener {name} has no security protocol in {{2}}",
            *rows,
            BrokerOptions.listener_security_protocol_map,
        )
    for name in sorted(public - bound):
        yield _problem(config, f"{{1}} names {name}, which is not among {{0}}", *rows)
    for endpoint in config.advertised_listeners:
        if endpoint.address.host in _EVERY_INTERFACE:
            yield _problem(
                config,
                f"clients cannot connect to {endpoint.address.host}: set advertised.listeners to addresses that they "
                "can reach, now {1}",
                *rows,
            )
    fixed = [endpoint.address for endpoint in config.listeners if endpoint.address.port]
    for address in sorted({str(address) for address in fixed if fixed.count(address) > 1}):
        yield _problem(config, f"{{}} uses {address} twice", BrokerOptions.listeners)


def _inter_broker(config: BrokerConfig) -> Iterator[Problem]:
    by_name = BrokerOptions.inter_broker_listener_name
    by_protocol = BrokerOptions.security_inter_broker_protocol
    public = [endpoint.listener_name for endpoint in config.advertised_listeners]
    rows = (by_name, by_protocol, BrokerOptions.listeners, BrokerOptions.advertised_listeners)
    if config.inter_broker_listener_name is None and config.security_inter_broker_protocol not in public:
        yield _problem(
            config,
            "no listener is named {1}: set inter.broker.listener.name to the one for requests between brokers, "
            f"one of {', '.join(public)}",
            *rows,
        )
    if config.inter_broker_listener_name is not None and config.inter_broker_listener_name.upper() not in public:
        yield _problem(config, f"{{0}} is not among the advertised listeners {', '.join(public)}", *rows)
    if config.inter_broker_listener_name is not None and config.origin(by_protocol) != "default":
        yield _problem(config, "{0} and {1} cannot both be set: keep the first", by_name, by_protocol)


def _control_plane(config: BrokerConfig) -> Iterator[Problem]:
    name = (config.control_plane_listener_name or "").upper()
    inter_broker = (config.inter_broker_listener_name or config.security_inter_broker_protocol).upper()
    rows = (
        BrokerOptions.control_plane_listener_name,
        BrokerOptions.inter_broker_listener_name,
        BrokerOptions.listeners,
    )
    if name and name not in {endpoint.listener_name for endpoint in config.listeners}:
        yield _problem(config, "{0} is not among {2}", *rows)
    if name and name == inter_broker:
        yield _problem(config, "{0} must not be the listener for other requests between brokers", *rows)


def _secrets(config: BrokerConfig) -> Iterator[Problem]:
    """Check that each listener has the keys and mechanisms that its protocol needs."""
    rows = (BrokerOptions.listeners, BrokerOptions.listener_security_protocol_map)
    inter_broker = (config.inter_broker_listener_name or config.security_inter_broker_protocol).upper()
    for endpoint in config.listeners:
        name = endpoint.listener_name
        protocol = config.listener_security_protocol_map.get(name)
        if protocol is not None and protocol.has_tls:
            in_file = config.for_listener(name, BrokerOptions.ssl_keystore_location)
            in_text = config.for_listener(name, BrokerOptions.ssl_keystore_key)
            if not in_file and not in_text:
                message = f"listener {name} has TLS but no key: set ssl.keystore.location or ssl.keystore.key"
                yield _problem(config, message, *rows, BrokerOptions.ssl_keystore_location)
        if protocol is not None and protocol.has_sasl:
            mechanisms = config.for_listener(name, BrokerOptions.sasl_enabled_mechanisms)
            among_brokers = config.for_listener(name, BrokerOptions.sasl_mechanism_inter_broker_protocol)
            if not mechanisms:
                message = f"listener {name} has SASL but no mechanism: set sasl.enabled.mechanisms"
                yield _problem(config, message, *rows, BrokerOptions.sasl_enabled_mechanisms)
            elif "PLAIN" in mechanisms and not protocol.has_tls and not _allows_plain(config, name):
                message = (
                    f"listener {name} would accept unencrypted passwords: use SASL_SSL or SCRAM, or set "
                    "ottla.sasl.plain.allow.without.tls=true if this is what you want"
                )
                yield _problem(config, message, *rows, BrokerOptions.sasl_enabled_mechanisms)
            elif name == inter_broker and among_brokers not in mechanisms:
                message = (
                    f"listener {name} is for requests between brokers: set sasl.mechanism.inter.broker.protocol to one "
                    f"of its mechanisms, {', '.join(mechanisms)}"
                )
                yield _problem(config, message, *rows, BrokerOptions.sasl_mechanism_inter_broker_protocol)


def _allows_plain(config: BrokerConfig, listener: str) -> bool:
    return config.for_listener(listener, BrokerOptions.ottla_sasl_plain_allow_without_tls)


def _value(config: BrokerConfig, option: Option[Any]) -> Any:
    return vars(config)[option.attribute]


def _problem(config: BrokerConfig, message: str, *options: Option[Any]) -> Problem:
    """Return a problem; each field of the message is filled with `name = value (place)` of an option."""
    return Problem(
        tuple(option.name for option in options),
        message.format(*(f"{option.name} = {_text(config, option)} ({config.origin(option)})" for option in options)),
    )


def _text(config: BrokerConfig, option: Option[Any]) -> str:
    value = _value(config, option)
    return "null" if value is None else option.kind.format(value)
