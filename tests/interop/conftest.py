"""Fixtures for tests with other people's clients."""

from __future__ import annotations

from typing import Protocol

import pytest
from tests.interop.clients.all import CLIENTS, available
from tests.interop.clients.record import Client
from tests.interop.raw import RawConnection, retrying
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.java_tools import kafka_tools, run_tool

__all__ = ["kafka_tools", "run_tool"]


class CreateTopic(Protocol):
    """Makes a topic in the shared broker, with options by their names with `_` for `.`, and returns its name."""

    def __call__(self, partitions: int = 1, **configs: str) -> str:
        """Create it and wait for its leaders."""
        ...


@pytest.fixture
def create_topic(broker: BrokerProcess) -> CreateTopic:
    """Make topics in the shared broker."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = topic_name()
        options = {key.replace("_", "."): value for key, value in configs.items()}
        with RawConnection(broker.bootstrap) as connection:
            retrying(lambda: connection.create_topic(name, partitions, options))
        return name

    return create


@pytest.fixture
def topic(create_topic: CreateTopic) -> str:
    """A topic of one partition in the shared broker."""
    return create_topic()


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn."""
    return available(request.param)


@pytest.fixture(params=CLIENTS, ids=lambda client: f"from-{client.name}")
def writer(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, to produce with."""
    return available(request.param)


@pytest.fixture(params=CLIENTS, ids=lambda client: f"to-{client.name}")
def reader(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, to consume with."""
    return available(request.param)
