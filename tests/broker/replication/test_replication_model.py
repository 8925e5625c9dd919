"""Whatever happens to three replicas, and in whatever order: nothing that was committed is lost or changes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.broker.replication.cluster_checks import Checks, check_healed
from tests.broker.replication.cluster_model import LAG_MAX_MS, Cluster, ModelBroker
from tests.broker.replication.controller_model import REPLICAS
from tests.broker.replication.in_flight import RoleMessage
from tests.broker.storage.logs import memory_directory
from tests.kit.examples import examples

FAILURES = [
    "crash",
    "power",
    "session over",
    "session renewed",
    "bounce without controller",
    "controller",
    "connections",
]

brokers = st.sampled_from(REPLICAS)
choices = st.integers(0, 7)

T = TypeVar("T")


def taken(messages: list[T], choice: int) -> T:
    """Take a message off its way."""
    return messages.pop(choice % len(messages))


class ReplicationMachine(RuleBasedStateMachine):
    """Lets everything happen to a cluster that can."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-cluster-", dir=memory_directory()))
        self.cluster = Cluster(self.directory)
        self.in_flight = self.cluster.in_flight
        self.checks = Checks(self.cluster)
        while self.in_flight.roles:
            self.cluster.deliver_role(self.in_flight.roles.pop())

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.discard()

    def settle(self) -> None:
        """Let everything work again, and see that it does."""
        check_healed(self.cluster, self.checks)

    def discard(self) -> None:
        """Stop all brokers, and remove their files."""
        for broker in self.running:
            broker.stop()
        shutil.rmtree(self.directory)

    @invariant()
    def everything_holds(self) -> None:
        self.checks.check()

    @property
    def running(self) -> list[ModelBroker]:
        return [broker for broker in self.cluster.brokers.values() if broker.partition is not None]

    @property
    def leaders(self) -> list[ModelBroker]:
        return [broker for broker in self.running if broker.leads]

    # Clients

    @precondition(lambda self: self.leaders)
    @rule(choice=choices, count=st.integers(1, 3), acks=st.sampled_from([-1, -1, 1]))
    def append(self, choice: int, count: int, acks: int) -> None:
        leader = self.leaders[choice % len(self.leaders)]
        for _ in range(count):
            self.cluster.append(leader, acks)

    @rule(
        broker=brokers,
        what=st.sampled_from(["consume", "delete records", "checkpoint", "flush"]),
        count=st.integers(0, 6),
    )
    def use(self, broker: int, what: str, count: int) -> None:
        used = self.cluster.brokers[broker]
        if used.partition is None:
            return
        log = used.partition.log
        offset = max(log.high_watermark - count, log.log_start_offset)
        match what:
            case "consume":
                data = self.cluster.consume(used, offset)
                if data is not None:
                    self.checks.check_consumed(used, data)
            case "delete records":
                if used.leads:
                    log.advance_log_start(offset)
                    self.checks.deleted_below = max(self.checks.deleted_below, log.log_start_offset)
            case _:
                self.cluster.checkpoint(used, flushes=what == "flush")

    # Following

    @rule(broker=brokers)
    def send_fetch(self, broker: int) -> None:
        self.cluster.send_fetch(self.cluster.brokers[broker])

    @precondition(lambda self: self.in_flight.fetches)
    @rule(choice=choices)
    def deliver_fetch(self, choice: int) -> None:
        before = len(self.in_flight.fetched)
        self.cluster.deliver_fetch(taken(self.in_flight.fetches, choice))
        for message in self.in_flight.fetched[before:]:
            self.checks.check_fetched(message)

    @precondition(lambda self: self.in_flight.fetched)
    @rule(choice=choices)
    def deliver_fetched(self, choice: int) -> None:
        self.cluster.deliver_fetched(taken(self.in_flight.fetched, choice))

    @rule(broker=brokers, rounds=st.integers(1, 4))
    def follow(self, broker: int, rounds: int) -> None:
        for _ in range(rounds):
            self.send_fetch(broker)
            if not self.in_flight.fetches or self.in_flight.fetches[-1].follower != broker:
                return
            before = len(self.in_flight.fetched)
            self.deliver_fetch(-1)
            if len(self.in_flight.fetched) > before:
                self.deliver_fetched(-1)

    # In sync

    @precondition(lambda self: self.leaders)
    @rule(choice=choices, passed_ms=st.sampled_from([0, LAG_MAX_MS // 2, LAG_MAX_MS * 2]))
    def look_for_lagging(self, choice: int, passed_ms: int) -> None:
        self.cluster.clock.now += passed_ms
        leading = self.leaders[choice % len(self.leaders)].partition
        assert leading is not None
        leading.shrink_isr()

    @precondition(lambda self: self.in_flight.proposals)
    @rule(choice=choices)
    def deliver_proposal(self, choice: int) -> None:
        self.cluster.deliver_proposal(taken(self.in_flight.proposals, choice))

    @precondition(lambda self: self.in_flight.answers)
    @rule(choice=choices, is_lost=st.sampled_from([False, False, True]))
    def deliver_answer(self, choice: int, is_lost: bool) -> None:
        message = taken(self.in_flight.answers, choice)
        if is_lost:
            self.cluster.lose_answer(message)
        else:
            self.cluster.deliver_answer(message)

    @precondition(lambda self: self.in_flight.proposals)
    @rule()
    def agree(self) -> None:
        self.cluster.deliver_proposal(self.in_flight.proposals.pop())
        self.cluster.deliver_answer(self.in_flight.answers.pop())

    # Controller

    @precondition(lambda self: self.in_flight.roles)
    @rule(choice=choices, again=st.booleans())
    def deliver_role(self, choice: int, again: bool) -> None:
        message = taken(self.in_flight.roles, choice)
        self.tell(message)
        if again:
            self.in_flight.roles.append(message)

    def tell(self, message: RoleMessage) -> None:
        partition = self.cluster.brokers[message.broker].partition
        if partition is not None:
            before = partition.role
            self.cluster.deliver_role(message)
            self.checks.check_told(message, before)

    @precondition(lambda self: self.in_flight.roles)
    @rule(broker=brokers)
    def deliver_newest_role(self, broker: int) -> None:
        mine = [message for message in self.in_flight.roles if message.broker == broker]
        if mine:
            self.in_flight.roles.remove(mine[-1])
            self.tell(mine[-1])

    @rule(broker=brokers)
    def move_leadership(self, broker: int) -> None:
        self.cluster.controller.move_leadership(broker)

    # Failures

    @rule(broker=brokers, how=st.sampled_from(FAILURES), count=st.integers(0, 6))
    def fail(self, broker: int, how: str, count: int) -> None:
        cluster, failing = self.cluster, self.cluster.brokers[broker]
        is_running, is_registered = failing.partition is not None, broker in cluster.controller.live
        match how:
            case "crash" if is_running:
                cluster.crash(failing)
            case "power" if is_running and self.may_lose_power(broker):
                cluster.lose_power(failing, count)
            case "session over" if is_registered:
                cluster.end_session(broker)
            case "session renewed" if is_running:
                cluster.register_again(failing)
            case "bounce without controller" if is_registered:
                cluster.register_unnoticed(failing)
            case "controller":
                if count % 2:
                    self.in_flight.roles.clear()
                cluster.controller.fail_over()
            case "connections":
                self.in_flight.fetches.clear()
                self.in_flight.fetched.clear()

    def may_lose_power(self, broker: int) -> bool:
        """Whether without it a replica is left that is in sync: what it loses, that one has."""
        state, live = self.cluster.controller.state, self.cluster.controller.live
        others = [each.node_id for each in self.running if each.node_id in live and each.node_id != broker]
        return broker not in state.isr or any(other in state.isr for other in others)

    @precondition(lambda self: len(self.running) < len(REPLICAS))
    @rule()
    def restart(self) -> None:
        self.cluster.restart(next(broker for broker in self.cluster.brokers.values() if broker.partition is None))


ReplicationMachine.TestCase.settings = examples(40, stateful_step_count=60, suppress_health_check=list(HealthCheck))
TestReplication = ReplicationMachine.TestCase
