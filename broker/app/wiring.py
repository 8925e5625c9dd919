"""The one place where the parts of a broker are made and connected. Nothing runs here: `server.py` starts the parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.app.config_updates import read_topic_options
from ottla.broker.app.current_configs import CurrentConfigs
from ottla.broker.app.losses import log_dir_lost, replica_damaged, unregistered
from ottla.broker.app.services import Services
from ottla.broker.cluster import znodes
from ottla.broker.cluster.broker_link import BrokerLink, address_of_broker, address_of_controller
from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.cluster.configs import Configs
from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.broker.cluster.kept_logs import give_up_logs
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.clocks import Clocks
from ottla.broker.common.purgatory import Purgatory
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.controller import Controller
from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_for
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.lag_lookups import LeaderLookups
from ottla.broker.groups.offsets.group_offsets import GroupOffsets
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.network.network import Network
from ottla.broker.observability.event_ring import BROKER_EVENTS
from ottla.broker.observability.http_port import HttpPort, Observed
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.replication.follower.fetchers import Fetchers
from ottla.broker.replication.leader.fetch_sessions import IDLE_SECONDS_MAX, FetchSessions
from ottla.broker.replication.leader.isr_changes import IsrChanges
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.partition import Partition, PartitionContext
from ottla.broker.replication.partitions import Partitions
from ottla.broker.replication.throttle import Throttles
from ottla.broker.requests.dispatch import Dispatcher
from ottla.broker.requests.request_limits import request_bytes_max
from ottla.broker.requests.topic_creation import known_brokers
from ottla.broker.security.audit.audit_topic import CLIENT_ID as AUDIT_CLIENT_ID
from ottla.broker.security.audit.audit_topic import AuditTopic
from ottla.broker.security.audit.audit_topic import audit_topic as audit_topic_spec
from ottla.broker.security.security import Security
from ottla.broker.storage.directory_files import read_meta_properties
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.maintenance.maintenance import Maintenance
from ottla.broker.transactions.coordinator import TransactionCoordinator, TransactionLimits
from ottla.broker.transactions.marker_writer import MarkerWriter
from ottla.broker.transactions.markers import MarkerSender
from ottla.broker.transactions.verifier import Verifier
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import AUDIT_TOPIC, NO_LEADER, TopicPartition
from ottla.protocol.primitives import uuid_from_text

# Longer than another broker waits for its replicas.
_BROKER_REQUEST_TIMEOUT_MS: Final = 10_000


def wire(config: BrokerConfig, zookeeper: ZooKeeper, clocks: Clocks) -> Services:
    """Make the services of a broker.

    Reads from ZooKeeper and the log directories what this needs: who the broker is, and which options are set. Blocks.
    """
    membership = Membership(zookeeper, config, clock=clocks.wall_ms)
    membership.prepare()
    cluster_id = membership.cluster_id()
    broker_id = membership.choose_broker_id(_stored_broker_id(config))
    stored = Configs(zookeeper)
    configs = CurrentConfigs(config.with_dynamic(*stored.of_broker(broker_id)), stored.read_all(znodes.TOPIC_CONFIGS))
    config = configs.broker()
    metadata = MetadataCache(broker_id)
    security = Security(zookeeper, configs.broker, is_controller=lambda: controller.is_active)
    quotas = ClientQuotas(stored, configs.broker, clocks.monotonic_ms)
    controller = Controller(
        zookeeper,
        broker_id,
        configs.broker,
        clocks=clocks,
        connector=security.control_plane_connector,
    )

    def is_controller() -> bool:
        # Not before its own metadata knows that: until then it would see no live broker to put a replica on.
        return controller.is_active and membership.may_lead_alone and bool(metadata.snapshot.brokers)

    cluster = ClusterRegistry(
        zookeeper, membership, metadata, configs.broker, cluster_id=cluster_id, is_controller=is_controller
    )
    logs = Logs(config, configs.of, clocks.wall_ms)
    group_commit = GroupCommit(logs.dirs)
    throttles = Throttles(broker_id, config)
    for topic in configs:
        throttles.set_topic(topic, configs.of(topic))
    partitions = Partitions(
        PartitionContext(
            broker_id,
            clocks.wall_ms,
            lag_max_ms=lambda: configs.broker().replica_lag_time_max_ms,
            is_alive=lambda broker: broker in metadata.snapshot.brokers,
            exists=lambda partition: metadata.snapshot.partition(*partition) is not None,
            broker_epoch=lambda: membership.broker_epoch,
            may_lead_alone=lambda: membership.may_lead_alone,
            was_heard_within_ms=membership.was_heard_within_ms,
            verifies_transactions=lambda: configs.broker().transaction_partition_verification_enable,
            group_commit=group_commit,
        ),
        logs,
        partial(read_topic_options, cluster, configs, throttles),
        on_damaged=partial(replica_damaged, cluster),
        throttles=throttles,
    )
    delayed_topics = Purgatory("topic", lambda: clocks.monotonic_ms() / 1000)
    groups = GroupCoordinator(
        configs.broker,
        partitions,
        partial(_partition_count, metadata, CONSUMER_OFFSETS),
        clock=clocks.wall_ms,
        now_ms=clocks.monotonic_ms,
        on_loaded=lambda: delayed_topics.check(CONSUMER_OFFSETS),
    )
    transactions = TransactionCoordinator(
        lambda: _transaction_limits(configs.broker()),
        partitions,
        partial(_partition_count, metadata, TRANSACTION_STATE),
        cluster.next_producer_id,
        clocks.wall_ms,
        on_loaded=lambda: delayed_topics.check(TRANSACTION_STATE),
    )
    group_offsets = GroupOffsets(groups, lambda: membership.may_lead_alone, partial(_topic_name, metadata))
    marker_writer = MarkerWriter(partitions, group_offsets, clocks.wall_ms)

    def link_to(broker: int, purpose: str, client_id: str = "") -> BrokerLink:
        address = address_of_broker(broker, lambda: metadata.snapshot, configs.broker)
        client_id = client_id or f"broker-{broker_id}-{purpose}"
        return BrokerLink(address, configs.broker, client_id, _BROKER_REQUEST_TIMEOUT_MS, security.connector)

    markers = MarkerSender(
        transactions,
        broker_id,
        lambda: membership.broker_epoch,
        partial(_leader_of, metadata),
        marker_writer.write,
        lambda broker: link_to(broker, "markers"),
    )
    transactions.send_markers = markers.send

    def role_changed(partition: Partition) -> None:
        groups.role_changed(partition)
        transactions.role_changed(partition)

    partitions.connect(
        Fetchers(
            configs.broker,
            broker_id,
            lambda: membership.broker_epoch,
            partial(_broker_address, metadata, configs),
            logs,
            group_commit,
            throttles.follower,
            security.connector,
        ),
        IsrChanges(
            controller_link(membership, metadata, configs, security, "isr"),
            broker_id,
            lambda: membership.broker_epoch,
            partial(unregistered, membership, metadata, partitions),
            lambda: membership.may_lead_alone,
        ),
        role_changed,
    )
    audit_topic = None
    if config.ottla_audit == "topic":
        audit_topic = AuditTopic(
            partial(_leader_of_audit, metadata),
            lambda broker: link_to(broker, "audit", AUDIT_CLIENT_ID),
            partial(_create_audit_topic, cluster, metadata),
        )
        security.audit.sink = audit_topic.add
    security.audit.on_change = BROKER_EVENTS.note_change
    logs.kept.may_give_up = lambda kept: give_up_logs(zookeeper, metadata, broker_id, kept.topic_id, kept.mark.topic)
    return Services(
        clocks=clocks,
        zookeeper=zookeeper,
        membership=membership,
        configs=configs,
        metadata=metadata,
        cluster=cluster,
        controller=controller,
        controller_gate=ControllerGate(lambda: membership.broker_epoch, membership.await_registration),
        security=security,
        audit_topic=audit_topic,
        quotas=quotas,
        logs=logs,
        group_commit=group_commit,
        maintenance=Maintenance(
            logs, group_commit, partial(log_dir_lost, cluster, partitions), on_space=partitions.space_returned
        ),
        throttles=throttles,
        partitions=partitions,
        log_dir_moves=LogDirMoves(partitions, config),
        fetch_sessions=FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            partitions.waits.fetches,
            # A small part of the time after which a follower that does not fetch leaves the ISR.
            idle_seconds_max=min(IDLE_SECONDS_MAX, config.replica_lag_time_max_ms / 10_000),
        ),
        delayed_topics=delayed_topics,
        groups=groups,
        group_offsets=group_offsets,
        consumer_groups=ConsumerGroups(groups, metadata),
        transactions=transactions,
        markers=markers,
        marker_writer=marker_writer,
        verifier=Verifier(
            transactions,
            broker_id,
            partial(_coordinator_of, metadata),
            lambda broker: link_to(broker, "verification"),
        ),
        requests=RequestMetrics(),
    )


def wire_network(services: Services) -> Network:
    """Make what serves clients. Called on the loop."""
    configs, quotas = services.configs, services.quotas
    dispatcher = Dispatcher(HANDLERS, services.for_handlers(), configs.broker, services.requests)
    config, security = configs.broker(), services.security
    return Network(
        config,
        dispatcher.dispatch,
        security.listeners,
        quotas.connection_rate,
        lambda session, api_key: request_bytes_max(config, security.authorizer, session, api_key),
    )


def wire_http_port(services: Services, network: Network, is_ready: Callable[[], bool]) -> HttpPort | None:
    """Make the HTTP port, if there is to be one."""
    address = services.configs.broker().ottla_http_listener
    if address is None:
        return None
    leader_lookups = LeaderLookups(
        partial(_broker_address, services.metadata, services.configs),
        f"broker-{services.membership.broker_id}-lag",
        services.security.connector,
    )
    observed = Observed(
        config=services.configs.broker,
        clock=services.clocks.wall_ms,
        cluster_id=services.cluster.id,
        zookeeper=services.zookeeper,
        membership=services.membership,
        metadata=services.metadata,
        controller=services.controller,
        partitions=services.partitions,
        groups=services.groups,
        transactions=services.transactions,
        markers=services.markers,
        verifier=services.verifier,
        leader_lookups=leader_lookups,
        quotas=services.quotas,
        audit_topic=services.audit_topic,
        fetch_sessions=services.fetch_sessions,
        group_commit=services.group_commit,
        maintenance=services.maintenance,
        network=network,
        requests=services.requests,
        is_ready=is_ready,
    )
    return HttpPort(address, observed)


def controller_link(
    membership: Membership, metadata: MetadataCache, configs: CurrentConfigs, security: Security, purpose: str
) -> BrokerLink:
    """Make a link to the controller, which connects with its first request."""
    client_id = f"broker-{membership.broker_id}-{purpose}"
    address = address_of_controller(lambda: metadata.snapshot, configs.broker)
    return BrokerLink(address, configs.broker, client_id, connector=security.connector)


def _stored_broker_id(config: BrokerConfig) -> int | None:
    for directory in config.log_dirs:
        stored = read_meta_properties(directory)
        if stored is not None:
            return stored.broker_id
    return None


def _partition_count(metadata: MetadataCache, topic: str) -> int | None:
    known = metadata.snapshot.topic(topic)
    return None if known is None else len(known.partitions)


def _transaction_limits(config: BrokerConfig) -> TransactionLimits:
    return TransactionLimits(
        timeout_max_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expire_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        load_buffer_bytes=config.transaction_state_log_load_buffer_size,
    )


def _coordinator_of(metadata: MetadataCache, transactional_id: str) -> int:
    """Return the broker that coordinates a transactional id; NO_LEADER while there is none."""
    count = _partition_count(metadata, TRANSACTION_STATE)
    if count is None:
        return NO_LEADER
    leader = _leader_of(metadata, TopicPartition(TRANSACTION_STATE, partition_for(transactional_id, count)))
    return NO_LEADER if leader is None else leader


def _leader_of(metadata: MetadataCache, partition: TopicPartition) -> int | None:
    """Return the leader of a partition, NO_LEADER while none is alive; None if the cluster has no such partition.

    A broker whose metadata lacks the topic of transactions has heard of no topic at all yet.
    """
    snapshot = metadata.snapshot
    known = snapshot.partition(*partition)
    if known is None:
        return None if snapshot.topic(TRANSACTION_STATE) is not None else NO_LEADER
    return known.leader if known.leader in snapshot.brokers else NO_LEADER


def _topic_name(metadata: MetadataCache, topic_id: str) -> str | None:
    try:
        found = metadata.snapshot.topic_by_id(uuid_from_text(topic_id))
    except ValueError:
        return None
    return None if found is None else found.name


def _leader_of_audit(metadata: MetadataCache) -> int | None:
    """Return the leader of the audit stream; None while there is no topic or no leader."""
    known = metadata.snapshot.partition(AUDIT_TOPIC, 0)
    return known.leader if known is not None and known.leader in metadata.snapshot.brokers else None


def _create_audit_topic(cluster: ClusterRegistry, metadata: MetadataCache) -> None:
    """Create the topic of the audit stream if it is missing; it has a leader a moment later."""
    if metadata.snapshot.topic(AUDIT_TOPIC) is None:
        try:
            cluster.create_topic(audit_topic_spec(known_brokers(metadata.snapshot)))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def _broker_address(metadata: MetadataCache, configs: CurrentConfigs, broker: int) -> tuple[str, int] | None:
    """Return where this broker reaches another one."""
    endpoint = metadata.snapshot.endpoint(broker, configs.broker().inter_broker_listener.name)
    return None if endpoint is None else (endpoint.host, endpoint.port)
