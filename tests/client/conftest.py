"""Fixtures for the tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.clusters import bench
from tests.client.token_broker import TokenBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

__all__ = ["bench"]


@pytest.fixture(scope="session")
def authorizing_broker(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker that looks after rights, and lets everybody do everything."""
    options = ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS")
    made = BrokerProcess(tmp_path_factory.mktemp("acls"), ZooKeeper(zookeeper_server).connect, *options)
    made.start_on_free_ports()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="session")
def token_broker(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    """A broker whose clients log in, and that gives them tokens."""
    with TokenBroker(tmp_path_factory.mktemp("tokens"), ZooKeeper(zookeeper_server).connect) as made:
        yield made
