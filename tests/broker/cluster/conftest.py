"""Fixtures for tests that talk to ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.sessions import Connect, sessions
from tests.kit.zookeeper import ZooKeeper


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> Iterator[Connect]:
    """Opens sessions in the chroot of the test, and closes them in the end."""
    with sessions(zookeeper) as connect:
        yield connect
