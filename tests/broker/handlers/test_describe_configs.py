"""DescribeConfigs, version by version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version, topic

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS, ConfigSource, ConfigType
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

VERSIONS = every_version(Api.DESCRIBE_CONFIGS)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16


def resource(kind: int, name: str, *keys: str) -> DescribeConfigsResource:
    """A resource with all its options, or some."""
    return DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )


def ask(cluster: SmallCluster, version: int, *resources: DescribeConfigsResource, **options: bool) -> Any:
    """Ask for options."""
    return cluster.ask(Api.DESCRIBE_CONFIGS, version, DescribeConfigsRequest(resources=list(resources), **options))


def entries(cluster: SmallCluster, version: int, wanted: DescribeConfigsResource, **options: bool) -> dict[str, Any]:
    """The options of one resource by name."""
    (result,) = ask(cluster, version, wanted, **options).results
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.resource_type, result.resource_name) == (wanted.resource_type, wanted.resource_name)
    return {each.name: each for each in result.configs}


@pytest.mark.parametrize("version", VERSIONS)
def test_all_options_of_a_topic_are_described(version: int) -> None:
    """With the source of each value, or whether it is the default."""
    cluster = SmallCluster(log_retention_bytes="4096")
    cluster.tell(topic("first"))
    cluster.zookeeper.overrides["first"] = {"segment.ms": "60000"}

    found = entries(cluster, version, resource(TOPIC, "first"))

    assert list(found) == list(TOPIC_OPTIONS)
    values = {name: found[name].value for name in ("segment.ms", "retention.bytes", "cleanup.policy")}
    assert values == {"segment.ms": "60000", "retention.bytes": "4096", "cleanup.policy": "delete"}
    if version == 0:
        assert [found[name].is_default for name in values] == [False, False, True]
    else:
        assert [found[name].config_source for name in values] == [
            ConfigSource.TOPIC,
            ConfigSource.STATIC_BROKER,
            ConfigSource.DEFAULT,
        ]
    assert not any(each.read_only or each.is_sensitive for each in found.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_all_options_of_this_broker_are_described(version: int) -> None:
    """What changes at run time, what does not, and no secrets."""
    cluster = SmallCluster(ssl_key_password="hunter2", num_io_threads="4")
    cluster.zookeeper.brokers["1"] = {"log.retention.ms": "1000"}

    found = entries(cluster, version, resource(BROKER, "1"))

    assert list(found) == list(BROKER_OPTIONS)
    assert (found["num.io.threads"].value, found["num.io.threads"].read_only) == ("4", False)
    assert (found["zookeeper.connect"].value, found["zookeeper.connect"].read_only) == ("nowhere:2181", True)
    assert found["log.retention.ms"].value == "1000"
    secret = found["ssl.key.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert found["broker.rack"].value is None
    if version >= 1:
        assert found["log.retention.ms"].config_source == ConfigSource.DYNAMIC_BROKER


@pytest.mark.parametrize("name", ["1", ""], ids=["this broker", "all brokers"])
def test_without_zookeeper_brokers_describe_what_is_in_effect(name: str) -> None:
    """ZooKeeper is not asked: nobody would know where it is when it does not answer."""
    cluster = SmallCluster()
    configs = cluster.services.configs
    configs.set_broker(configs.broker().with_dynamic({}, {"log.retention.ms": "1000"}))
    cluster.zookeeper.brokers[""] = {"log.retention.ms": "2000"}
    wanted = resource(BROKER, name, "log.retention.ms")
    assert entries(cluster, 4, wanted)["log.retention.ms"].value == "2000"

    cluster.zookeeper.is_cut_off = True

    assert entries(cluster, 4, wanted)["log.retention.ms"].value == "1000"


@pytest.mark.parametrize("version", VERSIONS)
def test_some_options_can_be_asked_for(version: int) -> None:
    """A name that no option has is left out."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))

    assert list(entries(cluster, version, resource(TOPIC, "first", "retention.ms", "no.such"))) == ["retention.ms"]
    assert list(entries(cluster, version, resource(BROKER, "1", "node.id", "broker.id"))) == ["node.id", "broker.id"]


