"""Members of an ISR that restarted unseen: they may have lost the end of their logs, so they neither lead nor stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.broker.controller.brokers import Broker, brokers
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.controller.election import ControllerMovedError
from ottla.broker.controller.isr_updates import IsrUpdate
from ottla.broker.controller.term import Term
from ottla.protocol.identifiers import TopicPartition

ORDERS = TopicPartition("orders", 0)
REPLICAS = [1, 2, 3]


@contextmanager
def restarted(zookeeper: ZooKeeper, broker: Broker) -> Iterator[Broker]:
    """Let a broker lose its power, and register again."""
    broker.zookeeper.close()
    returned = Broker(zookeeper, broker.id)
    try:
        yield returned
    finally:
        returned.stop()


def leader_and_isr(broker: Broker) -> tuple[int, list[int]]:
    """Read the state of the partition from ZooKeeper."""
    path = znodes.state_path(*ORDERS)
    node = znodes.PartitionStateNode.decode(broker.zookeeper.read(path).data, path)
    return node.leader, node.isr


def create_orders(first: Broker) -> None:
    """Create a topic that the first broker leads, with all brokers in sync."""
    first.cluster.create_topic(TopicSpec("orders", assignment={0: REPLICAS}))
    first.fake.wait_for(lambda: first.fake.leader("orders") == 1)


def die(*members: Broker) -> None:
    """End brokers without a word; those that follow are not elected in their place."""
    for broker in reversed(members):
        broker.controller.close()
    members[0].zookeeper.close()


def wait_for_office(broker: Broker, epoch: int) -> None:
    """Wait until a broker is in office for so many terms, and has done what each term begins with."""
    broker.fake.wait_for(lambda: broker.fake.metadata.snapshot.controller_epoch == epoch)
    broker.do(lambda _term: None)


def test_a_restarted_member_does_not_follow_a_dead_leader_in_office(zookeeper: ZooKeeper) -> None:
    """The leader is dead, one member restarted, and one never stopped: that one has everything, and leads."""
    with brokers(zookeeper, *REPLICAS) as (first, second, third):
        create_orders(first)
        die(first, second, third)
        with restarted(zookeeper, second) as returned:
            wait_for_office(returned, 2)
            assert leader_and_isr(returned) == (3, [3])


def test_a_controller_that_dies_at_work_does_not_hide_a_restart(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the dead leader out of the ISR, so the state is younger than the registration of the restarted."""
    begin_partitions = Term._begin_partitions
    terms: list[int] = []

    def die_in_the_first_term(term: Term) -> None:
        terms.append(term.epoch)
        if len(terms) == 1:
            raise ControllerMovedError("died before the election")
        begin_partitions(term)

    with brokers(zookeeper, *REPLICAS) as (first, second, third):
        create_orders(first)
        die(first, second, third)
        monkeypatch.setattr(Term, "_begin_partitions", die_in_the_first_term)
        with restarted(zookeeper, second) as returned:
            wait_for_office(returned, 3)
            assert terms == [2, 3]
            assert leader_and_isr(returned) == (3, [3])


def test_an_isr_that_was_written_between_a_restart_and_its_notice_does_not_hide_it(zookeeper: ZooKeeper) -> None:
    """The controller knew the life before only; the next one sees that another is registered."""
    with brokers(zookeeper, *REPLICAS) as (first, second, third):
        create_orders(first)
        third.controller.close()
        second.controller.close()
        returned: list[Broker] = []

        def shrink_and_die(term: Term) -> None:
            # What the watch has to say is behind this in the queue.
            second.zookeeper.close()
            returned.append(Broker(zookeeper, 2))
            returned[0].controller.close()
            known = {broker.id: broker.epoch for broker in term.context.brokers.values()}
            state = term.context.leadership[ORDERS]
            update = IsrUpdate(state.leader_epoch, state.partition_epoch, ((1, known[1]), (2, known[2])))
            term.isr_updates.update(1, known[1], {ORDERS: update})
            raise ControllerMovedError("died before the notice")

        first.controller.submit(shrink_and_die, lambda _answer: None)
        try:
            wait_for_office(first, 2)
            assert leader_and_isr(first) == (1, [1])
        finally:
            for broker in returned:
                broker.stop()


def test_members_that_all_restarted_stay(zookeeper: ZooKeeper) -> None:
    """Nobody has more than they; and a later controller does not suspect them again."""
    with brokers(zookeeper, *REPLICAS) as (first, second, third):
        create_orders(first)
        for broker in (third, second, first):
            broker.controller.close()
        # The office stays taken while the session of the first broker lasts.
        with restarted(zookeeper, third) as last, restarted(zookeeper, second) as returned:
            last.controller.close()
            first.zookeeper.close()
            wait_for_office(returned, 2)
            before = leader_and_isr(returned)
            returned.zookeeper.delete(znodes.CONTROLLER)
            wait_for_office(returned, 3)
            assert (before, leader_and_isr(returned)) == ((2, [2, 3]), (2, [2, 3]))
