"""Work that requests bring to the controller's thread: it is always answered."""

from __future__ import annotations

import itertools
import queue
import threading

from tests.broker.controller.brokers import brokers
from tests.broker.sessions import TIMEOUT_S
from tests.kit.services import NO_ZOOKEEPER
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.controller import Controller
from ottla.broker.controller.term import Term
from ottla.protocol.errors import ErrorCode, KafkaError


class Answers:
    """Collects what work came to."""

    def __init__(self) -> None:
        self._answers: queue.SimpleQueue[object] = queue.SimpleQueue()

    def __call__(self, answer: object) -> None:
        self._answers.put(answer)

    def next(self) -> object:
        """Wait for one."""
        return self._answers.get(timeout=TIMEOUT_S)

    def next_code(self) -> ErrorCode:
        """Wait for a refusal."""
        answer = self.next()
        assert isinstance(answer, KafkaError)
        return answer.code


def test_work_is_done_with_the_present_term(zookeeper: ZooKeeper) -> None:
    """On the controller's thread, which calls the answer too."""
    with brokers(zookeeper, 1) as (broker,):
        answers = Answers()
        broker.controller.submit(lambda term: (term.epoch, threading.current_thread().name), answers)
        assert answers.next() == (1, "controller")


def test_what_the_work_raises_is_the_answer(zookeeper: ZooKeeper) -> None:
    """A refusal does not cost the office."""

    def refuse(_term: Term) -> None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)

    with brokers(zookeeper, 1) as (broker,):
        answers = Answers()
        broker.controller.submit(refuse, answers)
        assert answers.next_code() is ErrorCode.STALE_BROKER_EPOCH
        assert broker.controller.epoch == 1


def test_without_a_term_the_answer_comes_at_once() -> None:
    """Also before the controller is started."""
    answers = Answers()
    controller = Controller(NO_ZOOKEEPER, 1, lambda: BrokerConfig.of({}), clocks=Clocks())
    controller.submit(lambda term: term.epoch, answers)
    assert answers.next_code() is ErrorCode.NOT_CONTROLLER


def test_work_that_breaks_the_term_and_what_waits_behind_it_are_refused(zookeeper: ZooKeeper) -> None:
    """The office is given up, and taken again with another epoch, which the waiting work does not get into."""
    answers, behind = Answers(), Answers()
    begun, may_go_on = threading.Event(), threading.Event()

    def fail(_term: Term) -> None:
        begun.set()
        assert may_go_on.wait(TIMEOUT_S)
        raise RuntimeError("a fault of the test")

    with brokers(zookeeper, 1) as (broker,):
        broker.controller.submit(fail, answers)
        assert begun.wait(TIMEOUT_S)
        broker.controller.submit(lambda term: term.epoch, behind)
        may_go_on.set()
        assert answers.next_code() is ErrorCode.NOT_CONTROLLER
        assert behind.next_code() is ErrorCode.NOT_CONTROLLER
        broker.fake.wait_for(lambda: broker.fake.metadata.snapshot.controller_epoch == 2)


def test_work_is_refused_when_a_newer_controller_is_in_office(zookeeper: ZooKeeper) -> None:
    """A write that finds the epoch raised is not done."""
    with brokers(zookeeper, 1) as (broker,):
        broker.zookeeper.write(znodes.CONTROLLER_EPOCH, b"7")
        answers = Answers()
        broker.controller.submit(lambda term: term._office.fence.delete(["/nothing"]), answers)
        assert answers.next_code() is ErrorCode.NOT_CONTROLLER


def test_work_behind_the_end_is_refused(zookeeper: ZooKeeper) -> None:
    """When the broker stops while work is queued."""
    begun, may_go_on = threading.Event(), threading.Event()
    first, behind = Answers(), Answers()

    def wait(_term: Term) -> None:
        begun.set()
        assert may_go_on.wait(TIMEOUT_S)

    with brokers(zookeeper, 1) as (broker,):
        broker.controller.submit(wait, first)
        assert begun.wait(TIMEOUT_S)
        # As `close` does, which would wait here for the work under way.
        broker.controller._events.put(broker.controller._resign)
        broker.controller._events.put(None)
        broker.controller.submit(lambda term: term.epoch, behind)
        may_go_on.set()
        assert first.next() is None
        assert behind.next_code() is ErrorCode.NOT_CONTROLLER
        broker.controller.submit(lambda term: term.epoch, behind)
        assert behind.next_code() is ErrorCode.NOT_CONTROLLER


def test_an_answer_that_fails_does_not_cost_the_office(zookeeper: ZooKeeper) -> None:
    """Whoever waits for it is gone."""

    def fail(_answer: object) -> None:
        raise RuntimeError("a fault of the test")

    with brokers(zookeeper, 1) as (broker,):
        answers = Answers()
        broker.controller.submit(lambda term: term.epoch, fail)
        broker.controller.submit(lambda term: term.epoch, answers)
        assert answers.next() == 1


def test_work_is_done_in_the_order_of_its_coming(zookeeper: ZooKeeper) -> None:
    """One piece after the other."""
    numbers = itertools.count()
    with brokers(zookeeper, 1) as (broker,):
        answers = Answers()
        for _ in range(100):
            broker.controller.submit(lambda _term: next(numbers), answers)
        assert [answers.next() for _ in range(100)] == list(range(100))
