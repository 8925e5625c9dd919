"""Fixtures for the fault tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker_process import BrokerProcess
from tests.zookeeper import ZooKeeper, ZooKeeperServer


@pytest.fixture(scope="session")
def hasty_broker(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker for all tests of bad input, with a deadline for frames that a test can wait for."""
    shared = BrokerProcess(
        tmp_path_factory.mktemp("hasty-broker"),
        ZooKeeper(zookeeper_server).connect,
        "ottla.connection.frame.timeout.ms=1000",
    )
    shared.start_on_free_ports()
    try:
        yield shared
    finally:
        shared.kill()
