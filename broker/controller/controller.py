"""The controller of a broker: waits for the office, holds it, gives it up.

One thread, fed by a queue of events, does everything. When it is elected it has a `Term`; it resigns when ZooKeeper
refuses a write because a newer controller is in office, when /controller is no longer its own, and when its session is
over. An event that fails unexpectedly costs the office too: the next controller starts from what ZooKeeper has.

Requests that only a controller can serve come in through `submit`, and are answered whatever becomes of the term.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import SessionExpiredError, ZooKeeperError, ZooKeeperUnavailableError
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.election import ControllerMovedError, elect
from ottla.broker.controller.office import ControllerTools
from ottla.broker.controller.schedule import Event
from ottla.broker.controller.stats import ControllerStats, stats_of
from ottla.broker.controller.term import Term
from ottla.client.net.connector import IN_THE_CLEAR, Connector
from ottla.protocol.errors import ErrorCode, KafkaError

log = structlog.get_logger(__name__)

T = TypeVar("T")

_PAUSE_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 30.0


class _Submission:
    """Work of a request, for the term in which it was submitted."""

    def __init__(self, term: Term, work: Callable[[], None], refuse: Callable[[], None]) -> None:
        self.term = term
        self.work = work
        self.refuse = refuse


class Controller:
    """This broker's candidacy for the office, and its terms. A SessionListener."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        config: Callable[[], BrokerConfig],
        *,
        clock: Callable[[], int],
        connector: Connector = IN_THE_CLEAR,
    ) -> None:
        """`config` gives the broker's options as they are now; `clock` the time in milliseconds since 1970."""
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._clock = clock
        # None ends the thread.
        self._events: queue.SimpleQueue[Event | _Submission | None] = queue.SimpleQueue()
        self._tools = ControllerTools(zookeeper, broker_id, config, connector, self._events.put)
        self._schedule = self._tools.schedule
        # Changed by the controller's thread only, and under the lock: nothing is submitted to a term that is over.
        self._term: Term | None = None
        self._lock = threading.Lock()
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

    @property
    def stats(self) -> ControllerStats:
        """What there is to show, as it is now."""
        term = self._term
        return stats_of(None if term is None else term.context, self._tools.counters)

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

    def submit(self, work: Callable[[Term], T], answer: Callable[[T | KafkaError], None]) -> None:
        """Do a piece of work on the controller's thread, in the present term, and then call `answer`.

        What the work has for the brokers is on its way when `answer` is called, with the result or with what the work
        raised; with NOT_CONTROLLER where there is no term, or the term ends first. `answer` is called exactly once, on
        the controller's thread or on this one, and must not block.
        """

        def reply(outcome: T | KafkaError) -> None:
            try:
                answer(outcome)
            except Exception:  # a response that cannot be sent must not cost the office
                log.exception("controller_answer_failed", broker=self._broker_id)

        def refuse() -> None:
            reply(KafkaError(ErrorCode.NOT_CONTROLLER))

        with self._lock:
            term = self._term
            if term is not None:
                self._events.put(_Submission(term, lambda: self._work(term, work, reply), refuse))
        if term is None:
            refuse()

    def options_changed(self, topic: str | None = None) -> None:
        """Learn that the options of a topic, or those of all brokers, have changed; returns at once.

        They may allow leaders that are not in sync, for partitions that have none.
        """
        term = self._term
        if term is not None:
            term.options_changed(topic)

    def session_expired(self) -> None:
        """Resign; returns when that is done."""
        done = threading.Event()

        def expire() -> None:
            self._resign()
            done.set()

        self._events.put(expire)
        if self._thread.is_alive() and not done.wait(_JOIN_SECONDS):
            raise TimeoutError("the controller did not resign when its session was over")

    def session_renewed(self) -> None:
        """Stand for election again."""
        self._events.put(self._elect)

    def _run(self) -> None:
        while True:
            event = self._schedule.take_due() or self._next()
            if event is None:
                break
            self._handle(event)
        self._refuse_queued()

    def _next(self) -> Event | None:
        """Wait for an event; None to end."""
        while True:
            try:
                event = self._events.get(timeout=self._schedule.seconds_left())
            except queue.Empty:
                due = self._schedule.take_due()
                if due is not None:
                    return due
                continue
            if not isinstance(event, _Submission):
                return event
            return event.work if event.term is self._term else event.refuse

    def _work(self, term: Term, work: Callable[[Term], T], reply: Callable[[T | KafkaError], None]) -> None:
        try:
            result = term.run(work)
        except KafkaError as error:
            reply(error)
        except Exception:
            # The term is about to end, by what is raised here.
            reply(KafkaError(ErrorCode.NOT_CONTROLLER))
            raise
        else:
            reply(result)

    def _refuse_queued(self) -> None:
        """Answer what was queued behind the end; nothing more comes, for there is no term."""
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return
            if isinstance(event, _Submission):
                event.refuse()

    def _handle(self, event: Event) -> None:
        try:
            event()
        except ControllerMovedError as error:
            log.warning("controller_moved", reason=str(error))
            self._resign()
            self._events.put(self._elect)
        except SessionExpiredError:
            # The end of the session is an event of its own, which is on its way.
            log.info("controller_without_session")
        except ZooKeeperUnavailableError as error:
            log.warning("controller_cut_off", reason=str(error))
            self._step_down()
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
        term = Term(self._tools, elected)
        with self._lock:
            self._term = term
        term.begin()
        log.info("controller_in_office", broker=self._broker_id, epoch=elected.epoch, brokers=len(term.context.brokers))

    def _resign(self) -> None:
        with self._lock:
            term, self._term = self._term, None
        self._schedule.clear()
        if term is not None:
            term.close()
            log.info("controller_resigned", broker=self._broker_id, epoch=term.epoch)

    def _step_down(self) -> None:
        """Leave the office to whoever is elected next, and stand again after a pause."""
        self._resign()
        self._schedule.add(_PAUSE_SECONDS, self._elect)
        try:
            stat = self._zookeeper.exists(znodes.CONTROLLER)
            if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                self._zookeeper.delete(znodes.CONTROLLER)
        except ZooKeeperError as error:
            log.warning("controller_node_not_deleted", reason=str(error))
