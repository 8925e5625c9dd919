"""The controller of a broker: waits for the office, holds it, gives it up.

One thread, fed by a queue of events, does everything. When it is elected it has a `Term`; it resigns when ZooKeeper
refuses a write because a newer controller is in office, when /controller is no longer its own, and when its session is
over. An event that fails unexpectedly costs the office too: the next controller starts from what ZooKeeper has.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import SessionExpiredError, ZooKeeperError
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.election import ControllerMovedError, elect
from ottla.broker.controller.term import Term

log = structlog.get_logger(__name__)

_PAUSE_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 30.0


class Controller:
    """This broker's candidacy for the office, and its terms. A SessionListener."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        config: Callable[[], BrokerConfig],
        *,
        clock: Callable[[], int],
    ) -> None:
        """`config` gives the broker's options as they are now; `clock` the time in milliseconds since 1970."""
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._config = config
        self._clock = clock
        # None ends the thread.
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Changed by the controller's thread only; others look whether there is one.
        self._term: Term | None = None
        # When to stand for election again after a failure.
        self._elect_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    def __repr__(self) -> str:
        return f"<Controller of broker {self._broker_id} epoch={self.epoch}>"

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller now, as far as it knows."""
        return self._term is not None

    @property
    def epoch(self) -> int:
        """The epoch of the present term; -1 out of office."""
        term = self._term
        return -1 if term is None else term.epoch

    def start(self) -> None:
        """Stand for election, when the broker is registered."""
        self._thread.start()
        self._events.put(self._elect)

    def close(self) -> None:
        """Give up the office, and stop; before the session is closed."""
        self._events.put(self._resign)
        self._events.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=_JOIN_SECONDS)

    def session_expired(self) -> None:
        """Resign; returns when that is done."""
        done = threading.Event()

        def expire() -> None:
            self._resign()
            self._elect_at = None
            done.set()

        self._events.put(expire)
        if self._thread.is_alive() and not done.wait(_JOIN_SECONDS):
            raise TimeoutError("the controller did not resign when its session was over")

    def session_renewed(self) -> None:
        """Stand for election again."""
        self._events.put(self._elect)

    def _run(self) -> None:
        while True:
            try:
                timeout = None if self._elect_at is None else max(0.0, self._elect_at - time.monotonic())
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                self._elect_at = None
                event = self._elect
            if event is None:
                return
            self._handle(event)

    def _handle(self, event: Callable[[], None]) -> None:
        try:
            event()
        except ControllerMovedError as error:
            log.warning("controller_moved", reason=str(error))
            self._resign()
            self._events.put(self._elect)
        except SessionExpiredError:
            # The end of the session is an event of its own, which is on its way.
            log.info("controller_without_session")
        except Exception:
            log.exception("controller_event_failed", broker=self._broker_id)
            self._step_down()

    def _office_changed(self) -> None:
        self._events.put(self._elect)

    def _elect(self) -> None:
        if self._term is not None:
            stat = self._zookeeper.exists(znodes.CONTROLLER, self._office_changed)
            if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                return
            # Somebody deleted the node to move the controller.
            self._resign()
        elected = elect(self._zookeeper, self._broker_id, self._clock(), self._office_changed)
        if elected is None:
            return
        log.info("controller_elected", broker=self._broker_id, epoch=elected.epoch)
        term = Term(self._zookeeper, self._broker_id, elected, self._config(), self._events.put)
        self._term = term
        term.begin()
        log.info("controller_in_office", broker=self._broker_id, epoch=elected.epoch, brokers=len(term.context.brokers))

    def _resign(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            term.close()
            log.info("controller_resigned", broker=self._broker_id, epoch=term.epoch)

    def _step_down(self) -> None:
        """Leave the office to whoever is elected next, and stand again after a pause."""
        self._resign()
        self._elect_at = time.monotonic() + _PAUSE_SECONDS
        try:
            stat = self._zookeeper.exists(znodes.CONTROLLER)
            if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                self._zookeeper.delete(znodes.CONTROLLER)
        except ZooKeeperError as error:
            log.warning("controller_node_not_deleted", reason=str(error))
