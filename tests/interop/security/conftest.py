"""The broker that all tests of this folder share."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest
from tests.interop.clients.all import available
from tests.interop.clients.kcat import Kcat
from tests.interop.security.clients import SECURE_CLIENTS, KcatClient, SecureClient
from tests.interop.security.secure_broker import SecureBroker
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Close here what clients leave open: the garbage collector would complain of it in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="package")
def secure_broker(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureBroker]:
    """A broker with all its doors; tests leave it as it is."""
    made = SecureBroker(tmp_path_factory.mktemp("doors"), ZooKeeper(zookeeper_server).connect)
    made.store_users()
    with made:
        yield made


@pytest.fixture(params=SECURE_CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> SecureClient:
    """Each client in turn; without kcat its tests are skipped."""
    chosen: SecureClient = request.param
    if isinstance(chosen, KcatClient):
        available(Kcat())
    return chosen
