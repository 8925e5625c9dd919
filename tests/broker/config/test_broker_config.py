"""`BrokerConfig` puts layers together, and explains its values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config import (
    Address,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    Layer,
    Listener,
    Password,
    SecurityProtocol,
    Setting,
    Synonym,
    ZooKeeperAddresses,
)


def test_options_are_typed_attributes() -> None:
    """Values are read into Python's types."""
    config = BrokerConfig.of({"log.segment.bytes": " 1024 ", "log.cleanup.policy": "compact, delete"})

    assert config.log_segment_bytes == 1024
    assert config.log_cleanup_policy == ("compact", "delete")
    assert config.log_cleaner_min_cleanable_ratio == 0.5
    assert config.broker_rack is None
    assert config.auto_create_topics_enable is True


def test_a_config_cannot_be_changed() -> None:
    """A changed config is another object."""
    config: Any = BrokerConfig()

    with pytest.raises(FrozenInstanceError):
        config.log_segment_bytes = 5
    with pytest.raises(FrozenInstanceError):
        del config.log_segment_bytes
    assert config.log_segment_bytes == 1024**3


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": "5"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "5"}, -1),
    ],
)
def test_the_finer_unit_of_retention_counts(settings: dict[str, str], retention_ms: int) -> None:
    """Milliseconds come before minutes before hours, and -1 is unlimited in each."""
    assert BrokerConfig.of(settings).log_retention_ms == retention_ms


def test_an_option_that_is_not_set_takes_the_value_of_its_synonym() -> None:
    """Directories, flush, roll, ids, advertised listeners and ZooKeeper's connection timeout have one."""
    config = BrokerConfig.of(
        {
            "log.dir": "/a,/b",
            "log.flush.scheduler.interval.ms": "5",
            "log.roll.hours": "2",
            "log.roll.jitter.hours": "1",
            "node.id": "7",
            "listeners": "PLAINTEXT://h:1",
            "zookeeper.session.timeout.ms": "9",
        }
    )

    assert config.log_dirs == (Path("/a"), Path("/b"))
    assert config.log_flush_interval_ms == 5
    assert config.log_roll_ms == 7_200_000
    assert config.log_roll_jitter_ms == 3_600_000
    assert config.broker_id == 7
    assert config.advertised_listeners == config.listeners
    assert config.zookeeper_connection_timeout_ms == 9
    assert BrokerConfig.of({"log.dir": "/a", "log.dirs": "/c"}).log_dirs == (Path("/c"),)
    assert BrokerConfig.of({"node.id": "7", "broker.id": "8"}).broker_id == 8


