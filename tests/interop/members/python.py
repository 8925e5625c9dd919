"""Members with kafka-python."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from tests.interop.clients.python import KafkaConsumer, errors
from tests.interop.clients.python import TopicPartition as TheirPartition
from tests.interop.clients.record import DEADLINE_S
from tests.interop.members.member import HEARTBEAT_INTERVAL_MS, POLL_MS, Commit, Got, Member
from tests.kit.waiting import until

from ottla.protocol.identifiers import TopicPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, OffsetAndMetadata
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_NO_EPOCH = -1
_METADATA_MAX_AGE_MS = 2000


class PythonMember(Member):
    """A KafkaConsumer."""

    name = "kafka-python"
    # It joins during a poll, waits for metadata before that, and begins again where a poll is too short for both. On a
    # machine with other work it never ends, unless polls become longer.
    poll_ms_min = 300
    poll_ms_max = 10_000

    def _open(self) -> None:
        how = self.how
        self._poll_ms = self.poll_ms_min
        self._client: Any = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=how.group,
            group_instance_id=how.instance_id,
            partition_assignment_strategy=(_ASSIGNORS[how.assignor],),
            session_timeout_ms=how.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            metadata_max_age_ms=_METADATA_MAX_AGE_MS,
            auto_offset_reset=how.reset,
            enable_auto_commit=how.auto_commit_interval_ms is not None,
            auto_commit_interval_ms=how.auto_commit_interval_ms or 5000,
            fetch_max_wait_ms=2 * POLL_MS,
        )
        listener = _Listener(self)
        if how.pattern:
            self._client.subscribe(pattern=how.pattern, listener=listener)
        else:
            # Metadata that is new after it has joined makes it join again, and it may drop what that gives it: have it
            # before.
            for topic in how.topics:
                self._client.partitions_for_topic(topic)
            self._client.subscribe(list(how.topics), listener=listener)

    def _poll(self) -> Iterable[Got]:
        for partition, records in self._client.poll(timeout_ms=self._poll_ms).items():
            yield from (Got(TopicPartition(*partition), record.offset, record.value) for record in records)
        coordinator = self._client._coordinator
        is_joining = coordinator.need_rejoin()
        if coordinator._join_task is not None and not is_joining:
            # Its metadata had changed, so it joined again, and the poll was over before that. It forgets to end this:
            # it has its partitions, but sends no heartbeats any more.
            coordinator.request_rejoin()
        self._poll_ms = min(2 * self._poll_ms, self.poll_ms_max) if is_joining else self.poll_ms_min

    def _assignment(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(*partition) for partition in self._client.assignment())

    def _leave(self) -> None:
        self._client.close(autocommit=self.how.auto_commit_interval_ms is not None)

    def _generation(self) -> int:
        return int(self._client.group_metadata().generation_id)

    def _commit(self, offsets: dict[TopicPartition, Commit]) -> None:
        theirs = {
            TheirPartition(*partition): OffsetAndMetadata(*commit, _NO_EPOCH) for partition, commit in offsets.items()
        }

        def is_committed() -> bool:
            self._client.commit(theirs, timeout_ms=DEADLINE_S * 1000)
            return True

        # It may just be joining again, and asks for a poll first.
        until(
            is_committed,
            "it commits",
            meanwhile=lambda: self.got.extend(self._poll()),
            not_yet=errors.RebalanceInProgressError,
        )

    def _committed(self, partition: TopicPartition) -> Commit | None:
        found = self._client.committed(TheirPartition(*partition), metadata=True, timeout_ms=DEADLINE_S * 1000)
        return None if found is None else Commit.of(found.offset, found.metadata)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: PythonMember) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: set[Any]) -> None:
        if revoked:
            self._member.revoked.append(frozenset(TopicPartition(*partition) for partition in revoked))

    def on_partitions_assigned(self, assigned: set[Any]) -> None:
        pass
