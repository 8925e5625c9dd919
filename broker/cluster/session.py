"""What happens when the session with ZooKeeper is over: all stop, then a new one begins, then all go on.

Over means that a server said so. While a session is only in doubt nobody is called, since most often it is still there
when a server can be reached again; whoever acts on its strength alone asks `Membership.may_lead_alone`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from ottla.broker.cluster.operations import SessionExpiredError, ZooKeeperUnavailableError
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper

log = structlog.get_logger(__name__)


class SessionListener(Protocol):
    """Somebody whose nodes or watches die with the session."""

    def session_expired(self) -> None:
        """Stop acting on what the session stood for; return when that is done. No calls to ZooKeeper."""

    def session_renewed(self) -> None:
        """Begin again in a new session; called again when it raised ZooKeeperUnavailableError."""


class SessionRenewal:
    """Renews the session, on a thread of its own.

    The listeners are called in the order given, in the end of a session as in the beginning of one. The membership is
    the first: no request for the broker's earlier life makes it a leader again while it gives up what it led, and the
    controller stands for election as a member. Nobody is registered anew before all have given up.

    `on_failure` is called when one of them cannot go on in the new session, such as a broker whose id has been taken:
    the broker must stop.
    """

    def __init__(
        self, zookeeper: ZooKeeper, listeners: Sequence[SessionListener], on_failure: Callable[[Exception], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._listeners = tuple(listeners)
        self._on_failure = on_failure
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="zookeeper-session", daemon=True)
        zookeeper.on_expired = self._wake.set

    def start(self) -> None:
        """Watch over the session from now on; one that is over already is renewed at once."""
        if self._zookeeper.state is SessionState.EXPIRED:
            self._wake.set()
        self._thread.start()

    def close(self) -> None:
        """Let the session be; before ZooKeeper is closed."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closing:
                return
            try:
                self._renew()
            except SessionExpiredError:
                # Over again already; the thread has been woken for it, or is closing.
                log.warning("zookeeper_session_expired_again")
            except Exception as error:
                log.exception("zookeeper_session_not_renewed")
                self._on_failure(error)
                return

    def _renew(self) -> None:
        log.warning("zookeeper_session_expired")
        for listener in self._listeners:
            listener.session_expired()
        while not self._closing:
            try:
                self._zookeeper.renew_session()
                break
            except ZooKeeperUnavailableError as error:
                log.warning("zookeeper_unavailable", reason=str(error))
        if self._closing:
            return
        for listener in self._listeners:
            self._go_on(listener)
        log.info("zookeeper_session_renewed")

    def _go_on(self, listener: SessionListener) -> None:
        """Let a listener begin again, however long ZooKeeper is away meanwhile."""
        while not self._closing:
            try:
                listener.session_renewed()
                return
            except ZooKeeperUnavailableError as error:
                log.warning("zookeeper_unavailable", reason=str(error))
