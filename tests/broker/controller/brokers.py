"""Brokers without logs: a session, a registration, a controller, and a fake broker that hears the controllers."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.broker.controller.fake_brokers import FakeBroker
from tests.broker.sessions import TIMEOUT_S, clock, session
from tests.kit.answers import answering
from tests.kit.services import for_handler
from tests.kit.zookeeper import ZooKeeper as Ensemble

from ottla.broker.app.wiring import wire
from ottla.broker.cluster.session import SessionRenewal
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.term import Term
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.request import Request
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import KafkaError
from ottla.protocol.message import Message

T = TypeVar("T")

CLOCKS = Clocks(clock)


class Broker:
    """A member of a cluster that may become its controller."""

    def __init__(
        self, ensemble: Ensemble, broker_id: int, options: Mapping[str, str] | None = None, clocks: Clocks = CLOCKS
    ) -> None:
        settings = {"zookeeper.connect": ensemble.connect, "broker.id": str(broker_id), **(options or {})}
        config = BrokerConfig.of(settings)
        self.id = broker_id
        self.failures: list[Exception] = []
        self.zookeeper = session(ensemble.connect)
        self.zookeeper.start()
        self.services = wire(config, self.zookeeper, clocks)
        self.membership, self.controller = self.services.membership, self.services.controller
        self.cluster = self.services.cluster
        self.fake = FakeBroker(self.services.metadata)
        self.fake.on_metadata = self._check_delayed
        self.renewal = SessionRenewal(self.zookeeper, [self.membership, self.controller], self.failures.append)
        self.renewal.start()
        self.membership.register([self.fake.listener])
        self.services.delayed_topics.start()
        self.controller.start()

    def _check_delayed(self, topics: Collection[str]) -> None:
        for topic in topics:
            self.services.delayed_topics.check(topic)

    def ask(self, api: Api, version: int, body: Message) -> Any:
        """Ask a handler, and wait for the response; both pass through the codec."""
        sent = decode(api.request, version, encode(body, version))
        answer = HANDLERS[api].handle(
            Request(api, version, sent, "test", Session("PLAINTEXT", "127.0.0.1"), for_handler(self.services, api))
        )
        assert answer is not None
        responses: queue.SimpleQueue[Message] = queue.SimpleQueue()
        if isinstance(answer, Message):
            responses.put(answer)
        else:
            answer.then(answering(responses.put))
        return decode(api.response, version, encode(responses.get(timeout=TIMEOUT_S), version))

    def do(self, work: Callable[[Term], T]) -> T:
        """Do something on the controller's thread, and return what came of it."""
        answers: queue.SimpleQueue[T | KafkaError] = queue.SimpleQueue()
        self.controller.submit(work, answers.put)
        answer = answers.get(timeout=TIMEOUT_S)
        assert not isinstance(answer, KafkaError)
        return answer

    def wait_until_gone(self, path: str) -> None:
        """Wait until a node is deleted."""
        assert self.membership._wait_until_gone(path, TIMEOUT_S)

    def wait_for_brokers(self, count: int) -> None:
        """Wait until the broker has heard of so many live ones."""
        self.fake.wait_for(lambda: len(self.fake.metadata.snapshot.brokers) == count)

    def stop(self) -> None:
        """Leave the cluster."""
        self.renewal.close()
        self.controller.close()
        self.services.delayed_topics.stop()
        self.zookeeper.close()
        self.fake.close()


@contextmanager
def brokers(
    ensemble: Ensemble, *ids: int, options: Mapping[str, str] | None = None, clocks: Clocks = CLOCKS
) -> Iterator[list[Broker]]:
    """Start brokers one after the other; the first one is the controller. All know each other when they are given."""
    started: list[Broker] = []
    try:
        for broker_id in ids:
            started.append(Broker(ensemble, broker_id, options, clocks))
            for broker in started:
                broker.wait_for_brokers(len(started))
        yield started
    finally:
        for broker in started:
            broker.stop()


def lose_the_last_in_sync(first: Broker, second: Broker) -> None:
    """Make a topic, orders, of which only the second broker is in sync, and let that one go."""
    # A broker that is about to stop is in no ISR.
    first.do(lambda term: term.context.shutting_down.add(1))
    first.cluster.create_topic(TopicSpec("orders", assignment={0: [2, 1]}))
    first.fake.wait_for(lambda: first.fake.leader("orders") == 2)
    first.do(lambda term: term.context.shutting_down.discard(1))
    second.zookeeper.close()
    first.fake.wait_for(lambda: first.fake.leader("orders") == -1)
