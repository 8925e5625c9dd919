"""The configuration of brokers and topics, under Kafka's names.

All options are rows of one table, `rows/`; everything else here reads it. A broker starts with `load_broker_config`,
and tests use `BrokerConfig.of({...})`. The options of a topic are a `TopicConfig(broker_config, overrides)`.
"""

from ottla.broker.config.addresses import Address, Endpoint, Listener, SecurityProtocol, ZooKeeperAddresses
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.kinds import ConfigType, Password
from ottla.broker.config.layers import ConfigError, ConfigSource, Layer, Problem, Resolved, Setting, Synonym
from ottla.broker.config.loading import effective_config, load_broker_config
from ottla.broker.config.option import Dynamic, Option
from ottla.broker.config.rows.broker import BROKER_OPTIONS
from ottla.broker.config.rows.topics import TOPIC_OPTIONS
from ottla.broker.config.topic_config import TopicConfig

__all__ = [
    "BROKER_OPTIONS",
    "TOPIC_OPTIONS",
    "Address",
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "ConfigType",
    "Dynamic",
    "Endpoint",
    "Layer",
    "Listener",
    "Option",
    "Password",
    "Problem",
    "Resolved",
    "SecurityProtocol",
    "Setting",
    "Synonym",
    "TopicConfig",
    "ZooKeeperAddresses",
    "effective_config",
    "load_broker_config",
]
