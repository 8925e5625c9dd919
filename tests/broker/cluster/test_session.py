"""The renewal of a session, and the order in which all stop and go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.broker.sessions import TIMEOUT_S, Connect, expire

from ottla.broker.cluster.operations import ZooKeeperUnavailableError
from ottla.broker.cluster.session import SessionRenewal
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper


class Room:
    """A listener that writes down when it is called."""

    def __init__(self, name: str, calls: list[str], renew: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self._calls = calls
        self._renew = renew

    def session_expired(self) -> None:
        """Note the end."""
        self._calls.append(f"{self.name} expired")

    def session_renewed(self) -> None:
        """Note the beginning."""
        self._calls.append(f"{self.name} renewed")
        self._renew()


def renew(zookeeper: ZooKeeper, *rooms: Room) -> None:
    """Let the session expire, and wait until the last room has been told of the next."""
    done = threading.Event()
    renewal = SessionRenewal(zookeeper, [*rooms, Room("", [], done.set)], lambda error: pytest.fail(str(error)))
    renewal.start()
    try:
        expire(zookeeper)
        assert done.wait(TIMEOUT_S)
    finally:
        renewal.close()


def test_all_have_given_up_before_anybody_goes_on(connect: Connect) -> None:
    """A broker is a member again only when it leads nothing any more."""
    calls: list[str] = []
    zookeeper = connect()
    renew(zookeeper, Room("membership", calls), Room("partitions", calls), Room("controller", calls))
    assert calls == [
        "membership expired",
        "partitions expired",
        "controller expired",
        "membership renewed",
        "partitions renewed",
        "controller renewed",
    ]
    assert zookeeper.state is SessionState.CONNECTED


def test_an_outage_during_the_renewal_is_waited_out(connect: Connect) -> None:
    """ZooKeeper may go away again at any time; that is no reason for the broker to stop."""
    calls: list[str] = []
    outages = [ZooKeeperUnavailableError("away"), ZooKeeperUnavailableError("still away")]

    def fail_twice() -> None:
        if outages:
            raise outages.pop()

    renew(connect(), Room("membership", calls, fail_twice), Room("controller", calls))
    assert calls[2:] == ["membership renewed"] * 3 + ["controller renewed"]
