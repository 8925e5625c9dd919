"""A controller in memory: the state node of one partition, the registered brokers, and the rules of the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.broker.controller.isr_updates import IsrUpdate, is_present_state, refusal_of
from ottla.broker.controller.partition_states import (
    LeaderAndIsr,
    initial_state,
    offline_election,
    preferred_election,
    without_replica,
)
from ottla.broker.replication.leader.leadership import IsrAnswer, IsrProposal, PartitionRole
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import NO_LEADER

REPLICAS = (1, 2, 3)


class ControllerModel:
    """Decides as the controller does; `tell` is called whenever the brokers must hear of something."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.epoch = 1
        # Broker id and epoch of those that are registered.
        self.live = {broker: broker for broker in REPLICAS}
        self.last_zxid = len(REPLICAS)
        state = initial_state(REPLICAS, self.live, self.epoch)
        assert state is not None
        self.state: LeaderAndIsr = state
        self._tell = tell

    @property
    def role(self) -> PartitionRole:
        """What LeaderAndIsr says."""
        state = self.state
        return PartitionRole(
            state.leader, state.leader_epoch, state.partition_epoch, REPLICAS, frozenset(state.isr), (), ()
        )

    def _write(self, written: LeaderAndIsr, expected_version: int) -> None:
        """Compare and set: the version of the node is the partition epoch."""
        assert expected_version == self.state.partition_epoch, "the node was written behind the controller's back"
        self.state = replace(written, partition_epoch=expected_version + 1)

    # Brokers

    def register(self, broker: int) -> int:
        """Take a broker in, and return its epoch; one that was there has had its session end first."""
        if broker in self.live:
            self.failed(broker)
        self.last_zxid += 1
        self.live[broker] = self.last_zxid
        self._elect_if_leaderless()
        self._tell()
        return self.last_zxid

    def failed(self, broker: int) -> None:
        """Take a broker out, whose session ended: of its leadership first, then of the ISR."""
        del self.live[broker]
        state = self.state
        if state.leader == broker:
            elected = offline_election(REPLICAS, state, self.live, unclean=False)
            if elected is not None:
                self._write(elected, state.partition_epoch)
        if broker in self.state.isr and (self.state.isr != (broker,) or self.state.leader == broker):
            self._write(without_replica(self.state, broker), self.state.partition_epoch)
        self._tell()

    def _elect_if_leaderless(self) -> None:
        if self.state.leader == NO_LEADER:
            elected = offline_election(REPLICAS, self.state, self.live, unclean=False)
            if elected is not None:
                self._write(elected, self.state.partition_epoch)

    def move_leadership(self, broker: int) -> None:
        """Elect a broker that lives and is in sync, as a preferred leader is."""
        order: Sequence[int] = (broker, *(each for each in REPLICAS if each != broker))
        elected = preferred_election(order, self.state, self.live)
        if elected is not None and self.state.leader != broker:
            self._write(elected, self.state.partition_epoch)
            self._tell()

    def fail_over(self) -> None:
        """Let another controller begin, with what is stored."""
        self.epoch += 1
        self._elect_if_leaderless()
        self._tell()

    # ISR

    def answer(self, broker: int, broker_epoch: int, proposal: IsrProposal) -> IsrAnswer:
        """Take or refuse the ISR that a leader proposes."""
        if self.live.get(broker) != broker_epoch:
            return IsrAnswer(ErrorCode.STALE_BROKER_EPOCH)
        state = self.state
        update = IsrUpdate(
            proposal.leader_epoch, proposal.partition_epoch, proposal.isr, proposal.leader_recovery_state
        )
        if not is_present_state(state, broker, update):
            refusal = refusal_of(state, REPLICAS, broker, update)
            if refusal is not None:
                return IsrAnswer(refusal)
            if not all(
                self.live.get(member) is not None and epoch in (-1, self.live[member]) for member, epoch in update.isr
            ):
                return IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
            self._write(replace(state, isr=tuple(member for member, _ in update.isr)), proposal.partition_epoch)
        state = self.state
        return IsrAnswer(ErrorCode.NONE, state.leader, state.leader_epoch, state.isr, state.partition_epoch)