@pytest.mark.parametrize("version", range(1, 5))
def test_synonyms_come_in_order_of_precedence_when_asked_for(version: int) -> None:
    """Topic, this broker, all brokers, file, default."""
    cluster = SmallCluster(message_max_bytes="1004")
    cluster.tell(topic("first"))
    cluster.zookeeper.overrides["first"] = {"max.message.bytes": "1001"}
    cluster.zookeeper.brokers = {"1": {"message.max.bytes": "1002"}, "": {"message.max.bytes": "1003"}}
    configs = cluster.services.configs
    configs.set_broker(configs.broker().with_dynamic(*cluster.zookeeper.dynamic_config()))
    wanted = resource(TOPIC, "first", "max.message.bytes")

    found = entries(cluster, version, wanted, include_synonyms=True)["max.message.bytes"]

    assert [(each.name, each.value, each.source) for each in found.synonyms] == [
        ("max.message.bytes", "1001", ConfigSource.TOPIC),
        ("message.max.bytes", "1002", ConfigSource.DYNAMIC_BROKER),
        ("message.max.bytes", "1003", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("message.max.bytes", "1004", ConfigSource.STATIC_BROKER),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    ]
    assert entries(cluster, version, wanted)["max.message.bytes"].synonyms == []


@pytest.mark.parametrize("version", [3, 4])
def test_types_and_documentation_are_told_from_version_3(version: int) -> None:
    """Documentation only to those who ask."""
    cluster = SmallCluster()
    names = ("num.io.threads", "auto.create.topics.enable", "ssl.key.password", "log.cleanup.policy")
    wanted = resource(BROKER, "1", *names)

    found = entries(cluster, version, wanted, include_documentation=True)

    assert {name: found[name].config_type for name in names} == {
        "num.io.threads": ConfigType.INT,
        "auto.create.topics.enable": ConfigType.BOOLEAN,
        "ssl.key.password": ConfigType.PASSWORD,
        "log.cleanup.policy": ConfigType.LIST,
    }
    assert found["num.io.threads"].documentation == BROKER_OPTIONS["num.io.threads"].documentation
    assert {each.documentation for each in entries(cluster, version, wanted).values()} == {None}


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_name_what_is_set_for_all_brokers_is_described(version: int) -> None:
    """And nothing else, whatever this broker has of its own."""
    cluster = SmallCluster(num_io_threads="4")
    cluster.zookeeper.brokers = {"1": {"num.io.threads": "6"}, "": {"num.io.threads": "5"}}
    synonyms = {"include_synonyms": True} if version >= 1 else {}

    found = entries(cluster, version, resource(BROKER, ""), **synonyms)

    assert list(found) == ["num.io.threads"]
    option = found["num.io.threads"]
    assert (option.value, option.read_only) == ("5", False)
    if version >= 1:
        assert option.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER
        assert [(each.value, each.source) for each in option.synonyms] == [("5", ConfigSource.DYNAMIC_DEFAULT_BROKER)]


def test_options_of_one_listener_are_described_where_they_are_set() -> None:
    """Under their full names, with what they override."""
    cluster = SmallCluster()
    cluster.zookeeper.brokers["1"] = {"listener.name.plaintext.max.connections": "50"}
    name = "listener.name.plaintext.max.connections"

    found = entries(cluster, 4, resource(BROKER, "1"), include_synonyms=True)

    assert (found[name].value, found[name].config_source) == ("50", ConfigSource.DYNAMIC_BROKER)
    assert [each.name for each in found[name].synonyms] == [name, "max.connections"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_resource_is_answered(version: int) -> None:
    """Each with its own error, and no options."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))
    wanted = [
        (TOPIC, "nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST),
        (99, "", ErrorCode.INVALID_REQUEST),
    ]

    results = ask(cluster, version, *(resource(kind, name) for kind, name, _ in wanted)).results

    assert [(each.resource_type, each.resource_name, each.error_code) for each in results] == wanted
    assert all(each.error_message and each.configs == [] for each in results)


def test_what_others_wrote_to_zookeeper_may_be_wrong() -> None:
    """It is an error of that resource, not of the connection."""
    cluster = SmallCluster()
    cluster.tell(topic("first"))
    cluster.zookeeper.overrides["first"] = {"retention.ms": "many"}
    cluster.zookeeper.brokers["1"] = {"num.io.threads": "none"}

    results = ask(cluster, 4, resource(TOPIC, "first"), resource(BROKER, "1")).results

    assert [each.error_code for each in results] == [ErrorCode.INVALID_CONFIG] * 2
