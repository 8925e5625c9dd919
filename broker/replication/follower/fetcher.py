"""A fetcher: the thread that copies partitions from one leader.

    round   changes in -> flush what must be on disk -> Fetch -> each partition of the answer: append or cut
            -> new positions into the session

All partitions that this fetcher has of the leader go in one Fetch, in an incremental session, so a round costs as much
as the partitions that moved; the others are not looked at. While nothing moves, the thread waits in the request: the
leader answers when there is something, or after `replica.fetch.wait.max.ms`.

A partition that was added must not wait for that: after a failover, nothing is acknowledged until the followers have
come to their new leader. A connection takes one request at a time, so the fetch under way is given up together with
its connection, and the next fetch names all partitions anew: the leader may have begun an answer that we will not see.
With 700 partitions the next fetch was at the leader after 3 to 6 ms, in place of 250 ms on average. The controller's
changes come in bursts, so for a while after one the fetches wait only shortly, and the later additions of a burst find
the next fetch soon without breaking anything.
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

# After an addition the fetches wait this long at most, for that time.
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
# controller yet will have in a moment, and a failover should not last longer for it.
_FIRST_BACKOFF_MS: Final = 25
_DOUBLINGS_MAX: Final = 16
# A throttle is looked at again after this time at most: it may have been lifted.
_HOLD_SECONDS_MAX: Final = 1.0


class Fetcher:
    """Follows one leader. Any thread adds and removes; one thread fetches."""

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
        # None of these options changes while the broker runs.
        self._wait_ms = config.replica_fetch_wait_max_ms
        self._backoff_ms = config.replica_fetch_backoff_ms

        # Shared, under `_changed`.
        self._changed = threading.Condition()
        self._partitions: dict[TopicPartition, FollowedPartition] = {}
        self._added: list[FollowedPartition] = []
        self._removed: list[FollowedPartition] = []
        self._closed = False
        self._settled_at = 0.0
        # Whether a fetch that waits long is under way, and whether it was given up for an addition.
        self._is_waiting = False
        self._was_interrupted = False

        # The thread's own.
        self._followed = FollowedPartitions(logs, group_commit, self._backoff_ms, throttle)
        # In a row.
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __repr__(self) -> str:
        return f"<Fetcher {self.name} partitions={len(self._partitions)} {self._followed}>"

    def __len__(self) -> int:
        return len(self._partitions)

    # From other threads

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def add(self, followed: FollowedPartition) -> FollowedPartition | None:
        """Follow a partition; return what was followed under its name before, for the caller to retire."""
        with self._changed:
            earlier = self._partitions.get(followed.name)
            if earlier is not None:
                self._removed.append(earlier)
            self._partitions[followed.name] = followed
            self._added.append(followed)
            self._settled_at = time.monotonic() + _SETTLING_SECONDS
            self._changed.notify()
            if self._is_waiting:
                self._is_waiting = False
                self._was_interrupted = True
                self._leader.interrupt()
            return earlier

    def remove(self, partition: TopicPartition) -> FollowedPartition | None:
        """Follow a partition no longer; return what was followed, for the caller to retire."""
        with self._changed:
            followed = self._partitions.pop(partition, None)
            if followed is not None:
                self._removed.append(followed)
            return followed

    def find(self, partition: TopicPartition) -> FollowedPartition | None:
        """Return what is followed under a name."""
        return self._partitions.get(partition)

    def followed(self) -> Iterable[FollowedPartition]:
        """What is followed at this moment."""
        with self._changed:
            return list(self._partitions.values())

    def close(self) -> None:
        """End the thread soon; does not wait for it."""
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
                # A fault of ours must not leave the partitions without a fetcher.
                log.exception("fetcher_failed", fetcher=self.name)
                self._after_failure(None)

    def _prepare(self) -> int | None:
        """Take in what others changed, and wait until there is something to fetch.

        Returns how long the fetch may wait for bytes; None when the fetcher is closed.
        """
        following = self._followed
        while True:
            if self._added or self._removed:
                self._take_changes()
            following.resume(time.monotonic())
            # Before the next fetch: it confirms what was appended.
            following.flush()
            now, due = time.monotonic(), following.next_due
            with self._changed:
                if self._closed:
                    return None
                if self._added or self._removed:
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
        # Not under the lock: this asks the partitions, and who changes them may be waiting for us.
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
            # An addition ends the pause: whoever ordered it believes that the leader is there.
            self._changed.wait_for(
                lambda: self._closed or bool(self._added), timeout=backoff_seconds(self._failures, self._backoff_ms)
            )
            self._failures += 1


def backoff_seconds(failures: int, backoff_ms: int) -> float:
    """Return the pause after some failures in a row."""
    return min(backoff_ms, _FIRST_BACKOFF_MS << min(failures, _DOUBLINGS_MAX)) / 1000


class _Delayed(NamedTuple):
    due: float
    followed: FollowedPartition


class FollowedPartitions:
    """The partitions of one fetcher: their positions in its session, and what becomes of the leader's answers.

    Used by the fetcher's thread alone. A partition is active (in the session), delayed (out of it until its pause is
    over) or stopped (out of it until the controller speaks). One that fails, or is throttled, never holds up
    the others.
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
        # By topic as an answer names it: by id, or by name in versions before 13.
        self._active: dict[tuple[bytes | str, int], FollowedPartition] = {}
        # Active ones that have records to be forced to disk before the leader may hear of them.
        self._unflushed: dict[FollowedPartition, None] = {}
        # In the order in which their pauses end.
        self._delayed: list[_Delayed] = []

    def __repr__(self) -> str:
        return f"<FollowedPartitions active={len(self.session)} delayed={len(self._delayed)}>"

    @property
    def next_due(self) -> float | None:
        """When the first pause ends; None where nothing is delayed."""
        return self._delayed[0].due if self._delayed else None

    def change(self, removed: Iterable[FollowedPartition], added: Iterable[FollowedPartition]) -> None:
        """Leave some partitions out, and begin with others."""
        gone = set(removed)
        for followed in gone:
            self._leave_out(followed)
        self._delayed = [delayed for delayed in self._delayed if delayed.followed not in gone]
        for followed in added:
            self._enter(followed)

    def resume(self, now: float) -> None:
        """Begin again with the partitions whose pause is over."""
        while self._delayed and self._delayed[0].due <= now:
            self._enter(self._delayed.pop(0).followed)

    def flush(self) -> None:
        """Force to disk what has to be there before it is confirmed, all partitions at once; call it before a fetch."""
        if not self._unflushed:
            return
        unflushed, self._unflushed = self._unflushed, {}
        # Once: a log that is moved to another directory is another object afterwards.
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
        """Append or cut each partition of an answer; return those whose position the leader does not have."""
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
        """Do what an unusual step asks for."""
        if step is Step.TRUNCATED:
            self._enter(followed)
        elif step is Step.RETRY:
            if followed.failures == 0:
                log.info("follower_waits", partition=str(followed.name), error=code.name)
            self._delay(followed)
        else:
            log.info("follower_stops", partition=str(followed.name), reason=step.value)
            self._stop(followed)

    def restart_in_range(
        self, out_of_range: Iterable[FollowedPartition], offsets: Mapping[SessionPartition, LeaderOffsets]
    ) -> None:
        """Continue within the leader's offsets; partitions of which it did not tell them are delayed."""
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
        """Fetch a partition from where its log ends, and have the leader tell everything about it."""
        name, topic_id, index = followed.session_partition
        self._active[name, index] = followed
        if topic_id != UUID_ZERO:
            self._active[topic_id, index] = followed
        followed.position = None
        try:
            if self._is_held(followed):
                self._hold(followed)
            else:
                self._ask_from_here(followed)
        except Exception:
            self._fail(followed)

    def _ask_from_here(self, followed: FollowedPartition) -> None:
        """Ask from the end of the log, after a flush where one is wanted: the position confirms all below it."""
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
            # The controller has spoken: the partition will be added again, or removed.
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
        """Count what was received of a throttled partition, and say whether that is too much for now."""
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
        """Report an exception that nobody foresaw, once, and try again later."""
        if followed.failures == 0:
            log.exception("follower_failed", partition=str(followed.name))
        self._delay(followed)


