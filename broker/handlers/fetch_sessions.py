"""Fetch sessions (KIP-227): a client names its partitions once, and later only what changes.

    request epoch -1   no session; a session that is named is closed
    request epoch  0   all partitions are listed; a session is made, if the cache has room
    otherwise          the partitions listed are added or changed, those forgotten are removed, all of them are read

An incremental answer lists only the partitions that have something new. Sessions are kept in a bounded cache; one that
was not used for two minutes may give its place to another.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

SESSIONLESS_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
_EVICTABLE_AFTER_SECONDS = 120.0
_EPOCH_MAX = 2**31 - 1
_TOPIC_IDS_VERSION = 13


class CachedPartition:
    """One partition of a session: what to read, and what the client was told last."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "topic_id", "wanted")

    def __init__(self, key: TopicPartition, topic_id: bytes, wanted: FetchPartition) -> None:
        self.key = key
        self.topic_id = topic_id
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

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
    """The partitions of one client, in the order in which they are read. Used by one request at a time."""

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used = now
        self.partitions: OrderedDict[TopicPartition, CachedPartition] = OrderedDict()

    def change(self, listed: Iterable[CachedPartition], forgotten: Iterable[TopicPartition]) -> None:
        """Add or change the listed partitions, remove the forgotten ones."""
        for partition in listed:
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.wanted = partition.wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def answered(self, keys: Iterable[TopicPartition]) -> None:
        """Let partitions that had data wait behind the others next time."""
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchContext:
    """What one fetch reads, and how its answers are filtered."""

    def __init__(
        self, partitions: list[CachedPartition], session: FetchSession | None, *, is_incremental: bool
    ) -> None:
        self.partitions = partitions
        self._session = session
        self._is_incremental = is_incremental

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
        self._session.answered(cached.key for cached, answer in answers if answer.records)
        return news if self._is_incremental else answers


class FetchSessions:
    """The sessions of a broker, least recently used first. Thread-safe."""

    def __init__(self, slots: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(
        self, body: FetchRequest, version: int, listed: list[CachedPartition], forgotten: list[TopicPartition]
    ) -> FetchContext:
        """Return what a request reads; raise KafkaError where it names a session that is not as it thinks."""
        with self._lock:
            if body.session_epoch in (SESSIONLESS_EPOCH, INITIAL_EPOCH):
                self._sessions.pop(body.session_id, None)
                session = self._new(version) if body.session_epoch == INITIAL_EPOCH and listed else None
                if session is not None:
                    session.change(listed, ())
                    listed = list(session.partitions.values())
                return FetchContext(listed, session, is_incremental=False)
            session = self._checked(body, version)
            session.change(listed, forgotten)
            session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
            session.last_used = self._clock()
            self._sessions.move_to_end(session.session_id)
            if not session.partitions:
                del self._sessions[session.session_id]
                return FetchContext([], None, is_incremental=False)
            return FetchContext(list(session.partitions.values()), session, is_incremental=True)

    def _checked(self, body: FetchRequest, version: int) -> FetchSession:
        session = self._sessions.get(body.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {body.session_id}")
        if session.epoch != body.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {body.session_epoch} where {session.epoch} must come"
            )
        if session.uses_topic_ids != (version >= _TOPIC_IDS_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session was begun in another way")
        return session

    def _new(self, version: int) -> FetchSession | None:
        """Make a session, if there is room or the oldest one has not been used for long. The lock is held."""
        now = self._clock()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < _EVICTABLE_AFTER_SECONDS:
                return None
            del self._sessions[oldest.session_id]
        session_id = random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session = FetchSession(session_id, version >= _TOPIC_IDS_VERSION, now)
        self._sessions[session_id] = session
        return session
