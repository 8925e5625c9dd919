"""A fetcher: the thread that copies partitions from one leader.

        round   take changes -> flush what must be on disk -> Fetch -> append or truncate each partition of the response
                -> put the new positions into the session

All partitions that this fetcher copies from the leader are in one Fetch, in an incremental session. A round costs as
much as the partitions that moved; the others are not looked at. While nothing moves, the thread waits in the request:
the leader answers when there is something new, or after `replica.fetch.wait.max.ms`.

A new partition must not wait for that: after a failover, nothing is acknowledged until the followers have reached their
new leader. A connection takes one request at a time, so the current fetch is given up together with its connection. The
next fetch names all partitions again, because the leader may have begun a response that we will not see. With 700
partitions the next fetch reached the leader after 3 to 6 ms, instead of 250 ms on average. The controller's changes
come in bursts, so for a while after a change the fetches wait only briefly. Later additions of a burst then join the
next fetch without breaking a connection.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import structlog

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.leader_client import LeaderClient, LeaderOffsets
from ottla.broker.replication.follower.steps import (
    Fetched,
    FetchPosition,
    Step,
    follow_position,
    restart_in_range,
    take_fetched,
)
from ottla.broker.replication.partition import EpochEndOffset, Partition
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.client.net.fetch_session_client import FetchSessionClient, SessionPartition
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.primitives import UUID_ZERO

log = structlog.get_logger(__name__)

# After an addition, fetches wait at most this long, for this time.
_SETTLING_WAIT_MS: Final = 20
_SETTLING_SECONDS: Final = 1.0

_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
# The first pause after an error; it doubles up to `replica.fetch.backoff.ms`. A leader that has not heard from the
# controller yet will do so in a moment, and the pause should not make the failover longer.
_FIRST_BACKOFF_MS: Final = 25
_DOUBLINGS_MAX: Final = 16
# The longest time before a throttled partition is checked again, because the throttle may have been lifted.
_HOLD_SECONDS_MAX: Final = 1.0


class Fetcher:
    """Copies partitions from one leader. Any thread adds and removes partitions; one thread fetches."""

    def __init__(
        self,
        name: str,
        leader: LeaderClient,
        config: BrokerConfig,
        logs: Logs,
        group_commit: GroupCommit,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.name = name
        self._leader = leader
        # These options do not change while the broker runs.
        self._wait_ms = config.replica_fetch_wait_max_ms
        self._backoff_ms = config.replica_fetch_backoff_ms

        # Shared, under `_changed`.
        self._changed = threading.Condition()
        self._partitions: dict[TopicPartition, FollowedPartition] = {}
        self._added: list[FollowedPartition] = []
        self._removed: list[FollowedPartition] = []
        self._closed = False
        self._has_space_again = False
        self._settled_at = 0.0
        # Whether a long fetch is in progress, and whether it was given up because of an addition.
        self._is_waiting = False
        self._was_interrupted = False

        # Only for the fetcher's thread.
        self._followed = FollowedPartitions(logs, group_commit, self._backoff_ms, throttle)
        # Number of failures in a row.
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __repr__(self) -> str:
        return f"<Fetcher {self.name} partitions={len(self._partitions)} {self._followed}>"

    def __len__(self) -> int:
        return len(self._partitions)

    # From other threads

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, followed: FollowedPartition) -> FollowedPartition | None:
        """Start to follow a partition; return the object that followed it before, which the caller must retire."""
        with self._changed:
            earlier = self._partitions.get(followed.name)
            if earlier is not None:
                self._removed.append(earlier)
            self._partitions[followed.name] = followed
            self._added.append(followed)
            self._settled_at = time.monotonic() + _SETTLING_SECONDS
            self._changed.notify()
            self._interrupt()
            return earlier

    def _interrupt(self) -> None:
        """Give up a long fetch. The caller holds the lock."""
        if self._is_waiting:
            self._is_waiting = False
            self._was_interrupted = True
            self._leader.interrupt()

    def remove(self, partition: TopicPartition) -> FollowedPartition | None:
        """Stop following a partition; return the object that followed it, which the caller must retire."""
        with self._changed:
            followed = self._partitions.pop(partition, None)
            if followed is not None:
                self._removed.append(followed)
            return followed

    def resume_copies(self) -> None:
        """Fetch partitions again that wait for space on a disk."""
        with self._changed:
            self._has_space_again = True
            self._changed.notify()
            self._interrupt()

    def find(self, partition: TopicPartition) -> FollowedPartition | None:
        """Return the object that follows a partition; None if there is none."""
        return self._partitions.get(partition)

    def followed(self) -> Iterable[FollowedPartition]:
        """Return what is followed at this moment."""
        with self._changed:
            return list(self._partitions.values())

    def close(self) -> None:
        """Tell the thread to end; does not wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._leader.close()

    def join(self, timeout_seconds: float) -> None:
        """Wait until the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    # The thread

    def _run(self) -> None:
        while True:
            wait_ms = self._prepare()
            if wait_ms is None:
                return
            try:
                self._round(wait_ms)
            except (KafkaError, ProtocolError) as error:
                self._after_failure(error)
            except Exception:
                # A bug must not leave the partitions without a fetcher.
                log.exception("fetcher_failed", fetcher=self.name)
                self._after_failure(None)

    def _prepare(self) -> int | None:
        """Apply the changes of other threads, and wait until there is something to fetch.

        Returns how long the fetch may wait for bytes; None when the fetcher is closed.
        """
        following = self._followed
        while True:
            if self._added or self._removed:
                self._take_changes()
            if self._has_space_again:
                self._has_space_again = False
                following.resume_copies()
            following.resume(time.monotonic())
            # Before the next fetch, because its offsets confirm what was appended.
            following.flush()
            now, due = time.monotonic(), following.next_due
            with self._changed:
                if self._closed:
                    return None
                if self._added or self._removed or self._has_space_again:
                    continue
                if not len(following.session):
                    self._changed.wait(None if due is None else due - now)
                    continue
                wait_ms = self._wait_ms
                if now < self._settled_at:
                    wait_ms = min(wait_ms, _SETTLING_WAIT_MS)
                elif due is not None:
                    wait_ms = min(wait_ms, max(1, int((due - now) * 1000)))
                self._is_waiting = wait_ms > _SETTLING_WAIT_MS
                return wait_ms

    def _take_changes(self) -> None:
        with self._changed:
            removed, self._removed = self._removed, []
            # Some of them may have been removed since.
            added = [followed for followed in self._added if self._partitions.get(followed.name) is followed]
            self._added = []
        # Not under the lock: this calls the partitions, and a thread that changes them may be waiting for us.
        self._followed.change(removed, added)

    def _round(self, wait_ms: int) -> None:
        session = self._followed.session
        response = self._leader.fetch(session, wait_ms)
        self._is_waiting = False
        was_full = session.is_full
        code = session.answered(response)
        if code is not ErrorCode.NONE and (was_full or code not in _SESSION_ERRORS):
            raise KafkaError(code, "the leader refused the fetch")
        if self._failures:
            log.info("fetcher_reaches_leader_again", fetcher=self.name, failures=self._failures)
            self._failures = 0
        out_of_range = self._followed.take(response)
        if out_of_range:
            asked = [(followed.session_partition, followed.leader_epoch) for followed in out_of_range]
            self._followed.restart_in_range(out_of_range, self._leader.offsets(asked))

    def _after_failure(self, error: KafkaError | ProtocolError | None) -> None:
        self._followed.session.restart()
        with self._changed:
            self._is_waiting = False
            if self._was_interrupted or self._closed:
                self._was_interrupted = False
                return
            self._leader.forget_versions()
            if self._failures == 0 and error is not None:
                log.warning("fetcher_cannot_reach_leader", fetcher=self.name, error=str(error))
            # An addition ends the pause: the controller believes that the leader is alive.
            self._changed.wait_for(
                lambda: self._closed or bool(self._added), timeout=backoff_seconds(self._failures, self._backoff_ms)
            )
            self._failures += 1


def backoff_seconds(failures: int, backoff_ms: int) -> float:
    """Return the pause after a number of failures in a row."""
    return min(backoff_ms, _FIRST_BACKOFF_MS << min(failures, _DOUBLINGS_MAX)) / 1000


class _Delayed(NamedTuple):
    due: float
    followed: FollowedPartition


class FollowedPartitions:
    """The partitions of one fetcher: their positions in its session, and the processing of the leader's responses.

    Only the fetcher's thread uses it. A partition is active (in the session), delayed (out of the session until its
    pause is over), without space (out of the session until its disk has more) or stopped (out of the session until the
    controller changes its role). A partition that fails or is throttled never delays the others.
    """

    def __init__(
        self,
        logs: Logs,
        group_commit: GroupCommit,
        backoff_ms: int,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.session = FetchSessionClient[FetchPosition]()
        self._logs = logs
        self._group_commit = group_commit
        self._backoff_ms = backoff_ms
        self._throttle = throttle
        # Active partitions by the topic as a response names it: by id, or by name in versions before 13.
        self._active: dict[tuple[bytes | str, int], FollowedPartition] = {}
        # Active partitions with records that must be flushed before the leader may count them.
        self._unflushed: dict[FollowedPartition, None] = {}
        # Sorted by the end of their pauses.
        self._delayed: list[_Delayed] = []
        # Partitions on disks that have no space for copies.
        self._without_space: dict[FollowedPartition, None] = {}

    def __repr__(self) -> str:
        return f"<FollowedPartitions active={len(self.session)} delayed={len(self._delayed)}>"

    @property
    def next_due(self) -> float | None:
        """When the first pause ends; None if nothing is delayed."""
        return self._delayed[0].due if self._delayed else None

    def change(self, removed: Iterable[FollowedPartition], added: Iterable[FollowedPartition]) -> None:
        """Remove some partitions, and add others."""
        gone = set(removed)
        for followed in gone:
            self._leave_out(followed)
            self._without_space.pop(followed, None)
        self._delayed = [delayed for delayed in self._delayed if delayed.followed not in gone]
        for followed in added:
            self._enter(followed)

    def resume(self, now: float) -> None:
        """Add the partitions whose pause is over to the session again."""
        while self._delayed and self._delayed[0].due <= now:
            self._enter(self._delayed.pop(0).followed)

    def resume_copies(self) -> None:
        """Add the partitions without space to the session again; those whose disk is still too full wait on."""
        waiting, self._without_space = self._without_space, {}
        for followed in waiting:
            followed.waits_for_space = False
            self._enter(followed)

    def flush(self) -> None:
        """Flush what must be on disk before a fetch confirms it, all partitions at once. Call it before each fetch."""
        if not self._unflushed:
            return
        unflushed, self._unflushed = self._unflushed, {}
        # Read `log` only once: after a move to another directory it is another object.
        logs = {followed: followed.partition.log for followed in unflushed}
        errors = self._group_commit.flush(logs.values())
        for followed in unflushed:
            error = errors.get(logs[followed])
            if error is not None:
                if followed.failures == 0:
                    log.error("follower_cannot_flush", partition=str(followed.name), error=str(error))
                self._delay(followed)
                continue
            try:
                self._put_position(followed)
            except Exception:
                self._fail(followed)

    # Answers

    def take(self, response: FetchResponse) -> list[FollowedPartition]:
        """Append to or truncate each partition of a response; return those whose offset the leader does not have."""
        out_of_range = []
        for topic in response.responses:
            key = topic.topic or topic.topic_id
            for data in topic.partitions:
                followed = self._active.get((key, data.partition_index))
                if followed is not None and self._take_partition(followed, data) is Step.OUT_OF_RANGE:
                    out_of_range.append(followed)
        return out_of_range

    def _take_partition(self, followed: FollowedPartition, data: PartitionData) -> Step:
        code = ErrorCode.of(data.error_code)
        diverging = data.diverging_epoch
        fetched = Fetched(
            code,
            data.high_watermark,
            data.log_start_offset,
            EpochEndOffset(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
            data.records or b"",
        )
        partition = followed.partition
        try:
            with followed.lock:
                if followed.is_retired or followed.position is None:
                    return Step.FENCED
                high_watermark = partition.log.high_watermark
                step = take_fetched(partition, self._logs, followed.position, fetched)
            if step is Step.ADVANCED or step is Step.IDLE:
                followed.leader_high_watermark = data.high_watermark
                followed.failures = 0
                if self._is_held(followed, len(fetched.records)):
                    self._hold(followed)
                else:
                    self._ask_from_here(followed)
                if step is Step.ADVANCED or partition.log.high_watermark != high_watermark:
                    partition.waits.moved(followed.name)
            elif step is not Step.OUT_OF_RANGE:
                self._turn(followed, step, code)
        except Exception:
            self._fail(followed)
            return Step.RETRY
        return step

    def _turn(self, followed: FollowedPartition, step: Step, code: ErrorCode) -> None:
        """Act on a step that is neither an append nor idle."""
        if step is Step.TRUNCATED:
            self._enter(followed)
        elif step is Step.RETRY:
            if followed.failures == 0:
                log.info("follower_waits", partition=str(followed.name), error=code.name)
            self._delay(followed)
        elif step is Step.NO_SPACE:
            if followed.failures == 0:
                log.warning("follower_has_no_space", partition=str(followed.name), reason=self._refusal(followed))
            # Without a refusal, the disk was full before its space was sampled.
            if self._refusal(followed) is None:
                self._delay(followed)
            else:
                self._wait_for_space(followed)
        else:
            log.info("follower_stops", partition=str(followed.name), reason=step.value)
            self._stop(followed)

    def restart_in_range(
        self, out_of_range: Iterable[FollowedPartition], offsets: Mapping[SessionPartition, LeaderOffsets]
    ) -> None:
        """Continue within the leader's offsets. Partitions whose offsets the leader did not return are delayed."""
        for followed in out_of_range:
            found = offsets.get(followed.session_partition)
            if found is None:
                self._delay(followed)
                continue
            try:
                with followed.lock:
                    if followed.is_retired or followed.position is None:
                        continue
                    restart_in_range(followed.partition, self._logs, followed.position, found.first, found.end)
                self._enter(followed)
            except Exception:
                self._fail(followed)

    # Positions

    def _enter(self, followed: FollowedPartition) -> None:
        """Fetch a partition from the end of its log, and make the leader send all its state."""
        name, topic_id, index = followed.session_partition
        self._active[name, index] = followed
        if topic_id != UUID_ZERO:
            self._active[topic_id, index] = followed
        followed.position = None
        try:
            if self._refusal(followed) is not None:
                self._wait_for_space(followed)
            elif self._is_held(followed):
                self._hold(followed)
            else:
                self._ask_from_here(followed)
        except Exception:
            self._fail(followed)

    def _refusal(self, followed: FollowedPartition) -> str | None:
        """Return why the disk takes no copies now; None if it does, or if it has failed."""
        copied = followed.partition.log
        return copied.copy_refusal if copied.guard is not None and copied.guard.refusal is None else None

    def _wait_for_space(self, followed: FollowedPartition) -> None:
        """Fetch no more until `resume_copies`. The leader soon drops this replica from the ISR."""
        self._leave_out(followed)
        self._without_space[followed] = None
        followed.waits_for_space = True

    def _ask_from_here(self, followed: FollowedPartition) -> None:
        """Fetch from the end of the log, after a flush if needed: the fetch offset confirms all records below it."""
        if followed.partition.log.is_flush_wanted:
            self._unflushed[followed] = None
        else:
            self._put_position(followed)

    def _put_position(self, followed: FollowedPartition) -> None:
        """Put the position of a partition into the session, if it has changed."""
        position, before = follow_position(followed.partition), followed.position
        if position == before:
            return
        if position.current_leader_epoch != followed.leader_epoch:
            # The controller has changed the role: it will add or remove the partition.
            self._stop(followed)
            return
        followed.position = position
        if before is None:
            self.session.enter(followed.session_partition, position)
        else:
            self.session.put(followed.session_partition, position)

    def _leave_out(self, followed: FollowedPartition) -> None:
        self._unflushed.pop(followed, None)
        name, topic_id, index = followed.session_partition
        if self._active.get((name, index)) is followed:
            del self._active[name, index]
            self._active.pop((topic_id, index), None)
            self.session.drop(followed.session_partition)

    def _stop(self, followed: FollowedPartition) -> None:
        followed.is_stopped = True
        self._leave_out(followed)

    def _delay(self, followed: FollowedPartition) -> None:
        self._pause(followed, backoff_seconds(followed.failures, self._backoff_ms))
        followed.failures += 1

    def _is_held(self, followed: FollowedPartition, received_bytes: int = 0) -> bool:
        """Count the bytes received of a throttled partition; return whether it must pause now."""
        throttle = self._throttle
        if throttle is None or not throttle.is_throttled(followed.name):
            return False
        throttle.record(received_bytes)
        lags = followed.leader_high_watermark < 0 or followed.lag > 0
        return lags and throttle.is_exceeded()

    def _hold(self, followed: FollowedPartition) -> None:
        assert self._throttle is not None
        self._pause(followed, min(self._throttle.pause_seconds(), _HOLD_SECONDS_MAX))

    def _pause(self, followed: FollowedPartition, seconds: float) -> None:
        self._leave_out(followed)
        due = time.monotonic() + seconds
        insort(self._delayed, _Delayed(due, followed), key=lambda delayed: delayed.due)

    def _fail(self, followed: FollowedPartition) -> None:
        """Log an unexpected exception once, and try again later."""
        if followed.failures == 0:
            log.exception("follower_failed", partition=str(followed.name))
        self._delay(followed)


