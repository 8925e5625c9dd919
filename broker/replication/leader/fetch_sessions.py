"""Fetch sessions (KIP-227): a client names its partitions once, and then only the changes.

        request epoch -1   no session; a session that is named is closed
        request epoch  0   all partitions are listed; a session is created, if the cache has room
        otherwise          listed partitions are added or changed, forgotten ones are removed, and all are read

Most partitions of a follower are idle most of the time: it has everything, and knows so. Its leader does not look at
them. Their session has a standing watch (common/purgatory.py), which tells what has changed. So a follower's fetch
costs as much as the partitions that moved, however many there are. Now and then all are looked at, to know that the
follower is still there; that also bounds how late a new log start is noticed.

An incremental response lists only the partitions with something new. The epoch rises with the request, not with the
response, so a client that lost a response cannot continue and lists everything again. If a client does continue, it
knows exactly what its session thinks it knows.

The cache of sessions has a limit. When it is full, a new session may replace (a) one that was not used for two minutes,
or (b) a smaller one that has existed for two minutes, but in this case only a follower may replace a follower. A
follower may also replace any client's session at any time, because it has far more partitions to list and never goes
away.

Sessions keep what clients name, so the partitions in all sessions of clients are limited as well. A client that
asks for more is served without a session.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable

from ottla.broker.common.purgatory import Purgatory, StandingWatch
from ottla.broker.common.topic_names import NAME_LENGTH_MAX
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
_SESSION_ID_MAX = 2**31 - 1
_EVICTABLE_AFTER_SECONDS = 120.0
# The most partitions in the sessions of all clients together: some hundred megabytes. Nobody checks that they exist.
CLIENT_PARTITIONS_MAX = 250_000
# Clients without a session ask for one with every fetch, and each time the whole full cache would be searched.
_SEARCH_INTERVAL_SECONDS = 1.0

# How long a follower's idle partitions may go without a look, at most.
IDLE_SECONDS_MAX = 2.0

# How a client names a partition: the topic by its id from version 13 on, by its name before.
SessionKey = tuple[str | bytes, int]


def replica_of(body: FetchRequest) -> tuple[int, int]:
    """Return the broker id and broker epoch of the follower that fetches; -1 for a client, and if not known."""
    if body.replica_id >= 0:
        return body.replica_id, -1
    return body.replica_state.replica_id, body.replica_state.replica_epoch


class CachedPartition:
    """One partition of a fetch: what to read and, in a session, what the client was sent last."""

    __slots__ = ("checked_epoch", "follower_fetch", "high_watermark", "key", "log_start_offset", "topic_id", "wanted")

    def __init__(self, key: TopicPartition, topic_id: bytes, wanted: FetchPartition) -> None:
        # The topic's name is empty while its id is unknown here; the metadata may have it later.
        self.key = key
        self.topic_id = topic_id
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1
        # The same request in the partition's terms, made once.
        self.follower_fetch: FollowerFetch | None = None
        # The leader epoch in which the follower's log was found equal to ours, up to the requested offset.
        self.checked_epoch = -1

    @property
    def session_key(self) -> SessionKey:
        """The client's name for the partition."""
        return (self.key.topic if self.topic_id == UUID_ZERO else self.topic_id, self.wanted.partition)

    def follow(self, earlier: CachedPartition) -> None:
        """Replace the entry that the session had for the same partition."""
        self.high_watermark = earlier.high_watermark
        self.log_start_offset = earlier.log_start_offset

    def is_news(self, answer: PartitionData) -> bool:
        """Whether an answer belongs in an incremental response; remembers what the client then knows."""
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

    def __init__(
        self,
        session_id: int,
        replica: tuple[int, int],
        watch: StandingWatch | None,
        *,
        uses_topic_ids: bool,
        now: float,
    ) -> None:
        """`watch` is for a follower: it tells which partitions have changed."""
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = replica[0] >= 0
        # Broker id and broker epoch of the follower, as `replica_of` returns them.
        self._replica = replica
        self.epoch = 1
        self.created = now
        self.last_used = now
        self._lock = threading.Lock()
        self._partitions: OrderedDict[SessionKey, CachedPartition] = OrderedDict()
        self.watch = watch
        # For a follower. Partitions that the next fetch looks at; the others were idle, and nobody has checked them.
        self._active: OrderedDict[SessionKey, CachedPartition] = OrderedDict()
        # Partitions by the names under which they are watched.
        self._watched: dict[Hashable, CachedPartition] = {}
        # When all partitions were looked at.
        self.looked_at = now

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[CachedPartition]:
        """The partitions, in the order in which to read them."""
        with self._lock:
            return list(self._partitions.values())

    def continue_as(self, replica: tuple[int, int]) -> None:
        """Update who fetches: a follower may have registered again."""
        if replica != self._replica:
            self._replica = replica
            with self._lock:
                self._active = self._partitions.copy()
            for cached in self.partitions:
                cached.follower_fetch = None

    def change(self, listed: Iterable[CachedPartition], forgotten: Iterable[SessionKey]) -> None:
        """Add or change the listed partitions, and remove the forgotten ones."""
        with self._lock:
            for partition in listed:
                key = partition.session_key
                known = self._partitions.get(key)
                if known is not None:
                    partition.follow(known)
                # A new entry, because the fetch before this one may still be waiting if the client did not.
                self._partitions[key] = partition
                if self.watch is not None:
                    self._active[key] = partition
            for key in forgotten:
                removed = self._partitions.pop(key, None)
                self._active.pop(key, None)
                # A new topic may have the name of the one that is removed.
                if removed is not None and self.watch is not None and self._watched.get(removed.key) is removed:
                    del self._watched[removed.key]
                    self.watch.discard((removed.key,))

    def to_look_at(self, watch: StandingWatch, *, everything: bool) -> list[CachedPartition]:
        """Return the partitions that may have something new, in the order in which to read them.

        They are watched before anybody looks at them, so that no change is missed.
        """
        with self._lock:
            for key in watch.take():
                changed = self._watched.get(key)
                if changed is not None and self._partitions.get(changed.session_key) is changed:
                    self._active.setdefault(changed.session_key, changed)
            if everything:
                self._active = self._partitions.copy()
            partitions = list(self._active.values())
            # A partition without a name does not exist here, so far.
            new = [each for each in partitions if self._watched.get(each.key) is not each and each.key.topic]
            for cached in new:
                self._watched[cached.key] = cached
            unknown = [cached.key for cached in new if cached.key not in watch.keys]
            if unknown:
                watch.add(unknown)
            return partitions

    def found_idle(self, partitions: Iterable[CachedPartition]) -> None:
        """Note which of them need no further look, until they are checked."""
        with self._lock:
            for cached in partitions:
                key = cached.session_key
                if self._active.get(key) is cached:
                    del self._active[key]

    def find(self, key: Hashable) -> CachedPartition | None:
        """Return a partition by the name under which it is watched."""
        return self._watched.get(key)

    def answered(self, with_data: Iterable[CachedPartition]) -> None:
        """Move partitions that had data behind the others, for the next fetch."""
        with self._lock:
            for cached in with_data:
                key = cached.session_key
                if key in self._partitions:
                    self._partitions.move_to_end(key)
                if key in self._active:
                    self._active.move_to_end(key)


