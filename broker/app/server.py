"""A broker from start to stop: the rooms in the order in which they need each other.

    start   ZooKeeper, cluster id, broker id, dynamic options, logs, ports, registration, controller, requests
    stop    no more connections, what has arrived is answered, controller, logs closed and marked clean, session

Everything that waits for ZooKeeper or the disk happens on another thread than the loop's.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog

from ottla.broker.app.controlled_shutdown import shut_down_controlled
from ottla.broker.app.services import Services
from ottla.broker.app.topic_configs import TopicConfigs
from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.cluster.configs import ConfigChanges, Configs
from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.broker.cluster.controller_link import ControllerLink
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.session import SessionListener, SessionRenewal
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.purgatory import Purgatory
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig, Listener
from ottla.broker.controller.controller import Controller
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.end_offsets import LeaderEnds
from ottla.broker.groups.offsets.group_offsets import GroupOffsets
from ottla.broker.groups.placement import CONSUMER_OFFSETS
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.network.network import Network
from ottla.broker.observability.http_port import HttpPort, Observed
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.replication.follower.fetchers import Fetchers
from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.replication.leader.isr_changes import IsrChanges
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.partition import PartitionContext
from ottla.broker.replication.partitions import Partitions
from ottla.broker.replication.throttle import Throttles
from ottla.broker.requests.dispatch import Dispatcher
from ottla.broker.security.security import Security
from ottla.broker.storage.directory_files import MetaProperties, read_meta_properties
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.maintenance.maintenance import Maintenance
from ottla.broker.storage.recovery.startup import close_logs, open_logs
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

_ANSWERING_SECONDS_MAX = 20.0
_KNOWN_SECONDS_MAX = 5.0
_KNOWN_POLL_SECONDS = 0.005
_ROLES_SECONDS_MAX = 1.0


def now_ms() -> int:
    """The time that records are stamped with: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _calm_garbage_collector() -> None:
    """Look for cycles seldom, and never again among what was made at the start: requests leave none behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


class Server:
    """One broker process."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.is_ready = False

    # Life

    async def run(self) -> None:
        """Serve until `stop` is called."""
        await self._loop.run_in_executor(None, self._enter_cluster)
        self._make_replicas()
        self._make_services()
        dispatcher = Dispatcher(HANDLERS, self.services.for_handlers(), lambda: self.config, self.metrics)
        self.network = Network(self.config, dispatcher, self.security.listeners, self.quotas.connection_rate)
        try:
            ports = self.network.bind(self.config.bound_listeners)
            # Ports first, so that whoever learns of this broker can connect; requests are handled from here on.
            self.network.start()
            await self._loop.run_in_executor(None, self._join, ports)
            self._start_http()
            await self._become_known()
            _calm_garbage_collector()
            self.is_ready = True
            log.info(f"[KafkaServer id={self.membership.broker_id}] started")
            await self._stopping.wait()
        finally:
            self.is_ready = False
            await self._leave()

    def stop(self) -> None:
        """Have the broker stop; from the loop's thread."""
        self._stopping.set()

    def _fail(self, error: Exception) -> None:
        log.error("broker_must_stop", error=str(error))
        self._loop.call_soon_threadsafe(self.stop)

    # Starting

    def _enter_cluster(self) -> None:
        config = self.config
        self.zookeeper = ZooKeeper(
            config.zookeeper,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            in_flight_max=config.zookeeper_max_in_flight_requests,
        )
        self.zookeeper.start()
        self.membership = Membership(self.zookeeper, config, clock=now_ms)
        self.membership.prepare()
        self.cluster_id = self.membership.cluster_id()
        self.membership.choose_broker_id(self._stored_broker_id())
        self.metadata = MetadataCache(self.membership.broker_id)
        self.cluster = ClusterRegistry(
            self.zookeeper,
            self.membership,
            self.metadata,
            lambda: self.config,
            cluster_id=self.cluster_id,
            # Not before its own metadata knows that: until then it would see no live broker to put a replica on.
            is_controller=lambda: (
                self.controller.is_active and self.membership.may_lead_alone and bool(self.metadata.snapshot.brokers)
            ),
        )
        self.config = config = config.with_dynamic(*self.cluster.dynamic_config())
        self.security = Security(self.zookeeper, lambda: self.config)
        self.security.start()
        self.quotas = ClientQuotas(Configs(self.zookeeper), lambda: self.config)
        self.quotas.start()
        self.topic_configs = TopicConfigs(config, self.cluster.topic_overrides())
        owner = MetaProperties(self.membership.broker_id, self.cluster_id)
        self.logs = open_logs(config, owner, self.topic_configs.of, now_ms)

    def _stored_broker_id(self) -> int | None:
        for directory in self.config.log_dirs:
            stored = read_meta_properties(directory)
            if stored is not None:
                return stored.broker_id
        return None

    def _make_replicas(self) -> None:
        self.group_commit = GroupCommit(self.logs.dirs)
        context = PartitionContext(
            self.membership.broker_id,
            now_ms,
            lag_max_ms=lambda: self.config.replica_lag_time_max_ms,
            is_alive=lambda broker: broker in self.metadata.snapshot.brokers,
            broker_epoch=lambda: self.membership.broker_epoch,
            may_lead_alone=lambda: self.membership.may_lead_alone,
            group_commit=self.group_commit,
        )
        self.partitions = Partitions(context, self.logs, self._read_topic_options)
        self.partitions.on_damaged = self._on_damaged
        self.throttles = self.partitions.throttles = Throttles(self.membership.broker_id, self.config)
        for topic in self.topic_configs:
            self.throttles.set_topic(topic, self.topic_configs.of(topic))
        self.partitions.fetchers = Fetchers(
            lambda: self.config,
            self.membership.broker_id,
            lambda: self.membership.broker_epoch,
            self._broker_address,
            self.logs,
            self.group_commit,
            self.throttles.follower,
            self.security.connector,
        )
        self.partitions.isr_changes = IsrChanges(
            self._link("isr"), self.membership.broker_id, lambda: self.membership.broker_epoch
        )
        self.partitions.isr_changes.on_unregistered = self._on_unregistered
        self.log_dir_moves = LogDirMoves(self.partitions, self.config)

    def _make_services(self) -> None:
        self.metrics = RequestMetrics()
        self.maintenance = Maintenance(self.logs, self.group_commit, self._on_log_dir_offline)
        self.controller = Controller(
            self.zookeeper,
            self.membership.broker_id,
            lambda: self.config,
            clock=now_ms,
            connector=self.security.control_plane_connector,
        )
        self.groups = GroupCoordinator(lambda: self.config, self.partitions, self._offsets_partitions, clock=now_ms)
        self.group_offsets = GroupOffsets(self.groups, lambda: self.membership.may_lead_alone)
        self.partitions.on_role_changed = self.groups.role_changed
        self.services = Services(
            config=lambda: self.config,
            partitions=self.partitions,
            group_commit=self.group_commit,
            log_dir_moves=self.log_dir_moves,
            metadata=self.metadata,
            cluster=self.cluster,
            controller=self.controller,
            fetch_sessions=FetchSessions(self.config.max_incremental_fetch_session_cache_slots),
            controller_gate=ControllerGate(lambda: self.membership.broker_epoch, self.membership.await_registration),
            delayed_topics=Purgatory("topic"),
            groups=self.groups,
            group_offsets=self.group_offsets,
            consumer_groups=ConsumerGroups(self.groups, self.metadata),
            security=self.security,
            quotas=self.quotas,
            clock=now_ms,
        )
        self.groups.on_loaded = self._on_groups_loaded

    def _on_groups_loaded(self) -> None:
        self.services.delayed_topics.check(CONSUMER_OFFSETS)

    def _offsets_partitions(self) -> int | None:
        topic = self.metadata.snapshot.topic(CONSUMER_OFFSETS)
        return None if topic is None else len(topic.partitions)

    def _link(self, purpose: str) -> ControllerLink:
        client_id = f"broker-{self.membership.broker_id}-{purpose}"
        return ControllerLink(
            lambda: self.metadata.snapshot, lambda: self.config, client_id, connector=self.security.connector
        )

    def _broker_address(self, broker: int) -> tuple[str, int] | None:
        """Where another broker is reached by this one."""
        endpoint = self.metadata.snapshot.endpoint(broker, self.config.inter_broker_listener.name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _join(self, ports: Sequence[int]) -> None:
        self.partitions.start()
        self.services.delayed_topics.start()
        self.groups.start()
        self.group_offsets.start()
        self.group_commit.start()
        self.maintenance.start()
        self.log_dir_moves.start()
        self.membership.register(self._advertised(ports))
        self.config_changes = ConfigChanges(self.zookeeper, self._on_config_change, clock=now_ms)
        self.config_changes.start()
        # What the cluster takes this broker for, and then what it reads of the cluster.
        roles: list[SessionListener] = [self.membership, self.metadata, self.partitions, self.controller]
        readers: list[SessionListener] = [self.config_changes, self.security, self.quotas]
        self.session = SessionRenewal(self.zookeeper, [*roles, *readers], self._fail)
        self.session.start()
        self.controller.start()

    async def _become_known(self) -> None:
        """Wait until the controller has told us of ourselves: clients that ask before learn of no broker at all.

        A cluster whose controller has just died may take longer than clients want to wait for the ports.
        """
        deadline = self._loop.time() + _KNOWN_SECONDS_MAX
        while self.membership.broker_id not in self.metadata.snapshot.brokers and not self._stopping.is_set():
            if self._loop.time() > deadline:
                log.warning("no_word_from_controller", waited_s=_KNOWN_SECONDS_MAX)
                return
            await asyncio.sleep(_KNOWN_POLL_SECONDS)
        # The roles of our partitions come a moment later; a log whose topic is gone never gets one.
        deadline = self._loop.time() + _ROLES_SECONDS_MAX
        while self._has_logs_without_role() and not self._stopping.is_set():
            if self._loop.time() > deadline:
                return
            await asyncio.sleep(_KNOWN_POLL_SECONDS)

    def _has_logs_without_role(self) -> bool:
        return any(self.partitions.find(each.partition) is None for each in self.logs)

    def _start_http(self) -> None:
        address = self.config.ottla_http_listener
        if address is None:
            return
        client_id = f"broker-{self.membership.broker_id}-lag"
        observed = Observed(
            config=lambda: self.config,
            cluster_id=self.cluster_id,
            zookeeper=self.zookeeper,
            membership=self.membership,
            metadata=self.metadata,
            controller=self.controller,
            partitions=self.partitions,
            groups=self.groups,
            leader_ends=LeaderEnds(self._broker_address, client_id, self.security.connector),
            quotas=self.quotas,
            fetch_sessions=self.services.fetch_sessions,
            group_commit=self.group_commit,
            cleaners=self.maintenance.cleaners,
            network=self.network,
            requests=self.metrics,
            is_ready=lambda: self.is_ready,
        )
        self.http_port = HttpPort(address, observed)
        self.http_port.start()

    def _advertised(self, ports: Sequence[int]) -> list[Listener]:
        """The addresses to tell, with the ports that the system chose where 0 was asked for."""
        chosen = {listener.name: port for listener, port in zip(self.config.bound_listeners, ports, strict=True)}
        return [
            replace(listener, port=listener.port or chosen[listener.name]) for listener in self.config.public_listeners
        ]

    # Changing

    def _on_log_dir_offline(self, log_dir: LogDir, partitions: Sequence[TopicPartition]) -> None:
        log.error("log_directory_offline", directory=str(log_dir.path), partitions=len(partitions))
        self.partitions.failed(partitions)
        self._report_lost_replicas()

    def _on_unregistered(self) -> None:
        """Give up leading where the controller does not know us and ZooKeeper, which might, is out of reach.

        Clients that still ask us are sent on to others. With a session that is sure, the controller is late.
        """
        if not self.membership.may_lead_alone:
            self.metadata.session_expired()
            self.partitions.session_expired()

    def _on_damaged(self, partition: TopicPartition) -> None:
        log.error("replica_damaged", partition=str(partition))
        self._report_lost_replicas()

    def _report_lost_replicas(self) -> None:
        """Have the controller ask which replicas we still have; it elects other leaders for those that we lack."""
        try:
            self.cluster.report_log_dir_failure()
        except KafkaError as error:
            log.error("lost_replicas_not_reported", error=str(error))

    def _read_topic_options(self, topic: str) -> None:
        self.topic_configs.set_overrides(topic, self.cluster.overrides_of(topic))
        self.throttles.set_topic(topic, self.topic_configs.of(topic))

    def _on_config_change(self, entity_type: str, name: str) -> None:
        if entity_type == "topics":
            self._read_topic_options(name)
            self.logs.refresh_configs(name)
            self.controller.options_changed(name)
            log.info("topic_options_changed", topic=name)
        elif entity_type == "brokers":
            self.config = self.config.with_dynamic(*self.cluster.dynamic_config())
            self._loop.call_soon_threadsafe(self.network.reconfigure, self.config)
            self.topic_configs.set_broker(self.config)
            self.throttles.configure(self.config)
            self.log_dir_moves.configure(self.config)
            self.logs.refresh_configs()
            self.controller.options_changed()
            self.security.configure()
            log.info("broker_options_changed", entity=name)
        else:
            self.security.entity_changed(entity_type, name)
            self.quotas.entity_changed(entity_type, name)

    # Stopping

    async def _leave(self) -> None:
        log.info(f"[KafkaServer id={self.membership.broker_id}] shutting down")
        await self._loop.run_in_executor(None, self._hand_over)
        await self._loop.run_in_executor(None, self.services.delayed_topics.stop)
        await self._loop.run_in_executor(None, self.groups.stop)
        await self._loop.run_in_executor(None, self.partitions.stop)
        await self.network.stop(_ANSWERING_SECONDS_MAX)
        await self._loop.run_in_executor(None, self._close)
        log.info(f"[KafkaServer id={self.membership.broker_id}] shut down completed")

    def _hand_over(self) -> None:
        """Have others lead what this broker leads, while it still serves; they need not notice that it is gone."""
        config, epoch = self.config, self.membership.broker_epoch
        has_others = len(self.metadata.snapshot.brokers) > 1
        if config.controlled_shutdown_enable and epoch >= 0 and has_others:
            link = self._link("shutdown")
            try:
                shut_down_controlled(
                    link,
                    self.membership.broker_id,
                    epoch,
                    config.controlled_shutdown_max_retries,
                    config.controlled_shutdown_retry_backoff_ms,
                )
            finally:
                link.close()

    def _close(self) -> None:
        for room in ("http_port", "session", "config_changes", "security", "controller"):
            started: Any = getattr(self, room, None)
            if started is not None:
                started.close()
        self.log_dir_moves.stop()
        self.maintenance.stop()
        self.group_commit.stop()
        close_logs(self.logs, self.membership.broker_epoch)
        self.zookeeper.close()