def test_a_value_is_explained_by_its_source_and_synonyms() -> None:
    """The chain goes through the layers, and in each through the synonyms."""
    config = BrokerConfig.of({"log.retention.hours": "24", "log.retention.minutes": "10"})
    dynamic = config.with_dynamic({"log.retention.ms": "5"}, {"log.retention.ms": "6"})

    resolved = dynamic.resolve("log.retention.ms")

    assert (resolved.value, resolved.source) == ("5", ConfigSource.DYNAMIC_BROKER)
    assert resolved.synonyms == (
        Synonym("log.retention.ms", "5", ConfigSource.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "6", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.minutes", "10", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "24", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )
    assert config.resolve("log.retention.ms").value == "600000"
    assert config.log_retention_ms == 600_000


def test_an_option_without_a_value_is_null_by_default() -> None:
    """It has no synonyms either."""
    resolved = BrokerConfig().resolve("broker.rack")

    assert (resolved.value, resolved.source, resolved.synonyms) == (None, ConfigSource.DEFAULT, ())


def test_a_secret_is_null_to_those_who_ask() -> None:
    """The source is told, the value is not."""
    config = BrokerConfig.of({"ssl.key.password": "hunter2"})
    resolved = config.resolve("ssl.key.password")

    assert config.ssl_key_password == Password("hunter2")
    assert resolved.value is None
    assert resolved.synonyms == (Synonym("ssl.key.password", None, ConfigSource.STATIC_BROKER),)


def test_an_unknown_option_cannot_be_resolved() -> None:
    """Asking for it is a ConfigError."""
    with pytest.raises(ConfigError, match=r"no\.such\.option is not a broker option"):
        BrokerConfig().resolve("no.such.option")


def test_layers_count_in_the_order_of_their_sources() -> None:
    """Dynamic settings of the broker come before those of the cluster, and those before static ones."""
    layers = [
        Layer(source, {"num.io.threads": Setting(str(int(source)), source.name)})
        for source in (ConfigSource.STATIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER, ConfigSource.DYNAMIC_BROKER)
    ]

    assert BrokerConfig(layers).num_io_threads == 2
    assert BrokerConfig(layers[:2]).num_io_threads == 3
    assert BrokerConfig(layers[:1]).num_io_threads == 4
    assert BrokerConfig(layers).origin(BrokerConfig.num_io_threads) == "DYNAMIC_BROKER"


def test_dynamic_settings_replace_those_before_and_keep_the_static_ones() -> None:
    """A new config is made, the old one stays."""
    static = BrokerConfig.of({"num.io.threads": "4", "log.segment.bytes": "1000"})
    first = static.with_dynamic({"num.io.threads": "5"}, {"log.segment.bytes": "2000"})
    second = first.with_dynamic({}, {"log.segment.bytes": "3000"})

    assert (static.num_io_threads, static.log_segment_bytes) == (4, 1000)
    assert (first.num_io_threads, first.log_segment_bytes) == (5, 2000)
    assert (second.num_io_threads, second.log_segment_bytes) == (4, 3000)


def test_dynamic_settings_are_refused_where_they_cannot_take_effect() -> None:
    """Read-only options need a restart, and options of one broker cannot be set for all."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig().with_dynamic(
            {"log.dirs": "/x", "num.io.threads": "0", "listener.name.plaintext.max.connections": "3"},
            {"ssl.client.auth": "none", "listener.name.plaintext.max.connections": "5", "max.connections": "6"},
        )

    assert [problem.message for problem in caught.value.problems] == [
        "log.dirs (dynamic, this broker) can only be changed by a restart",
        'num.io.threads = "0" (dynamic, this broker): expected type int, at least 1',
        "ssl.client.auth (dynamic, all brokers) cannot be set for all brokers",
        "listener.name.plaintext.max.connections (dynamic, all brokers) cannot be set for all brokers",
    ]


def test_listeners_have_their_protocols() -> None:
    """Bound, public and inter-broker listeners come with the protocol of their name."""
    config = BrokerConfig.of(
        {
            "listeners": "INTERNAL://:19092,EXTERNAL://[::]:9092",
            "advertised.listeners": "INTERNAL://b1:19092,EXTERNAL://example.com:9092",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SSL",
            "inter.broker.listener.name": "internal",
            "listener.name.external.ssl.keystore.location": "/keys/external.p12",
        }
    )
    plaintext, tls = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL

    assert config.bound_listeners == (
        Listener("INTERNAL", plaintext, "", 19092),
        Listener("EXTERNAL", tls, "::", 9092),
    )
    assert config.public_listeners == (
        Listener("INTERNAL", plaintext, "b1", 19092),
        Listener("EXTERNAL", tls, "example.com", 9092),
    )
    assert config.inter_broker_listener == Listener("INTERNAL", plaintext, "b1", 19092)


def test_an_option_of_one_listener_comes_before_the_general_one() -> None:
    """With a mechanism, its own setting comes first, then the listener's, then the general one."""
    jaas = BrokerConfig.sasl_jaas_config
    config = BrokerConfig.of(
        {
            "sasl.jaas.config": "general",
            "listener.name.plaintext.sasl.jaas.config": "listener",
            "listener.name.plaintext.scram-sha-512.sasl.jaas.config": "mechanism",
            "max.connections": "10",
            "listener.name.plaintext.max.connections": "5",
        }
    )

    assert config.for_listener("PLAINTEXT", jaas, "SCRAM-SHA-512") == Password("mechanism")
    assert config.for_listener("PLAINTEXT", jaas, "PLAIN") == Password("listener")
    assert config.for_listener("plaintext", jaas) == Password("listener")
    assert config.for_listener("OTHER", jaas, "PLAIN") == Password("general")
    assert config.for_listener("PLAINTEXT", BrokerConfig.max_connections) == 5
    assert config.warnings == ()
    assert config.resolve("listener.name.plaintext.max.connections").synonyms == (
        Synonym("listener.name.plaintext.max.connections", "5", ConfigSource.STATIC_BROKER),
        Synonym("max.connections", "10", ConfigSource.STATIC_BROKER),
        Synonym("max.connections", "2147483647", ConfigSource.DEFAULT),
    )


def test_zookeeper_is_needed_only_by_those_who_ask_for_it() -> None:
    """A config without it exists, and says what is missing."""
    servers = (Address("zk1", 2181), Address("zk2", 2182))

    assert BrokerConfig.of({"zookeeper.connect": "zk1,zk2:2182/k"}).zookeeper == ZooKeeperAddresses(servers, "/k")
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is not set"):
        _ = BrokerConfig().zookeeper


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("log.segment.byte", "; did you mean log.segment.bytes?"),
        ("zookeper.connect", "; did you mean zookeeper.connect?"),
        ("retention.ms", "; did you mean log.retention.ms?"),
        ("Log.Dirs", "; did you mean log.dirs?"),
        ("listener.name.PLAINTEXT.ssl.client.auth", "; did you mean listener.name.plaintext.ssl.client.auth?"),
        ("listener.name.plaintext.log.dirs", ""),
        ("something.quite.different", ""),
    ],
)
def test_an_unknown_name_is_warned_of_with_the_nearest_known_one(name: str, suggestion: str) -> None:
    """It has no effect, and is no error."""
    config = BrokerConfig.of({name: "1"}, "server.properties line 3")

    assert config.warnings == (
        f"{name} (server.properties line 3) is not a known option and has no effect{suggestion}",
    )


def test_an_option_of_a_listener_that_does_not_exist_is_warned_of() -> None:
    """A misspelt listener must not silently lose its security."""
    config = BrokerConfig.of({"listener.name.extrenal.ssl.client.auth": "required"}, "here")

    assert config.warnings == (
        "listener.name.extrenal.ssl.client.auth (here) has no effect, because listeners has no EXTRENAL",
    )


def test_options_of_kafka_without_effect_are_listed_once() -> None:
    """They are neither a warning nor an error, for one listener neither; rows that say so are among them."""
    config = BrokerConfig.of(
        {
            "background.threads": "4",
            "num.io.threads": "4",
            "process.roles": "broker",
            "remote.log.reader.threads": "1",
            "zookeeper.clientCnxnSocket": "x",
            "listener.name.plaintext.principal.builder.class": "x",
        }
    )

    assert config.warnings == ()
    assert config.without_effect == (
        "background.threads",
        "listener.name.plaintext.principal.builder.class",
        "process.roles",
        "remote.log.reader.threads",
        "zookeeper.clientCnxnSocket",
    )