class FetchContext:
    """What one fetch reads, and which answers its response contains."""

    def __init__(
        self,
        partitions: list[CachedPartition],
        session: FetchSession | None,
        watch: StandingWatch | None = None,
        *,
        is_incremental: bool,
    ) -> None:
        """With a watch, the partitions are only those that may have something new, and it knows all of them."""
        self.partitions = partitions
        self.is_incremental = is_incremental
        self.watch = watch
        self._session = session

    @property
    def is_empty(self) -> bool:
        """Whether the fetch is for no partition."""
        return not self.partitions and self.watch is None

    @property
    def session_id(self) -> int:
        """The session id for the response."""
        return self._session.session_id if self._session is not None else NO_SESSION

    def found_idle(self, partitions: list[CachedPartition]) -> None:
        """Note partitions that a follower has, and of which it knows everything."""
        if partitions and self.watch is not None and self._session is not None:
            self._session.found_idle(partitions)

    def find(self, key: Hashable) -> CachedPartition | None:
        """Return a partition that is watched; None if it is not, or no longer."""
        return self._session.find(key) if self._session is not None else None

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

    def __init__(
        self,
        slots: int,
        fetches: Purgatory,
        clock: Callable[[], float] = time.monotonic,
        *,
        idle_seconds_max: float = 0.0,
    ) -> None:
        """`fetches` is where they wait. `idle_seconds_max`: how long a follower's idle partitions go without a look."""
        self._slots = slots
        self._fetches = fetches
        self._clock = clock
        self._idle_seconds_max = idle_seconds_max
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._next_search = float("-inf")
        # The number of partitions in sessions of clients.
        self._client_partitions = 0
        # Sessions evicted from the cache; changed under the lock.
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        with self._lock:
            return sum(map(len, self._sessions.values()))

    def context(
        self, body: FetchRequest, version: int, listed: list[CachedPartition], forgotten: list[SessionKey]
    ) -> FetchContext:
        """Return what a request reads; raise KafkaError if its session does not exist or has another state."""
        with self._lock:
            if body.session_epoch in (SESSIONLESS_EPOCH, INITIAL_EPOCH):
                self._remove(body.session_id)
                session = self._new(body, version, listed) if body.session_epoch == INITIAL_EPOCH else None
                if session is not None:
                    self._change(session, listed, ())
                    listed = session.partitions
                return FetchContext(listed, session, is_incremental=False)
            session = self._checked(body, version)
            session.continue_as(replica_of(body))
            if not self._change(session, listed, forgotten):
                self._remove(session.session_id)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session has become too large")
            session.epoch = session.epoch + 1 if session.epoch < SESSION_EPOCH_MAX else 1
            session.last_used = now = self._clock()
            self._sessions.move_to_end(session.session_id)
            if not len(session):
                self._remove(session.session_id)
                return FetchContext([], None, is_incremental=False)
            if session.watch is None:
                return FetchContext(session.partitions, session, is_incremental=True)
            is_due = now - session.looked_at >= self._idle_seconds_max
            if is_due:
                session.looked_at = now
            partitions = session.to_look_at(session.watch, everything=is_due)
            return FetchContext(partitions, session, session.watch, is_incremental=True)

    def close(self, session_id: int) -> None:
        """Remove a session that its client never heard of."""
        with self._lock:
            self._remove(session_id)

    def _checked(self, body: FetchRequest, version: int) -> FetchSession:
        session = self._sessions.get(body.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {body.session_id}")
        if session.epoch != body.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"got epoch {body.session_epoch}, expected {session.epoch}"
            )
        if session.uses_topic_ids != (version >= TOPIC_IDS_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session began with the other form of topics")
        return session

    def _change(self, session: FetchSession, listed: list[CachedPartition], forgotten: Iterable[SessionKey]) -> bool:
        """Change a session; return False if it takes too much memory now. The caller holds the lock."""
        before = len(session)
        session.change(listed, forgotten)
        grown = len(session) - before
        if session.is_follower or not grown:
            return True
        self._client_partitions += grown
        return grown < 0 or (self._client_partitions <= CLIENT_PARTITIONS_MAX and _are_names_short(listed))

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.watch is not None:
            session.watch.close()
        else:
            self._client_partitions -= len(session)

    def _new(self, body: FetchRequest, version: int, listed: list[CachedPartition]) -> FetchSession | None:
        """Create a session, if there is room or another one can be evicted. The caller holds the lock."""
        replica, size = replica_of(body), len(listed)
        now = self._clock()
        is_large = self._client_partitions + size > CLIENT_PARTITIONS_MAX or not _are_names_short(listed)
        if replica[0] < 0 and is_large:
            return None
        if not size or (len(self._sessions) >= self._slots and not self._evict(size, replica[0] >= 0, now)):
            return None
        # From ids of its own, a client must not be able to tell those of others.
        session_id = 1 + secrets.randbelow(_SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = 1 + secrets.randbelow(_SESSION_ID_MAX)
        watch = self._fetches.stand() if replica[0] >= 0 else None
        session = FetchSession(session_id, replica, watch, uses_topic_ids=version >= TOPIC_IDS_VERSION, now=now)
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, is_follower: bool, now: float) -> bool:
        """Evict the least important session, if a new one of `size` partitions is more important."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used >= _EVICTABLE_AFTER_SECONDS:
            self._remove(oldest.session_id)
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
        self._remove(least.session_id)
        self.evictions += 1
        return True


def _are_names_short(listed: Iterable[CachedPartition]) -> bool:
    return all(len(each.key.topic) <= NAME_LENGTH_MAX for each in listed)
