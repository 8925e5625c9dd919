"""What happens when the session with ZooKeeper ends: all listeners stop, a new session opens, all listeners continue.

A session ends when a server says so. Nobody is called while it is only in doubt, because usually it is still there when
a server can be reached again. Code that may act only in a sure session asks `Membership.may_lead_alone`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from ottla.broker.cluster.operations import SessionExpiredError, ZooKeeperUnavailableError
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper

log = structlog.get_logger(__name__)

_PAUSE_SECONDS: Final = 1.0


class SessionListener(Protocol):
    """Something whose nodes or watches disappear with the session."""

    def session_expired(self) -> None:
        """Stop acting on the old session; return when that is done. Must not call ZooKeeper."""

    def session_renewed(self) -> None:
        """Continue in the new session. Called again if it raises ZooKeeperUnavailableError."""


class SessionRenewal:
    """Renews the session, on a thread of its own.

    The listeners are called in the given order, both when a session ends and when one opens. The membership comes
    first. So no request meant for the earlier registration makes the broker a leader again while it gives up its
    partitions, and the controller is a member when it stands for election. The broker registers again only after all
    listeners have stopped.

    `on_failure` is called if a listener cannot continue in the new session, for example because another broker took the
    id. The broker must stop then.
    """

    def __init__(
        self, zookeeper: ZooKeeper, listeners: Sequence[SessionListener], on_failure: Callable[[Exception], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._listeners = tuple(listeners)
        self._on_failure = on_failure
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zookeeper-session", daemon=True)
        zookeeper.on_expired = self._wake.set

    def start(self) -> None:
        """Watch the session from now on; renew it at once if it has ended already."""
        if self._zookeeper.state is SessionState.EXPIRED:
            self._wake.set()
        self._thread.start()

    def close(self) -> None:
        """Stop watching the session; called before ZooKeeper is closed."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closing.is_set():
                return
            try:
                self._renew()
            except SessionExpiredError:
                # The new session has ended too. The thread was woken for that, or it is closing.
                log.warning("zookeeper_session_expired_again")
            except Exception as error:
                log.exception("zookeeper_session_not_renewed")
                self._on_failure(error)
                return

    def _renew(self) -> None:
        log.warning("zookeeper_session_expired")
        for listener in self._listeners:
            listener.session_expired()
        while not self._closing.is_set():
            try:
                self._zookeeper.renew_session()
                break
            except ZooKeeperUnavailableError as error:
                log.warning("zookeeper_unavailable", reason=str(error))
                # A login is refused at once, again and again.
                self._closing.wait(_PAUSE_SECONDS)
        if self._closing.is_set():
            return
        for listener in self._listeners:
            self._go_on(listener)
        log.info("zookeeper_session_renewed")

    def _go_on(self, listener: SessionListener) -> None:
        """Let a listener continue; retry for as long as ZooKeeper is unavailable."""
        while not self._closing.is_set():
            try:
                listener.session_renewed()
                return
            except ZooKeeperUnavailableError as error:
                log.warning("zookeeper_unavailable", reason=str(error))