class FollowedPartition:
    """A partition that a fetcher copies from its leader, in one leader epoch until it is removed.

    Lock order: this lock -> partition -> log. It is held while the log is written, never while the network is waited
    for: `retire` returns as soon as a write that is under way is done, and no other follows.
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
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.role.leader_epoch
        name, index = partition.partition
        self.session_partition = SessionPartition(name, partition.topic_id, index)
        self.lock = threading.Lock()
        self.is_retired = False
        # The rest belongs to the fetcher's thread. From where it asked last; None before that.
        self.position: FetchPosition | None = None
        # As of its last answer.
        self.leader_high_watermark = -1
        # Left out until it is added again: the leader, or the disk, refused it for good.
        self.is_stopped = False
        # In a row.
        self.failures = 0

    def __repr__(self) -> str:
        return f"<FollowedPartition {self.name} at {self.position} failures={self.failures} retired={self.is_retired}>"

    @property
    def name(self) -> TopicPartition:
        """Which partition it is."""
        return self.partition.partition

    @property
    def lag(self) -> int:
        """Records that are committed at the leader and not here, as far as we know."""
        return max(0, self.leader_high_watermark - self.partition.log.log_end_offset)

    def is_same(self, partition: Partition) -> bool:
        """Whether a partition is followed already in its present leader epoch."""
        return self.partition is partition and self.leader_epoch == partition.role.leader_epoch

    def retire(self) -> None:
        """Have nothing more written through this object; from any thread that does not hold the partition's lock."""
        with self.lock:
            self.is_retired = True
