"""What tests of reassignment do to a cluster of brokers that only listen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest
from tests.broker.controller.brokers import Broker
from tests.broker.controller.fake_brokers import FakeBroker
from tests.broker.sessions import TIMEOUT_S

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import MultiError, NodeStat, Operation
from ottla.broker.controller.election import Fence
from ottla.broker.controller.isr_updates import IsrUpdate
from ottla.broker.controller.term import Term
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

T = TypeVar("T")

# Replicas, added ones, removed ones.
Lists = tuple[list[int], list[int], list[int]]


def wait_for(broker: Broker, condition: Callable[[FakeBroker], object]) -> None:
    """Wait until what a broker was told makes a condition true."""
    broker.fake.wait_for(lambda: condition(broker.fake))


class Cluster:
    """Brokers, of which one is the controller."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self.brokers = {broker.id: broker for broker in brokers}

    @property
    def controller(self) -> Broker:
        """Return the controller; wait until there is one."""
        witness = next(iter(self.brokers.values()))
        witness.fake.wait_for(lambda: any(each.controller.is_active for each in self.brokers.values()))
        return next(each for each in self.brokers.values() if each.controller.is_active)

    def kill(self, broker_id: int) -> None:
        """Let a broker leave the cluster."""
        broker = self.brokers.pop(broker_id)
        broker.controller.close()
        broker.zookeeper.close()

    def ask(self, work: Callable[[Term], T]) -> T | KafkaError:
        """Do something in the present term, and return what came of it."""
        answered = threading.Event()
        answers: list[T | KafkaError] = []

        def answer(outcome: T | KafkaError) -> None:
            answers.append(outcome)
            answered.set()

        self.controller.controller.submit(work, answer)
        assert answered.wait(TIMEOUT_S)
        return answers[0]

    def do(self, work: Callable[[Term], T]) -> T:
        """Do something in whatever term it can be done."""
        while True:
            outcome = self.ask(work)
            if not isinstance(outcome, KafkaError):
                return outcome
            assert outcome.code is ErrorCode.NOT_CONTROLLER

    def alter(self, partition: TopicPartition, target: Sequence[int] | None) -> ErrorCode:
        """Move one partition, or cancel that."""
        outcome = self.ask(lambda term: term.reassignments.alter({partition: target}))
        error = outcome if isinstance(outcome, KafkaError) else outcome[partition]
        return ErrorCode.NONE if error is None else error.code

    def catch_up(self, partition: TopicPartition, *isr: int) -> None:
        """Let the leader of a partition say who is in sync: some, or all that live."""

        def propose(term: Term) -> None:
            state = term.context.leadership[partition]
            members = isr or tuple(term.context.online_replicas(partition))
            update = IsrUpdate(state.leader_epoch, state.partition_epoch, tuple((each, -1) for each in members))
            leader = term.context.brokers[state.leader]
            assert not isinstance(term.isr_updates.update(leader.id, leader.epoch, {partition: update}), ErrorCode)

        outcome = self.ask(propose)
        assert outcome is None or isinstance(outcome, KafkaError)

    def listed(self, *partitions: TopicPartition) -> dict[TopicPartition, Lists]:
        """Return the reassignments of some partitions, or of all."""
        found = self.do(lambda term: term.reassignments.listing(partitions or None))
        return {each: (list(lists[0]), list(lists[1]), list(lists[2])) for each, lists in found.items()}

    def recorded(self, partition: TopicPartition) -> Lists:
        """Return what the topic's node says of a partition."""
        path = znodes.topic_path(partition.topic)
        zookeeper = next(iter(self.brokers.values())).zookeeper
        node = znodes.TopicNode.decode(zookeeper.read(path).data, path)
        index = partition.partition
        return node.partitions[index], node.adding_replicas.get(index, []), node.removing_replicas.get(index, [])

    def state(self, partition: TopicPartition) -> znodes.PartitionStateNode:
        """Return what the state node of a partition says."""
        path = znodes.state_path(*partition)
        return znodes.PartitionStateNode.decode(next(iter(self.brokers.values())).zookeeper.read(path).data, path)

    def wait_until_done(self, partition: TopicPartition) -> None:
        """Wait until the controller has nothing more to do for a partition."""
        while True:
            # The answer of a broker is an event of the controller, which tells all brokers when it is done.
            witness = self.controller
            seen = len(witness.fake.requests)
            if not self.listed(partition):
                return
            wait_for(witness, partial(_has_more_than, seen))


def _has_more_than(count: int, fake: FakeBroker) -> bool:
    return len(fake.requests) > count


class Stopped(Exception):  # noqa: N818 - not an error, the end of a controller
    """A controller dies here."""


class Stop:
    """Ends controllers after a number of writes; the next one after that lives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        write_all = Fence.multi_many

        def write_and_stop(
            fence: Fence, multis: Sequence[Sequence[Operation]]
        ) -> list[list[NodeStat | None] | MultiError]:
            outcomes = write_all(fence, multis)
            if multis and self.left is not None:
                self.left -= 1
                if self.left == 0:
                    self.left = None
                    raise Stopped
            return outcomes

        monkeypatch.setattr(Fence, "multi_many", write_and_stop)