class FollowedPartition:
    """A partition that a fetcher copies from its leader, for one leader epoch.

    Lock order: this lock -> partition -> log. The lock is held while the log is written, but never during network
    requests. So `retire` returns as soon as the current write is done, and no other write follows.
    """

    __slots__ = (
        "failures",
        "is_retired",
        "is_stopped",
        "leader_epoch",
        "leader_high_watermark",
        "lock",
        "partition",
        "position",
        "session_partition",
        "waits_for_space",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.role.leader_epoch
        name, index = partition.partition
        self.session_partition = SessionPartition(name, partition.topic_id, index)
        self.lock = threading.Lock()
        self.is_retired = False
        # The rest belongs to the fetcher's thread. The position of the last fetch; None before the first.
        self.position: FetchPosition | None = None
        # The leader's high watermark in its last response.
        self.leader_high_watermark = -1
        # Not fetched until it is added again: the leader, or the disk, refused it for good.
        self.is_stopped = False
        # Not fetched until its disk has more space.
        self.waits_for_space = False
        # Number of failures in a row.
        self.failures = 0

    def __repr__(self) -> str:
        return f"<FollowedPartition {self.name} at {self.position} failures={self.failures} retired={self.is_retired}>"

    @property
    def name(self) -> TopicPartition:
        """The name of the partition."""
        return self.partition.partition

    @property
    def lag(self) -> int:
        """The number of records that the leader has committed and this replica lacks, as far as we know."""
        return max(0, self.leader_high_watermark - self.partition.log.log_end_offset)

    def is_same(self, partition: Partition) -> bool:
        """Whether this object follows a partition in its current leader epoch."""
        return self.partition is partition and self.leader_epoch == partition.role.leader_epoch

    def retire(self) -> None:
        """Prevent any further write through this object. The caller must not hold the partition's lock."""
        with self.lock:
            self.is_retired = True
