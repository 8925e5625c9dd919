"""A broker from start to stop: the parts in the order in which they need each other.

    start   ZooKeeper, who the broker is, dynamic options, logs, end of its earlier registration, requests,
            registration, controller
    stop    no more connections, what has arrived is answered, controller, logs closed and marked clean, session

Everything that waits for ZooKeeper or the disk happens on another thread than the loop's.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from ottla.broker.app.config_updates import ConfigUpdates
from ottla.broker.app.controlled_shutdown import shut_down_controlled
from ottla.broker.app.services import Services
from ottla.broker.app.wiring import controller_link, wire, wire_http_port, wire_network
from ottla.broker.cluster.configs import ConfigChanges
from ottla.broker.cluster.session import SessionListener, SessionRenewal
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig, Listener
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.recovery.startup import close_logs, open_logs

log = structlog.get_logger(__name__)

_ANSWERING_SECONDS_MAX: Final = 20.0
_KNOWN_SECONDS_MAX: Final = 5.0
_KNOWN_POLL_SECONDS: Final = 0.005
_ROLES_SECONDS_MAX: Final = 1.0


async def serve(config: BrokerConfig, zookeeper: ZooKeeper, stopping: asyncio.Event) -> None:
    """Run a broker, in a session that was started, until `stopping` is set. Raises what keeps it from starting."""
    loop = asyncio.get_running_loop()
    services = await loop.run_in_executor(None, wire, config, zookeeper, Clocks())
    await Server(services, stopping).run()


class Server:
    """The life of one broker. Made and used on the loop."""

    def __init__(self, services: Services, stopping: asyncio.Event) -> None:
        """The broker runs until `stopping` is set."""
        self.is_ready = False
        self._loop = asyncio.get_running_loop()
        self._stopping = stopping
        self._services = services
        self._network = wire_network(services)
        self._http_port = wire_http_port(services, self._network, lambda: self.is_ready)
        updates = ConfigUpdates(services, self._reconfigure_network)
        self._config_changes = ConfigChanges(services.zookeeper, updates, clock=services.clocks.wall_ms)
        # What the cluster takes this broker for, and then what it reads of the cluster.
        roles: list[SessionListener] = [
            services.membership,
            services.metadata,
            services.partitions,
            services.controller,
        ]
        readers: list[SessionListener] = [self._config_changes, services.security, services.quotas]
        self._session = SessionRenewal(services.zookeeper, [*roles, *readers], self._fail)

    async def run(self) -> None:
        """Start, serve until the broker is to stop, and stop."""
        broker_id = self._services.membership.broker_id
        await self._loop.run_in_executor(None, self._open)
        try:
            ports = self._network.bind(self._services.configs.broker().bound_listeners)
            listeners = self._advertised(ports)
            # While an earlier process of this broker is registered, nobody tells this one anything, and clients would
            # ask it in vain. Whoever learns of the registration can connect.
            await self._loop.run_in_executor(None, self._services.membership.await_vacancy, listeners)
            self._network.start()
            await self._loop.run_in_executor(None, self._join, listeners)
            if self._http_port is not None:
                self._http_port.start()
            await self._become_known()
            self._services.metadata.is_starting = False
            calm_garbage_collector()
            self.is_ready = True
            log.info(f"[KafkaServer id={broker_id}] started")
            await self._stopping.wait()
        finally:
            self.is_ready = False
            log.info(f"[KafkaServer id={broker_id}] shutting down")
            await self._leave()
            log.info(f"[KafkaServer id={broker_id}] shut down completed")

    # Starting

    def _open(self) -> None:
        """Read what must be known before any request is handled. The logs come last: they must be closed again."""
        services = self._services
        services.security.start()
        services.quotas.start()
        open_logs(services.logs, MetaProperties(services.membership.broker_id, services.cluster.id))

    def _join(self, listeners: Sequence[Listener]) -> None:
        services = self._services
        services.partitions.start()
        services.delayed_topics.start()
        services.groups.start()
        services.group_offsets.start()
        services.transactions.start()
        services.markers.start()
        services.verifier.start()
        services.group_commit.start()
        services.maintenance.start()
        services.log_dir_moves.start()
        services.membership.register(listeners)
        self._config_changes.start()
        self._session.start()
        services.controller.start()
        if services.audit_topic is not None:
            services.audit_topic.start()

    def _advertised(self, ports: Sequence[int]) -> list[Listener]:
        """Return the addresses to register, with the ports that the system chose where 0 was asked for."""
        config = self._services.configs.broker()
        chosen = {listener.name: port for listener, port in zip(config.bound_listeners, ports, strict=True)}
        return [replace(listener, port=listener.port or chosen[listener.name]) for listener in config.public_listeners]

    async def _become_known(self) -> None:
        """Wait until the controller has told us of ourselves: clients that ask before learn of no broker at all.

        A cluster whose controller has just died may take longer than clients want to wait for the ports.
        """
        membership, metadata = self._services.membership, self._services.metadata
        deadline = self._loop.time() + _KNOWN_SECONDS_MAX
        while membership.broker_id not in metadata.snapshot.brokers and not self._stopping.is_set():
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
        services = self._services
        return any(services.partitions.find(each.partition) is None for each in services.logs)

    # Running

    def _reconfigure_network(self, config: BrokerConfig) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._network.reconfigure, config)

    def _fail(self, error: Exception) -> None:
        """Have the broker stop; from any thread."""
        log.error("broker_must_stop", error=str(error))
        self._loop.call_soon_threadsafe(self._stopping.set)

    # Stopping; each step also works where its part was not started

    async def _leave(self) -> None:
        services = self._services
        if services.audit_topic is not None:
            # While this broker may still lead the topic.
            await self._loop.run_in_executor(None, services.audit_topic.close)
        await self._loop.run_in_executor(None, self._hand_over)
        await self._loop.run_in_executor(None, services.delayed_topics.stop)
        await self._loop.run_in_executor(None, services.groups.stop)
        await self._loop.run_in_executor(None, services.verifier.stop)
        await self._loop.run_in_executor(None, services.transactions.stop)
        await self._loop.run_in_executor(None, services.markers.stop)
        await self._loop.run_in_executor(None, services.partitions.stop)
        await self._network.stop(_ANSWERING_SECONDS_MAX)
        await self._loop.run_in_executor(None, self._close)

    def _hand_over(self) -> None:
        """Have others lead what this broker leads, while it still serves; they need not notice that it is gone."""
        services = self._services
        config, epoch = services.configs.broker(), services.membership.broker_epoch
        has_others = len(services.metadata.snapshot.brokers) > 1
        if config.controlled_shutdown_enable and epoch >= 0 and has_others:
            link = controller_link(
                services.membership, services.metadata, services.configs, services.security, "shutdown"
            )
            try:
                shut_down_controlled(
                    link,
                    services.membership.broker_id,
                    epoch,
                    config.controlled_shutdown_max_retries,
                    config.controlled_shutdown_retry_backoff_ms,
                )
            finally:
                link.close()

    def _close(self) -> None:
        services = self._services
        if self._http_port is not None:
            self._http_port.close()
        self._session.close()
        self._config_changes.close()
        services.security.close()
        services.controller.close()
        services.log_dir_moves.stop()
        services.maintenance.stop()
        services.group_commit.stop()
        close_logs(services.logs, services.membership.broker_epoch)
        services.zookeeper.close()


def calm_garbage_collector() -> None:
    """Look for cycles seldom, and never again among what was made at the start: requests leave none behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
