"""Fetch sessions (KIP-227): a client names its partitions once, and later only what changes.

    request epoch -1   no session; a session that is named is closed
    request epoch  0   all partitions are listed; a session is made, if the cache has room
    otherwise          the partitions listed are added or changed, those forgotten are removed, all of them are read

An incremental answer lists only the partitions that have something new. The epoch rises with the request, not with the
answer: a client that lost an answer cannot go on, and lists everything again. So what a session believes its client to
know is always what the client knows, if it goes on.

Sessions are kept in a bounded cache. When it is full, a new one takes the place of one that was not used for two
minutes; else of a smaller one that has existed for two minutes, of a follower only if it is a follower's itself; and a
follower takes that of any client at any time, because it has far more partitions to list and never goes away.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ottla.broker.replication.partition import FollowerFetch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import (
    NO_SESSION,
    SESSION_EPOCH_MAX,
    TOPIC_IDS_VERSION,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from ottla.protocol.primitives import UUID_ZERO

SESSIONLESS_EPOCH = -1
INITIAL_EPOCH = 0
_EVICTABLE_AFTER_SECONDS = 120.0
# Clients without a session ask for one with every fetch, and a full cache is searched from end to end.
_SEARCH_INTERVAL_SECONDS = 1.0

# How a client names a partition: the topic by its id from version 13 on, by its name before.
SessionKey = tuple[str | bytes, int]


def replica_of(body: FetchRequest) -> tuple[int, int]:
    """Return broker id and broker epoch of the follower that fetches; -1 each for a client, or where not told."""
    if body.replica_id >= 0:
        return body.replica_id, -1
    return body.replica_state.replica_id, body.replica_state.replica_epoch


class CachedPartition:
    """One partition of a fetch: what to read, and in a session, what the client was told last."""

    __slots__ = ("checked_epoch", "follower_fetch", "high_watermark", "key", "log_start_offset", "topic_id", "wanted")

    def __init__(self, key: TopicPartition, topic_id: bytes, wanted: FetchPartition) -> None:
        # The topic's name is empty while the id is not known here; the controller may tell it later.
        self.key = key
        self.topic_id = topic_id
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1
        # The same request in the partition's terms, made once.
        self.follower_fetch: FollowerFetch | None = None
        # The leader epoch in which a follower's log was found to be like ours up to the offset wanted.
        self.checked_epoch = -1

    @property
    def session_key(self) -> SessionKey:
        """What the client calls it."""
        return (self.key.topic if self.topic_id == UUID_ZERO else self.topic_id, self.wanted.partition)

    def follow(self, earlier: CachedPartition) -> None:
        """Take the place of what the client wanted of the same partition before."""
        self.high_watermark = earlier.high_watermark
        self.log_start_offset = earlier.log_start_offset

    def is_news(self, answer: PartitionData) -> bool:
        """Whether an answer must be in an incremental response; notes what the client knows by then."""
        news = (
            bool(answer.records)
            or answer.error_code != 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch.epoch >= 0
        )
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return news


class FetchSession:
    """The partitions of one client, in the order in which they are read. Thread-safe."""

    def __init__(self, session_id: int, replica: tuple[int, int], *, uses_topic_ids: bool, now: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = replica[0] >= 0
        # Broker id and broker epoch of who fetches, as `replica_of` has them.
        self._replica = replica
        self.epoch = 1
        self.created = now
        self.last_used = now
        self._lock = threading.Lock()
        self._partitions: OrderedDict[SessionKey, CachedPartition] = OrderedDict()

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[CachedPartition]:
        """What to read, in this order."""
        with self._lock:
            return list(self._partitions.values())

    def continue_as(self, replica: tuple[int, int]) -> None:
        """Know who fetches now: a follower may have registered anew."""
        if replica != self._replica:
            self._replica = replica
            for cached in self.partitions:
                cached.follower_fetch = None

    def change(self, listed: Iterable[CachedPartition], forgotten: Iterable[SessionKey]) -> None:
        """Add or change the listed partitions, remove the forgotten ones."""
        with self._lock:
            for partition in listed:
                key = partition.session_key
                known = self._partitions.get(key)
                if known is not None:
                    partition.follow(known)
                # Not changed in place: the fetch before this one may still wait, if the client did not.
                self._partitions[key] = partition
            for key in forgotten:
                self._partitions.pop(key, None)

    def answered(self, with_data: Iterable[CachedPartition]) -> None:
        """Let partitions that had data wait behind the others next time."""
        with self._lock:
            for cached in with_data:
                key = cached.session_key
                if key in self._partitions:
                    self._partitions.move_to_end(key)


class FetchContext:
    """What one fetch reads, and how its answers are filtered."""

    def __init__(
        self, partitions: list[CachedPartition], session: FetchSession | None, *, is_incremental: bool
    ) -> None:
        self.partitions = partitions
        self.is_incremental = is_incremental
        self._session = session

    @property
    def session_id(self) -> int:
        """The session that the client is told to go on with."""
        return self._session.session_id if self._session is not None else NO_SESSION

    def shown(
        self, answers: list[tuple[CachedPartition, PartitionData]]
    ) -> list[tuple[CachedPartition, PartitionData]]:
        """Return the answers that go into the response."""
        if self._session is None:
            return answers
        news = [(cached, answer) for cached, answer in answers if cached.is_news(answer)]
        with_data = [cached for cached, answer in answers if answer.records]
        if with_data:
            self._session.answered(with_data)
        return news if self.is_incremental else answers


class FetchSessions:
    """The sessions of a broker, least recently used first. Thread-safe."""

    def __init__(self, slots: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._next_search = float("-inf")
        # Sessions that gave their places to others; changed under the lock.
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions have together."""
        with self._lock:
            return sum(map(len, self._sessions.values()))

    def context(
        self, body: FetchRequest, version: int, listed: list[CachedPartition], forgotten: list[SessionKey]
    ) -> FetchContext:
        """Return what a request reads; raise KafkaError where it names a session that is not as it thinks."""
        with self._lock:
            if body.session_epoch in (SESSIONLESS_EPOCH, INITIAL_EPOCH):
                self._sessions.pop(body.session_id, None)
                session = self._new(body, version, len(listed)) if body.session_epoch == INITIAL_EPOCH else None
                if session is not None:
                    session.change(listed, ())
                    listed = session.partitions
                return FetchContext(listed, session, is_incremental=False)
            session = self._checked(body, version)
            session.continue_as(replica_of(body))
            session.change(listed, forgotten)
            session.epoch = session.epoch + 1 if session.epoch < SESSION_EPOCH_MAX else 1
            session.last_used = self._clock()
            self._sessions.move_to_end(session.session_id)
            if not len(session):
                del self._sessions[session.session_id]
                return FetchContext([], None, is_incremental=False)
            return FetchContext(session.partitions, session, is_incremental=True)

    def close(self, session_id: int) -> None:
        """Forget a session that its client was not told of."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def _checked(self, body: FetchRequest, version: int) -> FetchSession:
        session = self._sessions.get(body.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {body.session_id}")
        if session.epoch != body.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {body.session_epoch} where {session.epoch} must come"
            )
        if session.uses_topic_ids != (version >= TOPIC_IDS_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session was begun in another way")
        return session

    def _new(self, body: FetchRequest, version: int, size: int) -> FetchSession | None:
        """Make a session, if there is room or another gives its place. The lock is held."""
        replica = replica_of(body)
        now = self._clock()
        if not size or (len(self._sessions) >= self._slots and not self._evict(size, replica[0] >= 0, now)):
            return None
        session_id = random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session = FetchSession(session_id, replica, uses_topic_ids=version >= TOPIC_IDS_VERSION, now=now)
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, is_follower: bool, now: float) -> bool:
        """Close the session that matters least, if a new one of `size` partitions matters more."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used >= _EVICTABLE_AFTER_SECONDS:
            del self._sessions[oldest.session_id]
            self.evictions += 1
            return True
        if now < self._next_search and not is_follower:
            return False
        evictable = (
            session
            for session in self._sessions.values()
            if now - session.created >= _EVICTABLE_AFTER_SECONDS or (is_follower and not session.is_follower)
        )
        least = min(evictable, key=lambda session: (session.is_follower, len(session)), default=None)
        if least is None or (is_follower, size) <= (least.is_follower, len(least)):
            self._next_search = now + _SEARCH_INTERVAL_SECONDS
            return False
        del self._sessions[least.session_id]
        self.evictions += 1
        return True
