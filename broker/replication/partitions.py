"""All partitions of this broker: creates their logs, assigns their roles, and watches their replicas."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from ottla.broker.common.topic_names import check_topic_name
from ottla.broker.replication.leader.leadership import IsrAnswer, IsrProposal, PartitionRole
from ottla.broker.replication.partition import Partition, PartitionContext
from ottla.broker.storage.log import Log
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.validation import Flaw
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.replication.follower.fetchers import Fetchers
    from ottla.broker.replication.leader.isr_changes import IsrChanges
    from ottla.broker.replication.throttle import Throttles

log = structlog.get_logger(__name__)

_CHECK_SECONDS_MAX: Final = 1.0

# A partition, its topic id, and whether the controller says that it is new.
NewLog = tuple[TopicPartition, bytes, bool]


class Partitions:
    """The partitions that the controller assigned to this broker. Reading the table needs no lock."""

    def __init__(
        self,
        context: PartitionContext,
        logs: Logs,
        read_options: Callable[[str], None] = lambda topic: None,
        *,
        on_damaged: Callable[[TopicPartition], None] = lambda partition: None,
        throttles: Throttles | None = None,
    ) -> None:
        """`on_damaged` is called with a partition whose log turned out to be damaged, and cannot be used any more."""
        self.node_id = context.node_id
        self.logs = logs
        self._context = context
        context.propose = self._propose
        # Called before a log is created, because nothing announces the initial options of a topic.
        self._read_options = read_options
        # Set by `connect`; without them the ISR stays as it is, and nothing is fetched.
        self.fetchers: Fetchers | None = None
        self.isr_changes: IsrChanges | None = None
        # The replication throttles; None means no limit.
        self.throttles = throttles
        self._on_damaged = on_damaged
        # Called, with no lock held, when a partition has a new role or has left this broker.
        self.on_role_changed: Callable[[Partition], None] = lambda partition: None
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, Partition] = {}
        # The topics of these partitions, with the number of partitions here.
        self._topics: dict[bytes, tuple[str, int]] = {}
        # The number of refused requests for partitions, by topic; for metrics. Only topics that exist are counted.
        self.failed_appends: Counter[str] = Counter()
        self.failed_reads: Counter[str] = Counter()
        # The number of producers' batches that were refused because of their content.
        self.flawed_batches: Counter[Flaw] = Counter()
        self.waits = context.waits
        self._is_stopping = threading.Event()
        self._watch = threading.Thread(target=self._watch_replicas, name="replica-watch", daemon=True)

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def connect(
        self, fetchers: Fetchers, isr_changes: IsrChanges, on_role_changed: Callable[[Partition], None]
    ) -> None:
        """Take the parts that need the partitions themselves; once, before anything is led or followed."""
        self.fetchers = fetchers
        self.isr_changes = isr_changes
        self.on_role_changed = on_role_changed

    def start(self) -> None:
        """Start to expire waiting requests, and to watch for followers that fall behind."""
        self.waits.start()
        self._watch.start()
        if self.fetchers is not None:
            self.fetchers.start()
        if self.isr_changes is not None:
            self.isr_changes.start()

    def stop(self) -> None:
        """Answer all waiting requests, and stop."""
        self._is_stopping.set()
        if self._watch.is_alive():
            self._watch.join()
        if self.isr_changes is not None:
            self.isr_changes.stop()
        if self.fetchers is not None:
            self.fetchers.stop()
        self.waits.stop()

    # Finding

    def find(self, partition: TopicPartition) -> Partition | None:
        """Return a partition of this broker; None if it has no such partition."""
        return self._partitions.get(partition)

    def get(self, partition: TopicPartition) -> Partition:
        """Return a partition of this broker, or raise KafkaError.

        NOT_LEADER_OR_FOLLOWER: another broker has it. UNKNOWN_TOPIC_OR_PARTITION: the cluster does not have it.
        KAFKA_STORAGE_ERROR: its disk failed.
        """
        found = self._partitions.get(partition)
        if found is None:
            if not self._context.exists(partition):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {partition}")
        self.logs.get(partition)
        return found

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic with a partition here; None if there is none."""
        found = self._topics.get(topic_id)
        return None if found is None else found[0]

    # Roles

    def create_logs(self, wanted: Iterable[NewLog]) -> None:
        """Create the missing logs, even thousands at once.

        If a log cannot be created, or its topic's options cannot be read, the error is raised when it takes its role.
        """
        missing: dict[str, list[NewLog]] = {}
        for each in wanted:
            if each[0] not in self._partitions and self.logs.find(each[0]) is None:
                missing.setdefault(each[0].topic, []).append(each)
        for topic, of_topic in missing.items():
            # Any error is raised again when the partition takes its role; the others continue.
            with suppress(Exception):
                self._create_logs_of(topic, of_topic)
        self.logs.sync_created()

    def _create_logs_of(self, topic: str, wanted: Iterable[NewLog]) -> None:
        # The name is part of the paths of its options and of its logs.
        check_topic_name(topic)
        self._read_options(topic)
        for partition, topic_id, is_new in wanted:
            with suppress(KafkaError):
                self.logs.create(partition, topic_id, is_new=is_new)

    def _create_log(self, partition: TopicPartition, topic_id: bytes, *, is_new: bool) -> None:
        """Create the log of a partition if it is missing; raise the error if its options cannot be read."""
        if partition not in self._partitions and self.logs.find(partition) is None:
            self._create_logs_of(partition.topic, [(partition, topic_id, is_new)])
            self.logs.sync_created()

    def take_role(self, partition: TopicPartition, topic_id: bytes, role: PartitionRole, *, is_new: bool) -> Partition:
        """Become leader or follower as the controller says. Creates the log if it is missing."""
        with self._lock:
            follows = role.leader_id not in (NO_LEADER, self.node_id)
            if follows and partition in self.logs.broken:
                self._set_aside(partition, "its log is damaged, and the leader has another copy")
            self._create_log(partition, topic_id, is_new=is_new)
            known = self._partitions.get(partition)
            if known is None:
                replica_log = self._log_of(partition, topic_id, is_new=is_new)
                known = Partition(partition, topic_id, replica_log, self._context)
                self._enter(known)
            self.logs.get(partition)
            has_changed = known.take_role(role)
        if has_changed:
            if self.fetchers is not None:
                if follows:
                    self.fetchers.add(known, role.leader_id)
                else:
                    self.fetchers.remove(partition)
            self.waits.moved(partition)
            self.on_role_changed(known)
        return known

    def _enter(self, partition: Partition) -> None:
        name, count = self._topics.get(partition.topic_id, (partition.partition.topic, 0))
        self._topics[partition.topic_id] = (name, count + 1)
        self._partitions[partition.partition] = partition

    def _leave(self, partition: TopicPartition) -> None:
        left = self._partitions.pop(partition, None)
        if left is not None:
            name, count = self._topics.pop(left.topic_id)
            if count > 1:
                self._topics[left.topic_id] = (name, count - 1)

    def _log_of(self, partition: TopicPartition, topic_id: bytes, *, is_new: bool) -> Log:
        try:
            return self.logs.create(partition, topic_id, is_new=is_new)
        except KafkaError as error:
            if error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
                raise
            # The topic was deleted and created again while this broker was away.
            self._set_aside(partition, error.detail)
            self._create_log(partition, topic_id, is_new=is_new)
            return self.logs.create(partition, topic_id, is_new=is_new)

    def _set_aside(self, partition: TopicPartition, reason: str) -> None:
        log.warning("replica_set_aside", partition=str(partition), reason=reason)
        self._leave(partition)
        for error in self.logs.set_aside([partition]).values():
            raise error

    def drop(self, partition: TopicPartition, *, delete: bool, kept_until_ms: int | None = None) -> None:
        """Stop serving a partition; with `delete`, delete its log too, or keep it aside until a time."""
        with self._lock:
            dropped = self._partitions.get(partition)
            if dropped is not None:
                # First, so that code that holds the partition's lock can see in the table that it is gone.
                dropped.resign()
                self._leave(partition)
        if self.fetchers is not None:
            self.fetchers.remove(partition)
        self.waits.moved(partition)
        if dropped is not None:
            self.on_role_changed(dropped)
        if delete:
            for error in self.logs.delete([partition], kept_until_ms=kept_until_ms).values():
                raise error

    def session_expired(self) -> None:
        """Stop leading, because our registration is gone and other leaders are elected. Followers continue."""
        for partition in self:
            if partition.is_leader:
                partition.resign()
                self.waits.moved(partition.partition)
                self.on_role_changed(partition)

    def session_renewed(self) -> None:
        """Do nothing: the controller assigns every role again."""

    def failed(self, partitions: Iterable[TopicPartition]) -> None:
        """Wake requests that wait for partitions whose disk failed or whose topic is deleted."""
        for partition in partitions:
            self.waits.moved(partition)

    def space_returned(self) -> None:
        """Copy partitions again that waited for space on a disk."""
        if self.fetchers is not None:
            self.fetchers.resume_copies()

    def deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Wake requests that wait for partitions of deleted topics, and forget what was counted by topic."""
        self.failed(partitions)
        for topic in {partition.topic for partition in partitions}:
            self.failed_appends.pop(topic, None)
            self.failed_reads.pop(topic, None)

    def brokers_changed(self) -> None:
        """Check waiting deletions of records again, because they do not wait for brokers that are gone."""
        if self.waits.deletions:
            for partition in self:
                self.waits.low_watermark_moved(partition.partition)

    # In sync

    def _propose(self, proposal: IsrProposal) -> None:
        if self.isr_changes is not None:
            self.isr_changes.submit(proposal, self._take_answer)

    def _take_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        partition = self._partitions.get(proposal.partition)
        if partition is not None:
            partition.take_isr_answer(proposal, answer)

    def _watch_replicas(self) -> None:
        """Periodically look for followers that have fallen behind, and for damaged logs."""
        left_seconds = 0.0
        while True:
            half_lag_seconds = self._context.lag_max_ms() / 2000
            pause_seconds = min(half_lag_seconds, _CHECK_SECONDS_MAX)
            if self._is_stopping.wait(pause_seconds):
                return
            left_seconds -= pause_seconds
            try:
                self._look_for_damage()
                if self.isr_changes is not None and not self._context.may_lead_alone():
                    self.isr_changes.ask_whether_registered()
                if left_seconds <= 0:
                    left_seconds = half_lag_seconds
                    for partition in self:
                        partition.shrink_isr()
            except Exception:
                log.exception("replica_watch_failed")

    def _look_for_damage(self) -> None:
        for partition in self:
            reason = partition.log.damage
            if reason is not None and self.logs.find(partition.partition) is partition.log:
                self.logs.mark_broken(partition.partition, reason)
                self.waits.moved(partition.partition)
                self._on_damaged(partition.partition)
