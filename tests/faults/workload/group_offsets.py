"""Somebody who asks the coordinator of a group, again and again, how far the group is."""

from __future__ import annotations

import time

from tests.faults.checker.history import Commit
from tests.faults.workload.connections import Connections
from tests.faults.workload.settings import Settings

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

FIND_COORDINATOR_VERSION, OFFSET_FETCH_VERSION = 3, 7
INTERVAL_S = 0.25


class GroupOffsets:
    """Wants stable positions: a partition with offsets in an open transaction has no answer until it has ended."""

    def __init__(self, settings: Settings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._connections = Connections(settings, "group-offsets")

    def run(self) -> None:
        """Ask until told to stop."""
        try:
            while not self._settings.stopping.wait(INTERVAL_S):
                self.ask()
        finally:
            self.close()

    def ask(self) -> bool:
        """Ask once, and write down what is known; return whether every partition had an answer."""
        try:
            found: FindCoordinatorResponse = self._connections.to_next_bootstrap().request(
                Api.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, FindCoordinatorRequest(key=self._group, key_type=0)
            )
            if found.error_code != ErrorCode.NONE:
                return False
            invoked_ns = time.monotonic_ns()
            answer: OffsetFetchResponse = self._connections.to((found.host, found.port)).request(
                Api.OFFSET_FETCH, OFFSET_FETCH_VERSION, self._request()
            )
        except KafkaError:
            return False
        if answer.error_code != ErrorCode.NONE:
            return False
        rows = [row for row in answer.topics[0].partitions if row.error_code == ErrorCode.NONE]
        for row in rows:
            self._settings.history.write(
                Commit(
                    worker=f"broker {found.node_id}",
                    group=self._group,
                    partition=self._settings.partition(row.partition_index),
                    offset=row.committed_offset,
                    invoked_ns=invoked_ns,
                )
            )
        return len(rows) == self._settings.partitions

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _request(self) -> OffsetFetchRequest:
        wanted = OffsetFetchRequestTopic(
            name=self._settings.topic, partition_indexes=list(range(self._settings.partitions))
        )
        return OffsetFetchRequest(group_id=self._group, topics=[wanted], require_stable=True)
