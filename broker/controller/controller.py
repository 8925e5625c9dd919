"""The controller of a broker: waits to be elected, serves its term, resigns.

One thread with a queue of events does everything. When it is elected it has a `Term`. It resigns when ZooKeeper refuses
a write because there is a newer controller, when /controller is no longer its own, and when its session ends. It also
resigns after an event that fails unexpectedly: the next controller starts from what is in ZooKeeper.

Requests that only a controller can serve come in through `submit`, and are answered whether the term lasts or not.
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
from ottla.broker.common.clocks import Clocks
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
    """This broker's candidacy, and its terms. A SessionListener."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        config: Callable[[], BrokerConfig],
        *,
        clocks: Clocks,
        connector: Connector = IN_THE_CLEAR,
    ) -> None:
        """`config` returns the broker's current options."""
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        # None stops the thread.
        self._events: queue.SimpleQueue[Event | _Submission | None] = queue.SimpleQueue()
        self._tools = ControllerTools(zookeeper, broker_id, config, connector, clocks, self._events.put)
        self._schedule = self._tools.schedule
        # Only the controller's thread changes it, and under the lock: nothing is submitted to a term that has ended.
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
        """The epoch of the current term; -1 if this broker is not the controller."""
        term = self._term
        return -1 if term is None else term.epoch

    @property
    def queue_size(self) -> int:
        """The number of batches of messages that brokers have not answered yet."""
        term = self._term
        return 0 if term is None else term.queue_size

    @property
    def stats(self) -> ControllerStats:
        """The numbers that the controller publishes, as of now."""
        term = self._term
        return stats_of(None if term is None else term.context, self._tools.counters)

    def start(self) -> None:
        """Stand for election, after the broker has registered."""
        self._thread.start()
        self._events.put(self._elect)

    def close(self) -> None:
        """Resign and stop; called before the session is closed."""
        self._events.put(self._resign)
        self._events.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=_JOIN_SECONDS)

    def submit(self, work: Callable[[Term], T], answer: Callable[[T | KafkaError], None]) -> None:
        """Run some work on the controller's thread, in the current term, and then call `answer`.

        `answer` gets the result of the work or what the work raised, after its messages to brokers were queued. It gets
        NOT_CONTROLLER if there is no term or the term ends first. It is called exactly once, on the controller's thread
        or on this one, and must not block.
        """

        def reply(outcome: T | KafkaError) -> None:
            try:
                answer(outcome)
            except Exception:  # a response that cannot be sent must not end the term
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
        """Handle that the options of a topic, or those of all brokers, have changed; returns at once.

        They may now allow out-of-sync leaders, for partitions that have none.
        """
        term = self._term
        if term is not None:
            term.options_changed(topic)

    def session_expired(self) -> None:
        """Resign; return when that is done."""
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
        """Wait for an event; None to stop."""
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
            # What is raised here ends the term.
            reply(KafkaError(ErrorCode.NOT_CONTROLLER))
            raise
        else:
            reply(result)

    def _refuse_queued(self) -> None:
        """Answer what was queued behind the last event; nothing more is queued, because there is no term."""
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
            # The end of the session is an event of its own, which follows.
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
        elected = elect(self._zookeeper, self._broker_id, self._tools.clocks.wall_ms(), self._office_changed)
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
        """Resign, and stand for election again after a pause."""
        self._resign()
        self._schedule.add(_PAUSE_SECONDS, self._elect)
        try:
            stat = self._zookeeper.exists(znodes.CONTROLLER)
            if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                self._zookeeper.delete(znodes.CONTROLLER)
        except ZooKeeperError as error:
            log.warning("controller_node_not_deleted", reason=str(error))
