"""Sessions with the ZooKeeper of a test, and how to end one from outside."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper as Ensemble

from ottla.broker.cluster.guardian_process import close_through
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper
from ottla.broker.config import BrokerConfig

TIMEOUT_S = 30
# After this long without an effect, a session is closed again.
NOTICED_S = 2
_UNSIGNED = (1 << 64) - 1
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
    """Close a session behind its owner's back, and wait until the owner has noticed.

    The owner attaches again as soon as another connection has its session. So the two requests that close it are sent
    at once, and again if the owner was quicker.
    """
    noticed = threading.Event()
    before = zookeeper.on_expired

    def notice() -> None:
        noticed.set()
        before()

    zookeeper.on_expired = notice
    client = zookeeper._client
    assert client is not None
    session_id, password = client.client_id
    host, _, port = str(zookeeper.addresses.servers[0]).rpartition(":")

    def close() -> None:
        with suppress(OSError), socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            close_through(connection, session_id & _UNSIGNED, password, TIMEOUT_S * 1000)
        noticed.wait(NOTICED_S)

    until(noticed.is_set, "the owner has noticed the end of its session", meanwhile=close)
    assert zookeeper.state is SessionState.EXPIRED
    zookeeper.on_expired = before
