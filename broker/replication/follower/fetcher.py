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
from collections.abc import Iterable
from typing import Final

import structlog

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.followed import Followed
from ottla.broker.replication.follower.following import Following, backoff_seconds
from ottla.broker.replication.follower.leader_client import LeaderClient
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import TopicPartition

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
        self._partitions: dict[TopicPartition, Followed] = {}
        self._added: list[Followed] = []
        self._removed: list[Followed] = []
        self._closed = False
        self._settled_at = 0.0
        # Whether a fetch that waits long is under way, and whether it was given up for an addition.
        self._is_waiting = False
        self._was_interrupted = False

        # The thread's own.
        self._following = Following(logs, group_commit, self._backoff_ms, throttle)
        # In a row.
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __repr__(self) -> str:
        return f"<Fetcher {self.name} partitions={len(self._partitions)} {self._following}>"

    def __len__(self) -> int:
        return len(self._partitions)

    # From other threads

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def add(self, followed: Followed) -> Followed | None:
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

    def remove(self, partition: TopicPartition) -> Followed | None:
        """Follow a partition no longer; return what was followed, for the caller to retire."""
        with self._changed:
            followed = self._partitions.pop(partition, None)
            if followed is not None:
                self._removed.append(followed)
            return followed

    def find(self, partition: TopicPartition) -> Followed | None:
        """Return what is followed under a name."""
        return self._partitions.get(partition)

    def followed(self) -> Iterable[Followed]:
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
        following = self._following
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
        self._following.change(removed, added)

    def _round(self, wait_ms: int) -> None:
        session = self._following.session
        response = self._leader.fetch(session, wait_ms)
        self._is_waiting = False
        was_full = session.is_full
        code = session.answered(response)
        if code is not ErrorCode.NONE and (was_full or code not in _SESSION_ERRORS):
            raise KafkaError(code, "the leader refused the fetch")
        if self._failures:
            log.info("fetcher_reaches_leader_again", fetcher=self.name, failures=self._failures)
            self._failures = 0
        out_of_range = self._following.take(response)
        if out_of_range:
            asked = [(followed.session_partition, followed.leader_epoch) for followed in out_of_range]
            self._following.restart_in_range(out_of_range, self._leader.offsets(asked))

    def _after_failure(self, error: KafkaError | ProtocolError | None) -> None:
        self._following.session.restart()
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
