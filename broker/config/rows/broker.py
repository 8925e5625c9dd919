"""Joins the themes of options to the one table of the broker."""

from __future__ import annotations

from ottla.broker.config.rows.coordinators import ConsumerGroupOptions, GroupOptions, TransactionOptions
from ottla.broker.config.rows.logs import CleanerOptions, LogOptions, RecordOptions
from ottla.broker.config.rows.network import NetworkOptions
from ottla.broker.config.rows.quotas import QuotaOptions
from ottla.broker.config.rows.replication import ControllerOptions, ReplicationOptions
from ottla.broker.config.rows.security import AccessOptions, DelegationTokenOptions, SaslOptions, TlsOptions
from ottla.broker.config.rows.server import ServerOptions, ZooKeeperOptions


class BrokerOptions(
    ServerOptions,
    ZooKeeperOptions,
    NetworkOptions,
    LogOptions,
    RecordOptions,
    CleanerOptions,
    ReplicationOptions,
    ControllerOptions,
    GroupOptions,
    ConsumerGroupOptions,
    TransactionOptions,
    QuotaOptions,
    TlsOptions,
    SaslOptions,
    DelegationTokenOptions,
    AccessOptions,
):
    """The options of a broker, by theme."""


BROKER_OPTIONS = BrokerOptions.rows()

# The options that the prefix `listener.name.<name>.` limits to one listener.
LISTENER_OPTIONS = frozenset(
    [
        *TlsOptions.rows(),
        *SaslOptions.rows(),
        NetworkOptions.max_connections.name,
        NetworkOptions.max_connection_creation_rate.name,
        ServerOptions.num_network_threads.name,
    ]
)
