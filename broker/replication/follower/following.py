"""What a fetcher follows: the positions in its session, and what becomes of the leader's answers.

Used by the fetcher's thread alone. A partition is active (in the session), delayed (out of it until its pause is over)
or stopped (out of it until the controller speaks). One that fails, or is throttled, never holds up the others.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import structlog

from ottla.broker.replication.follower.followed import Followed
from ottla.broker.replication.follower.follower import (
    Fetched,
    FetchPosition,
    Step,
    follow_position,
    restart_in_range,
    take_fetched,
)
from ottla.broker.replication.follower.leader_client import LeaderOffsets
from ottla.broker.replication.partition import EpochEndOffset
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.client.net.fetch_session_client import FetchSessionClient, SessionPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.primitives import UUID_ZERO

log = structlog.get_logger(__name__)

# The first pause after an error; it doubles up to `replica.fetch.backoff.ms`. A leader that has not heard from the
# controller yet will have in a moment, and a failover should not last longer for it.
_FIRST_BACKOFF_MS: Final = 25
_DOUBLINGS_MAX: Final = 16
# A throttle is looked at again after this time at most: it may have been lifted.
_HOLD_SECONDS_MAX: Final = 1.0


def backoff_seconds(failures: int, backoff_ms: int) -> float:
    """Return the pause after some failures in a row."""
    return min(backoff_ms, _FIRST_BACKOFF_MS << min(failures, _DOUBLINGS_MAX)) / 1000


class _Delayed(NamedTuple):
    due: float
    followed: Followed


class Following:
    """The partitions of one fetcher, by how they stand with the leader."""

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
        self._active: dict[tuple[bytes | str, int], Followed] = {}
        # Active ones that have records to be forced to disk before the leader may hear of them.
        self._unflushed: dict[Followed, None] = {}
        # In the order in which their pauses end.
        self._delayed: list[_Delayed] = []

    def __repr__(self) -> str:
        return f"<Following active={len(self.session)} delayed={len(self._delayed)}>"

    @property
    def next_due(self) -> float | None:
        """When the first pause ends; None where nothing is delayed."""
        return self._delayed[0].due if self._delayed else None

    def change(self, removed: Iterable[Followed], added: Iterable[Followed]) -> None:
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
        errors = self._group_commit.flush(followed.partition.log for followed in unflushed)
        for followed in unflushed:
            error = errors.get(followed.partition.log)
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

    def take(self, response: FetchResponse) -> list[Followed]:
        """Append or cut each partition of an answer; return those whose position the leader does not have."""
        out_of_range = []
        for topic in response.responses:
            key = topic.topic or topic.topic_id
            for data in topic.partitions:
                followed = self._active.get((key, data.partition_index))
                if followed is not None and self._take_partition(followed, data) is Step.OUT_OF_RANGE:
                    out_of_range.append(followed)
        return out_of_range

    def _take_partition(self, followed: Followed, data: PartitionData) -> Step:
        code = ErrorCode.of(data.error_code)
        diverging = data.diverging_epoch
        fetched = Fetched(
            code,
            data.high_watermark,
            data.log_start_offset,
            EpochEndOffset(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
            data.records or b"",
        )
        own_log = followed.partition.log
        try:
            with followed.lock:
                if followed.is_retired or followed.position is None:
                    return Step.FENCED
                high_watermark = own_log.high_watermark
                step = take_fetched(followed.partition, self._logs, followed.position, fetched)
            if step is Step.ADVANCED or step is Step.IDLE:
                followed.leader_high_watermark = data.high_watermark
                followed.failures = 0
                if self._is_held(followed, len(fetched.records)):
                    self._hold(followed)
                else:
                    self._ask_from_here(followed)
                if step is Step.ADVANCED or own_log.high_watermark != high_watermark:
                    followed.partition.waits.moved(followed.name)
            elif step is not Step.OUT_OF_RANGE:
                self._turn(followed, step, code)
        except Exception:
            self._fail(followed)
            return Step.RETRY
        return step

    def _turn(self, followed: Followed, step: Step, code: ErrorCode) -> None:
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
        self, out_of_range: Iterable[Followed], offsets: Mapping[SessionPartition, LeaderOffsets]
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

    def _enter(self, followed: Followed) -> None:
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

    def _ask_from_here(self, followed: Followed) -> None:
        """Ask from the end of the log, after a flush where one is wanted: the position confirms all below it."""
        if followed.partition.log.is_flush_wanted:
            self._unflushed[followed] = None
        else:
            self._put_position(followed)

    def _put_position(self, followed: Followed) -> None:
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

    def _leave_out(self, followed: Followed) -> None:
        self._unflushed.pop(followed, None)
        name, topic_id, index = followed.session_partition
        if self._active.get((name, index)) is followed:
            del self._active[name, index]
            self._active.pop((topic_id, index), None)
            self.session.drop(followed.session_partition)

    def _stop(self, followed: Followed) -> None:
        followed.is_stopped = True
        self._leave_out(followed)

    def _delay(self, followed: Followed) -> None:
        self._pause(followed, backoff_seconds(followed.failures, self._backoff_ms))
        followed.failures += 1

    def _is_held(self, followed: Followed, received_bytes: int = 0) -> bool:
        """Count what was received of a throttled partition, and say whether that is too much for now."""
        throttle = self._throttle
        if throttle is None or not throttle.is_throttled(followed.name):
            return False
        throttle.record(received_bytes)
        lags = followed.leader_high_watermark < 0 or followed.lag > 0
        return lags and throttle.is_exceeded()

    def _hold(self, followed: Followed) -> None:
        assert self._throttle is not None
        self._pause(followed, min(self._throttle.pause_seconds(), _HOLD_SECONDS_MAX))

    def _pause(self, followed: Followed, seconds: float) -> None:
        self._leave_out(followed)
        due = time.monotonic() + seconds
        insort(self._delayed, _Delayed(due, followed), key=lambda delayed: delayed.due)

    def _fail(self, followed: Followed) -> None:
        """Report an exception that nobody foresaw, once, and try again later."""
        if followed.failures == 0:
            log.exception("follower_failed", partition=str(followed.name))
        self._delay(followed)
