"""The messages of the model: what lies between brokers and controller until a test lets it arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.replication.follower.steps import Fetched, FetchPosition
from ottla.broker.replication.leader.leadership import IsrAnswer, IsrProposal, PartitionRole


class RoleMessage(NamedTuple):
    """What the controller sends: LeaderAndIsr, and the live brokers of UpdateMetadata."""

    number: int
    broker: int
    broker_epoch: int
    controller_epoch: int
    role: PartitionRole
    live: frozenset[int]


class FetchMessage(NamedTuple):
    """A fetch on its way to the leader."""

    number: int
    follower: int
    broker_epoch: int
    leader: int
    position: FetchPosition


class FetchedMessage(NamedTuple):
    """The answer on its way back."""

    request: FetchMessage
    fetched: Fetched


class ProposalMessage(NamedTuple):
    """AlterPartition on its way to the controller."""

    broker: int
    broker_epoch: int
    proposal: IsrProposal


class AnswerMessage(NamedTuple):
    """The controller's answer on its way back."""

    request: ProposalMessage
    answer: IsrAnswer


@dataclass(slots=True)
class InFlight:
    """The messages that were sent and have not arrived."""

    roles: list[RoleMessage] = field(default_factory=list)
    fetches: list[FetchMessage] = field(default_factory=list)
    fetched: list[FetchedMessage] = field(default_factory=list)
    proposals: list[ProposalMessage] = field(default_factory=list)
    answers: list[AnswerMessage] = field(default_factory=list)
