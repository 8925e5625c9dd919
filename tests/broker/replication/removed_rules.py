"""Takes rules of replication out of the code, one each: the model must notice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ottla.broker.replication.follower import steps
from ottla.broker.replication.follower.steps import FetchPosition
from ottla.broker.replication.leader.leadership import FollowerFetch, IsrProposal, Leadership, RemoteReplica
from ottla.broker.replication.partition import EpochEndOffset, Partition, PartitionRole
from ottla.broker.storage.logs import Logs
from ottla.protocol.errors import ErrorCode


def high_watermark_over_committed_isr(patch: pytest.MonkeyPatch) -> None:
    """One that is about to join does not hold it back."""

    def committed_end(self: Leadership, leader_end: int, *_: object) -> int:
        ends = [each.log_end_offset for broker, each in self.followers.items() if broker in self.role.isr]
        return min([leader_end, *ends])

    patch.setattr(Leadership, "committed_end", committed_end)


def high_watermark_over_proposed_isr(patch: pytest.MonkeyPatch) -> None:
    """One that is about to leave does not hold it back."""

    def committed_end(self: Leadership, leader_end: int, *_: object) -> int:
        isr = self.role.isr if self.pending is None else {broker for broker, _ in self.pending.isr}
        return min([leader_end, *(each.log_end_offset for broker, each in self.followers.items() if broker in isr)])

    patch.setattr(Leadership, "committed_end", committed_end)


def joining_below_the_start_of_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """Whoever has reached the high watermark that the leader knows may join."""

    def may_join(self: Leadership, broker: int, high_watermark: int) -> bool:
        return broker not in self.maximal_isr and self.followers[broker].log_end_offset >= high_watermark

    patch.setattr(Leadership, "may_join", may_join)


def cutting_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """What is above is taken for not committed."""

    def truncate(partition: Partition, logs: Logs, _: EpochEndOffset) -> None:
        steps._cut(partition, logs, partition.log.high_watermark)

    patch.setattr(steps, "_truncate", truncate)


def no_cutting(patch: pytest.MonkeyPatch) -> None:
    """Logs of the same length are taken for the same."""
    patch.setattr(Partition, "_diverging", lambda self, fetch: None)


def no_fencing_of_fetches(patch: pytest.MonkeyPatch) -> None:
    """The epoch in which a follower fetches does not matter."""

    def check_epoch(self: Partition, role: PartitionRole, current_leader_epoch: int) -> None:
        """Let everybody pass."""

    patch.setattr(Partition, "check_epoch", check_epoch)


def no_fencing_of_answers(patch: pytest.MonkeyPatch) -> None:
    """The epoch in which a follower asked does not matter."""

    def is_current(partition: Partition, position: FetchPosition) -> bool:
        return not partition.is_leader

    patch.setattr(steps, "_is_current", is_current)


def no_fencing_of_lives(patch: pytest.MonkeyPatch) -> None:
    """The broker epoch with which a follower fetches does not matter."""

    def known(self: Leadership, fetch: FollowerFetch) -> RemoteReplica:
        return self.followers[fetch.replica_id]

    patch.setattr(Leadership, "follower", known)


def no_broker_epochs_in_proposals(patch: pytest.MonkeyPatch) -> None:
    """The controller cannot tell in which life a follower caught up."""
    propose = Leadership.propose

    def without_epochs(self: Leadership, *arguments: object) -> IsrProposal:
        proposal = propose(self, *arguments)  # type: ignore[arg-type]
        self.pending = replace(proposal, isr=tuple((broker, -1) for broker, _ in proposal.isr))
        return self.pending

    patch.setattr(Leadership, "propose", without_epochs)


def positions_of_earlier_epochs(patch: pytest.MonkeyPatch) -> None:
    """What a follower had in an earlier epoch, it is taken to have still."""
    begin = Leadership.__init__

    def begin_with_positions(
        self: Leadership, node_id: int, role: PartitionRole, start: int, now_ms: int, earlier: Leadership | None = None
    ) -> None:
        begin(self, node_id, role, start, now_ms, earlier)
        for broker, known in earlier.followers.items() if earlier is not None else ():
            self.followers[broker].log_end_offset = known.log_end_offset

    patch.setattr(Leadership, "__init__", begin_with_positions)


def committing_with_too_few(patch: pytest.MonkeyPatch) -> None:
    """The high watermark moves however few are in sync."""
    advance, too_few = Partition._advance_high_watermark, Partition.is_under_min_isr

    def advance_anyway(self: Partition, leadership: Leadership) -> bool:
        patch.setattr(Partition, "is_under_min_isr", False)
        try:
            return advance(self, leadership)
        finally:
            patch.setattr(Partition, "is_under_min_isr", too_few)

    patch.setattr(Partition, "_advance_high_watermark", advance_anyway)


def acknowledging_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """What the leader has is taken for committed."""
    patch.setattr(Partition, "commit_error", lambda self, last_offset: ErrorCode.NONE)
