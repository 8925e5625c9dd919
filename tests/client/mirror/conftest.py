"""Clusters to mirror from and to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.broker_process import BrokerProcess
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer


@pytest.fixture(scope="session")
def other_broker(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker that is alone in a second cluster; it looks after rights, and lets everybody do everything."""
    options = ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS")
    with BrokerProcess(tmp_path_factory.mktemp("other"), ZooKeeper(zookeeper_server).connect, *options) as made:
        yield made
