"""Finds positions that are not in a new leader's log, before anything is fetched there (KIP-320)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.client.consumer.assigned_partitions import AssignedPartition, AssignedPartitions
from ottla.client.consumer.epoch_lookup import EpochEnd, epoch_ends
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.errors import KafkaError, LogTruncationError, UnsupportedVersionError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.types import OffsetAndMetadata


class Truncation:
    """Validates positions whose partition has a newer leader epoch than at their last validation."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ConsumerSettings,
        partitions: AssignedPartitions,
        refused: Callable[[AssignedPartition, KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._partitions = partitions
        self._refused = refused
        self._asking: set[AssignedPartition] = set()

    def is_suspected(self, state: AssignedPartition) -> bool:
        """Whether the position must be validated before the next fetch."""
        if state.position is None or state.fetch_epoch is None:
            return False
        known = self._cluster.snapshot.partition(state.partition)
        return known is not None and known.leader_epoch > max(state.validated_epoch, state.fetch_epoch)

    def due(self, now: float) -> list[AssignedPartition]:
        """Return the positions to validate now; they count as in progress until `ask` returns."""
        due = [
            state
            for state in self._partitions
            if self.is_suspected(state)
            and state not in self._asking
            and state.failure is None
            and state.not_before <= now
        ]
        self._asking.update(due)
        return due

    async def ask(self, states: list[AssignedPartition]) -> None:
        """Ask the leaders, and correct positions that are not in their logs."""
        asked = {state: (state.session, state.fetch_offset, self._epoch(state)) for state in states}
        wanted = {state.partition: state.fetch_epoch for state in states if state.fetch_epoch is not None}
        try:
            found = await epoch_ends(self._cluster, wanted)
            for state, (session, offset, leader_epoch) in asked.items():
                end = found.get(state.partition)
                # Records fetched meanwhile are validated separately.
                if (state.session, state.fetch_offset) != (session, offset) or end is None:
                    continue
                if isinstance(end, UnsupportedVersionError):
                    state.validated_epoch = leader_epoch
                elif isinstance(end, KafkaError):
                    self._refused(state, end)
                elif end.is_known and end.end_offset >= offset:
                    state.validated_epoch = leader_epoch
                else:
                    self.found(state, end)
        finally:
            self._asking.difference_update(states)
            self._partitions.wanted.set()

    def found(self, state: AssignedPartition, end: EpochEnd) -> None:
        """Drop fetched records that are not in the log; continue where the log diverges, or raise to the reader."""
        position, epoch = state.position, self._epoch(state)
        if position is None:
            return
        if end.is_known and end.end_offset >= position:
            # All records that the caller got are still in the log.
            state.rewind(position, state.leader_epoch)
            state.validated_epoch = epoch
            return
        policy = self._settings.auto_offset_reset
        if policy == "none":
            # The buffered records are from the old log: the caller has to choose a position first.
            state.rewind(position, state.leader_epoch)
            diverging = OffsetAndMetadata(end.end_offset, "", end.leader_epoch) if end.is_known else None
            where = f"it is unchanged up to offset {end.end_offset}" if end.is_known else "no common epoch is known"
            state.failure = LogTruncationError(f"{state.partition} was truncated before {position}; {where}", diverging)
        elif end.is_known:
            state.rewind(end.end_offset, end.leader_epoch)
            state.validated_epoch = epoch
        else:
            state.seek_by(policy)
        self._partitions.arrived.set()

    def _epoch(self, state: AssignedPartition) -> int:
        known = self._cluster.snapshot.partition(state.partition)
        return -1 if known is None else known.leader_epoch
