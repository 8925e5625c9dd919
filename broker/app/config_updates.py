"""Options that change while the broker runs: each part of the broker takes the new ones."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ottla.broker.app.current_configs import CurrentConfigs
from ottla.broker.app.services import Services
from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.config import BrokerConfig
from ottla.broker.replication.throttle import Throttles
from ottla.broker.storage.logs import watermark_of

log = structlog.get_logger(__name__)


def read_topic_options(cluster: ClusterRegistry, configs: CurrentConfigs, throttles: Throttles, topic: str) -> None:
    """Read what is set for a topic. Raises KafkaError where that cannot be read."""
    configs.set_overrides(topic, cluster.overrides_of(topic))
    throttles.set_topic(topic, configs.of(topic))


class ConfigUpdates:
    """Called with each entity whose options were changed in ZooKeeper."""

    def __init__(self, services: Services, reconfigure_network: Callable[[BrokerConfig], None]) -> None:
        self._services = services
        self._reconfigure_network = reconfigure_network

    def __call__(self, entity_type: str, name: str) -> None:
        """Read the options of an entity, and have them take effect."""
        services = self._services
        if entity_type == "topics":
            read_topic_options(services.cluster, services.configs, services.throttles, name)
            services.logs.refresh_configs(name)
            services.controller.options_changed(name)
            log.info("topic_options_changed", topic=name)
        elif entity_type == "brokers":
            self._take_broker_options()
            log.info("broker_options_changed", entity=name)
        else:
            services.security.entity_changed(entity_type, name)
            services.quotas.entity_changed(entity_type, name)

    def _take_broker_options(self) -> None:
        services = self._services
        config = services.configs.broker().with_dynamic(*services.cluster.dynamic_config())
        services.configs.set_broker(config)
        self._reconfigure_network(config)
        services.throttles.configure(config)
        services.log_dir_moves.configure(config)
        services.logs.refresh_configs()
        services.logs.keep_free(watermark_of(config))
        services.controller.options_changed()
        services.security.configure()
