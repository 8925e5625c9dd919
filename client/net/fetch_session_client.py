"""The asking side of an incremental fetch session (KIP-227), for followers and consumers: what each fetch has to say.

The broker that is asked keeps, for a session, which partitions are fetched and from where. The first fetch names all of
them; each later one names only partitions that are new or whose position has changed, and those to be forgotten. So a
fetch costs as much as has changed, however many partitions there are. Both sides count the fetches of a session. Where
the counts differ, a fetch or its answer got lost, and the session starts over.

No I/O, and no lock: one thread, or one event loop, uses a session, for one fetch at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    NO_SESSION,
    SESSION_EPOCH_MAX,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.protocol.primitives import UUID_ZERO

_FULL: Final = 0

# From where a partition is fetched; positions that are equal ask for the same.
PositionT = TypeVar("PositionT")


class SessionPartition(NamedTuple):
    """A partition in a session. A topic that was deleted and created again has another id: it is another partition."""

    topic: str
    topic_id: bytes
    partition: int


class SessionFetch(NamedTuple, Generic[PositionT]):
    """The part of a fetch that the session decides."""

    session_id: int
    session_epoch: int
    # Those that are new to the broker or have changed; and those that it shall forget.
    positions: Mapping[SessionPartition, PositionT]
    forgotten: Collection[SessionPartition]


class FetchSessionClient(Generic[PositionT]):
    """What is to be fetched from one broker, and how much of that it knows already."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = _FULL
        self._wanted: dict[SessionPartition, PositionT] = {}
        # Partitions of topics without an id; while there is one, topics are named in the older way.
        self._nameless: set[SessionPartition] = set()
        # Of the broker's side: what its session holds, and by how much that differs from what is wanted.
        self._known: set[SessionPartition] = set()
        self._changed: dict[SessionPartition, PositionT] = {}
        self._forgotten: dict[SessionPartition, None] = {}
        self._was_by_id = True

    def __repr__(self) -> str:
        return f"<FetchSessionClient {self.session_id} epoch={self._epoch} partitions={len(self._wanted)}>"

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def is_by_id(self) -> bool:
        """Whether topics can be named by their ids, which version 13 demands and older ones cannot."""
        return not self._nameless

    @property
    def is_full(self) -> bool:
        """Whether the next fetch names every partition."""
        return self._epoch == _FULL

    def enter(self, partition: SessionPartition, position: PositionT) -> None:
        """Fetch a partition, and have the broker report everything about it, also what it has reported before.

        A broker reports only what has changed since its last answer. If we did not take that in, say because the
        partition was removed meanwhile and is back, its high watermark would be missing until the next record.
        """
        if partition in self._known:
            self.restart()
        self.put(partition, position)

    def put(self, partition: SessionPartition, position: PositionT) -> None:
        """Fetch a partition from a position that is new or has changed."""
        self._wanted[partition] = self._changed[partition] = position
        self._forgotten.pop(partition, None)
        if partition.topic_id == UUID_ZERO:
            self._nameless.add(partition)

    def drop(self, partition: SessionPartition) -> None:
        """Stop fetching a partition."""
        if self._wanted.pop(partition, None) is None:
            return
        self._changed.pop(partition, None)
        self._nameless.discard(partition)
        if partition in self._known:
            self._forgotten[partition] = None

    def replace(self, wanted: Mapping[SessionPartition, PositionT]) -> None:
        """Fetch these partitions from these positions, and no others."""
        for partition in [known for known in self._wanted if known not in wanted]:
            self.drop(partition)
        for partition, position in wanted.items():
            if self._wanted.get(partition) != position:
                self.put(partition, position)
        # A fetch that names all of them names them in this order.
        self._wanted = dict(wanted)

    def restart(self) -> None:
        """Start over: nobody knows what the broker remembers. The next fetch closes the session that there was."""
        self._epoch = _FULL

    def next_fetch(self) -> SessionFetch[PositionT]:
        """Return what to send now; `answered` or `restart` must follow before the next one."""
        if self._was_by_id != self.is_by_id:
            # A session that names topics in one way cannot go on in the other.
            self._was_by_id = self.is_by_id
            self.restart()
        if self._epoch == _FULL:
            self._known = set(self._wanted)
            fetch = SessionFetch(self.session_id, self._epoch, self._wanted, ())
        else:
            self._known.difference_update(self._forgotten)
            self._known.update(self._changed)
            fetch = SessionFetch(self.session_id, self._epoch, self._changed, self._forgotten)
        self._changed = {}
        self._forgotten = {}
        return fetch

    def answered(self, response: FetchResponse) -> ErrorCode:
        """Take in the answer to the last fetch; return its error, after which the session starts over."""
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION
        if code is not ErrorCode.NONE:
            self.restart()
        elif response.session_id == NO_SESSION:
            # The broker has no room for a session, or closed it.
            self.session_id = NO_SESSION
            self.restart()
        else:
            self.session_id = response.session_id
            self._epoch = self._epoch + 1 if self._epoch < SESSION_EPOCH_MAX else 1
        return code


def fetch_topics(rows: Iterable[tuple[SessionPartition, FetchPartition]]) -> list[FetchTopic]:
    """Return the partitions to fetch as a request lists them."""
    topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
    for (topic, topic_id, _), row in rows:
        topics.setdefault((topic, topic_id), []).append(row)
    return [
        FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in topics.items()
    ]


def forgotten_topics(forgotten: Iterable[SessionPartition]) -> list[ForgottenTopic]:
    """Return the partitions to forget as a request lists them."""
    topics: dict[tuple[str, bytes], list[int]] = {}
    for topic, topic_id, index in forgotten:
        topics.setdefault((topic, topic_id), []).append(index)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id, partitions=indexes)
        for (topic, topic_id), indexes in topics.items()
    ]
