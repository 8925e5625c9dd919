"""What a test gives is there, and what it does not give says so."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests.kit.services import services_of

from ottla.broker.app.services import Services
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.config import BrokerConfig
from ottla.protocol.identifiers import TopicPartition

CONFIG = BrokerConfig.of({"zookeeper.connect": "nowhere:2181"})
ALWAYS_THERE = {"config", "security", "quotas"}


def test_rooms_are_those_that_were_given() -> None:
    """And the config is a room as well."""
    metadata = MetadataCache()
    services = services_of(lambda: CONFIG, metadata=metadata, clock=lambda: 7)

    assert services.metadata is metadata
    assert services.config() is CONFIG
    assert services.clock() == 7


@pytest.mark.parametrize("room", sorted({field.name for field in fields(Services)} - ALWAYS_THERE))
def test_a_room_that_was_not_given_is_named(room: str) -> None:
    """With what was wanted of it."""
    missing = getattr(services_of(lambda: CONFIG), room)

    with pytest.raises(AssertionError, match=f"this test has no {room}, but somebody asks it for 'find'"):
        missing.find(TopicPartition("t", 0))
    with pytest.raises(AssertionError, match=f"this test has no {room}, but somebody calls it"):
        missing()


def test_security_without_zookeeper_says_so_where_it_is_asked() -> None:
    """Until then it serves as in a broker without ACLs."""
    services = services_of(lambda: CONFIG)

    assert not services.quotas.is_set
    with pytest.raises(AssertionError, match="this test has no ZooKeeper"):
        services.security.start()


def test_a_room_that_no_broker_has_is_an_error() -> None:
    """A name that is spelled wrong is not left out."""
    with pytest.raises(TypeError, match="partitons"):
        services_of(lambda: CONFIG, partitons=None)
