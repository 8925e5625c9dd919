"""Services of tests are those of a broker, and what a test does not have says so."""

from __future__ import annotations

import pytest
from tests.kit.services import BROKER_EPOCH, services_of

from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

CONFIG = BrokerConfig.of({"broker.id": "1", "log.dirs": "/nowhere"})


def test_services_are_those_of_one_registered_broker() -> None:
    """They know each other, and go by the test's clocks."""
    services = services_of(CONFIG, topics={"t": {"retention.ms": "7"}}, clocks=Clocks(lambda: 7, lambda: 500))

    assert services.configs.broker().broker_id == services.cluster.broker_id == services.partitions.node_id == 1
    assert services.configs.of("t").retention_ms == 7
    assert services.cluster.overrides_of("t") == {"retention.ms": "7"}
    assert services.membership.broker_epoch == BROKER_EPOCH
    assert services.membership.may_lead_alone
    assert (services.groups.clock(), services.groups.now_ms()) == (7, 500)


def test_services_that_a_test_gives_take_the_place_of_others() -> None:
    """For handlers: the other parts keep those that they were made with."""
    metadata = MetadataCache()

    services = services_of(CONFIG, metadata=metadata)

    assert services.metadata is metadata
    assert {each.metadata for each in services.for_handlers().values() if hasattr(each, "metadata")} == {metadata}


def test_zookeeper_cannot_be_written() -> None:
    """What is asked for is named."""
    services = services_of(CONFIG)

    assert not services.quotas.is_set
    with pytest.raises(AssertionError, match=r"this test has no ZooKeeper, .* 'create_sequential'"):
        services.cluster.report_log_dir_failure()


def test_partitions_are_unknown_before_the_controller_gives_any() -> None:
    """Nothing is opened, and nothing runs."""
    services = services_of(CONFIG)

    with pytest.raises(KafkaError) as unknown:
        services.partitions.get(TopicPartition("t", 0))
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_service_that_no_broker_has_is_an_error() -> None:
    """A name that is spelled wrong is not left out."""
    with pytest.raises(TypeError, match="partitons"):
        services_of(CONFIG, partitons=None)
