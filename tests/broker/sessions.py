"""Sessions with the ZooKeeper of a test, and how to end one from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.kit.zookeeper import ZooKeeper as Ensemble

from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper
from ottla.broker.config import BrokerConfig

TIMEOUT_S = 30
NOW_MS = 1_700_000_000_000

Connect = Callable[[], ZooKeeper]


def clock() -> int:
    """Tell a time that stands still."""
    return NOW_MS


def session(connect: str, *, session_timeout_ms: int = 10_000, connection_timeout_ms: int = 10_000) -> ZooKeeper:
    """Make an adapter that is not started."""
    addresses = BrokerConfig.of({"zookeeper.connect": connect}).zookeeper
    return ZooKeeper(addresses, session_timeout_ms=session_timeout_ms, connection_timeout_ms=connection_timeout_ms)


@contextmanager
def sessions(zookeeper: Ensemble) -> Iterator[Connect]:
    """Give a function that opens sessions; they are closed in the end."""
    opened: list[ZooKeeper] = []

    def connect() -> ZooKeeper:
        made = session(zookeeper.connect)
        made.start()
        opened.append(made)
        return made

    try:
        yield connect
    finally:
        for each in opened:
            each.close()


def expire(zookeeper: ZooKeeper) -> None:
    """Close a session behind its owner's back, and wait until the owner has noticed."""
    noticed = threading.Event()
    before = zookeeper.on_expired

    def notice() -> None:
        noticed.set()
        before()

    zookeeper.on_expired = notice
    client = zookeeper._client
    assert client is not None
    thief = KazooClient(hosts=",".join(map(str, zookeeper.addresses.servers)), client_id=client.client_id, timeout=10)
    thief.start(timeout=TIMEOUT_S)
    thief.stop()
    thief.close()
    assert noticed.wait(TIMEOUT_S)
    assert zookeeper.state is SessionState.EXPIRED
    zookeeper.on_expired = before
