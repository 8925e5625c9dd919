"""Brokers without logs: a session, a registration, a controller, and a fake broker that hears the controllers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.broker.controller.fake_brokers import FakeBroker
from tests.broker.sessions import clock, session
from tests.zookeeper import ZooKeeper as Ensemble

from ottla.broker.cluster.cluster import Cluster
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.session import SessionRenewal
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.controller import Controller


class Broker:
    """A member of a cluster that may become its controller."""

    def __init__(self, ensemble: Ensemble, broker_id: int, options: Mapping[str, str] | None = None) -> None:
        settings = {"zookeeper.connect": ensemble.connect, "broker.id": str(broker_id), **(options or {})}
        config = BrokerConfig.of(settings)
        self.id = broker_id
        self.fake = FakeBroker()
        self.failures: list[Exception] = []
        self.zookeeper = session(ensemble.connect)
        self.zookeeper.start()
        self.membership = Membership(self.zookeeper, config, clock=clock)
        self.membership.prepare()
        cluster_id = self.membership.cluster_id()
        self.membership.choose_broker_id(None)
        self.controller = Controller(self.zookeeper, broker_id, lambda: config, clock=clock)
        self.cluster = Cluster(
            self.zookeeper,
            self.membership,
            self.fake.metadata,
            lambda: config,
            cluster_id=cluster_id,
            is_controller=lambda: self.controller.is_active,
        )
        self.renewal = SessionRenewal(self.zookeeper, [self.membership, self.controller], self.failures.append)
        self.renewal.start()
        self.membership.register([self.fake.listener])
        self.controller.start()

    def wait_for_brokers(self, count: int) -> None:
        """Wait until the broker has heard of so many live ones."""
        self.fake.wait_for(lambda: len(self.fake.metadata.snapshot.brokers) == count)

    def stop(self) -> None:
        """Leave the cluster."""
        self.renewal.close()
        self.controller.close()
        self.zookeeper.close()
        self.fake.close()


@contextmanager
def brokers(ensemble: Ensemble, *ids: int, options: Mapping[str, str] | None = None) -> Iterator[list[Broker]]:
    """Start brokers one after the other; the first one is the controller. All know each other when they are given."""
    started: list[Broker] = []
    try:
        for broker_id in ids:
            started.append(Broker(ensemble, broker_id, options))
            for broker in started:
                broker.wait_for_brokers(len(started))
        yield started
    finally:
        for broker in started:
            broker.stop()
