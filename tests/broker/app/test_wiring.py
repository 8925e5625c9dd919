"""The parts of a broker reach each other, without a network and with a ZooKeeper that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.broker.handlers.data_path import BROKER_ID, Broker, batch, running_broker
from tests.kit.services import StillZooKeeper, services_of

from ottla.broker.app.config_updates import ConfigUpdates
from ottla.broker.app.losses import log_dir_lost, replica_damaged, unregistered
from ottla.broker.cluster import znodes
from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads a topic."""
    with running_broker(tmp_path, {"t": {"retention.ms": "7"}}) as broker:
        broker.lead("t")
        yield broker


def set_option(broker: Broker, entity_type: str, name: str, **options: str) -> None:
    """Change what ZooKeeper has for an entity; options by their names with underscores."""
    config = {option.replace("_", "."): value for option, value in options.items()}
    zookeeper = cast(Any, broker.services.zookeeper)
    zookeeper.nodes[znodes.config_path(entity_type, name)] = znodes.ConfigNode(config=config).encode()


class Reports:
    """A cluster that counts reports of lost replicas."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.count = 0
        self._error = error

    def report_log_dir_failure(self) -> None:
        """Count one."""
        self.count += 1
        if self._error is not None:
            raise self._error


def test_a_broker_has_the_options_that_are_set_in_zookeeper() -> None:
    """Its own come before those of all brokers."""
    nodes = {
        znodes.config_path(znodes.BROKER_CONFIGS, "7"): znodes.ConfigNode(config={"num.io.threads": "3"}).encode(),
        znodes.config_path(znodes.BROKER_CONFIGS, znodes.DEFAULT_ENTITY): znodes.ConfigNode(
            config={"num.io.threads": "4", "background.threads": "5"}
        ).encode(),
    }
    config = BrokerConfig.of({"broker.id": "7", "log.dirs": "/nowhere"})

    services = services_of(config, zookeeper=StillZooKeeper(nodes))

    assert services.configs.broker().num_io_threads == 3
    assert services.configs.broker().background_threads == 5


def test_a_new_leader_of_the_offsets_topic_loads_its_groups(broker: Broker) -> None:
    """And those who wait for a coordinator are told."""
    checked: list[object] = []

    def check(key: object) -> int:
        checked.append(key)
        return 0

    broker.services.delayed_topics.check = check  # type: ignore[method-assign]

    broker.lead(CONSUMER_OFFSETS)
    broker.services.groups.work.run_due()

    assert broker.services.groups.is_ready("readers")
    assert checked[-1] == CONSUMER_OFFSETS


def test_options_of_a_topic_reach_its_log_and_the_throttles(broker: Broker) -> None:
    """They are read when the note of a change comes."""
    log = broker.services.logs.get(PARTITION)
    assert log.config.retention_ms == 7
    set_option(broker, "topics", "t", retention_ms="8", leader_replication_throttled_replicas=f"0:{BROKER_ID}")

    ConfigUpdates(broker.services, lambda _config: None)("topics", "t")

    assert log.config.retention_ms == 8
    assert broker.services.throttles.leader.is_throttled(PARTITION)
    assert not broker.services.throttles.follower.is_throttled(PARTITION)


def test_options_of_brokers_reach_handlers_topics_and_the_network(broker: Broker) -> None:
    """A topic has the broker's options where it has none of its own."""
    reconfigured: list[BrokerConfig] = []
    set_option(broker, "brokers", znodes.DEFAULT_ENTITY, log_retention_bytes="9", num_io_threads="3")

    ConfigUpdates(broker.services, reconfigured.append)("brokers", znodes.DEFAULT_ENTITY)

    assert [config.num_io_threads for config in reconfigured] == [3]
    assert {each.config().num_io_threads for each in broker.services.for_handlers().values()} == {3}
    log = broker.services.logs.get(PARTITION)
    assert (log.config.retention_bytes, log.config.retention_ms) == (9, 7)


def test_a_lost_directory_is_reported_and_those_who_wait_are_told(broker: Broker) -> None:
    """The controller elects other leaders."""
    services, reports = broker.services, Reports()
    failed: list[TopicPartition] = []
    services.partitions.failed = failed.extend  # type: ignore[method-assign, assignment]

    with capture_logs() as lines:
        log_dir_lost(cast(Any, reports), services.partitions, services.logs.dirs[0], [PARTITION])

    assert (failed, reports.count) == ([PARTITION], 1)
    assert [line["event"] for line in lines] == ["log_directory_offline"]


def test_a_report_that_fails_costs_nothing_else() -> None:
    """It is in the log, and the controller finds out by itself later."""
    reports = Reports(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    with capture_logs() as lines:
        replica_damaged(cast(Any, reports), PARTITION)

    assert [line["event"] for line in lines] == ["replica_damaged", "lost_replicas_not_reported"]


def test_a_broker_leads_on_while_its_session_is_sure(broker: Broker) -> None:
    """A controller that does not know it is late; without ZooKeeper others may lead."""
    services = broker.services
    partition = services.partitions.get(PARTITION)
    partition.append(batch(b"a"), required_acks=1)

    unregistered(services.membership, services.metadata, services.partitions)
    led_before = partition.is_leader
    services.membership.session_expired()
    unregistered(services.membership, services.metadata, services.partitions)

    assert (led_before, partition.is_leader) == (True, False)
    assert BROKER_ID not in services.metadata.snapshot.brokers
