"""The client side of an incremental fetch session (KIP-227), for followers and consumers.

The broker remembers, per session, which partitions are fetched and from which positions. The first fetch names all
partitions. Each later one names only partitions that are new, have another position, or are to be forgotten. So the
cost of a fetch depends on the changes, not on the number of partitions. Both sides count the fetches of a session. If
the counts differ, a fetch or its response was lost, and the session starts over.

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

# The position to fetch a partition from; equal positions mean the same request.
PositionT = TypeVar("PositionT")


class SessionPartition(NamedTuple):
    """A partition in a session. If a topic was deleted and created again, its new id makes it another partition."""

    topic: str
    topic_id: bytes
    partition: int


class SessionFetch(NamedTuple, Generic[PositionT]):
    """The part of a fetch that the session decides."""

    session_id: int
    session_epoch: int
    # Partitions that are new to the broker or have changed, and partitions to forget.
    positions: Mapping[SessionPartition, PositionT]
    forgotten: Collection[SessionPartition]


class FetchSessionClient(Generic[PositionT]):
    """The partitions to fetch from one broker, and which of them the broker already knows."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = _FULL
        self._wanted: dict[SessionPartition, PositionT] = {}
        # Partitions of topics without an id. While there is one, topics are identified by name.
        self._nameless: set[SessionPartition] = set()
        # The broker's side of the session, and how it differs from what we want.
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
        """Whether all topics have ids: version 13 requires ids, older versions require names."""
        return not self._nameless

    @property
    def is_full(self) -> bool:
        """Whether the next fetch names every partition."""
        return self._epoch == _FULL

    def enter(self, partition: SessionPartition, position: PositionT) -> None:
        """Fetch a partition, and make the broker report everything about it, even what it has reported before.

        A broker reports only what has changed since its last response. If we did not apply that response, for example
        because the partition was removed meanwhile and added again, we would miss its high watermark until the next
        record.
        """
        if partition in self._known:
            self.restart()
        self.put(partition, position)

    def put(self, partition: SessionPartition, position: PositionT) -> None:
        """Fetch a partition from this position."""
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
        # A full fetch lists the partitions in this order.
        self._wanted = dict(wanted)

    def restart(self) -> None:
        """Start over, because the broker's state is unknown. The next fetch closes the previous session."""
        self._epoch = _FULL

    def next_fetch(self) -> SessionFetch[PositionT]:
        """Return what to send now; call `answered` or `restart` before the next one."""
        if self._was_by_id != self.is_by_id:
            # A session cannot change between names and ids.
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
        """Apply the response to the last fetch; return its error, after which the session starts over."""
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION
        if code is not ErrorCode.NONE:
            self.restart()
        elif response.session_id == NO_SESSION:
            # The broker's session cache is full, or it closed the session.
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
