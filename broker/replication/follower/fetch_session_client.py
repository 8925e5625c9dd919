"""A follower's side of an incremental fetch session (KIP-227): what each fetch has to say.

The leader keeps, for a session, which partitions are fetched and from where. The first fetch names all of them; each
further one only those that are new or whose position has changed, and those to be forgotten. So a fetch costs as much
as has changed, however many partitions there are. Both sides count the fetches of a session: where the counts differ, a
fetch or its answer got lost, what the leader knows is not certain, and the session begins anew.

No I/O, and no lock: the thread of one fetcher uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from ottla.broker.replication.follower.follower import FetchPosition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.primitives import UUID_ZERO

NO_SESSION: Final = 0
_FULL: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class SessionPartition(NamedTuple):
    """A partition in a session. A topic that was made anew has another id, and so is another one."""

    topic: str
    topic_id: bytes
    partition: int


class SessionFetch(NamedTuple):
    """The part of a fetch that the session decides."""

    session_id: int
    session_epoch: int
    # Those that are new to the leader or have changed; and those that it shall forget.
    positions: Mapping[SessionPartition, FetchPosition]
    forgotten: Collection[SessionPartition]


class FetchSession:
    """What is to be fetched from one leader, and how much of that it knows already."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = _FULL
        self._wanted: dict[SessionPartition, FetchPosition] = {}
        # Partitions of topics without an id; while there is one, topics are named in the older way.
        self._nameless: set[SessionPartition] = set()
        # Of the leader's side: what its session holds, and by how much that differs from what is wanted.
        self._known: set[SessionPartition] = set()
        self._changed: dict[SessionPartition, FetchPosition] = {}
        self._forgotten: dict[SessionPartition, None] = {}
        self._was_by_id = True

    def __repr__(self) -> str:
        return f"<FetchSession {self.session_id} epoch={self._epoch} partitions={len(self._wanted)}>"

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

    def enter(self, partition: SessionPartition, position: FetchPosition) -> None:
        """Fetch a partition of which the leader shall tell everything, also what it has told before.

        It tells only what has changed since its last answer. If we did not take that in, say because the partition
        was removed meanwhile and is back, it would keep its high watermark to itself until the next record.
        """
        if partition in self._known:
            self.restart()
        self.put(partition, position)

    def put(self, partition: SessionPartition, position: FetchPosition) -> None:
        """Fetch a partition from a position that has changed."""
        self._wanted[partition] = self._changed[partition] = position
        self._forgotten.pop(partition, None)
        if partition.topic_id == UUID_ZERO:
            self._nameless.add(partition)

    def drop(self, partition: SessionPartition) -> None:
        """Fetch a partition no longer."""
        if self._wanted.pop(partition, None) is None:
            return
        self._changed.pop(partition, None)
        self._nameless.discard(partition)
        if partition in self._known:
            self._forgotten[partition] = None

    def restart(self) -> None:
        """Begin anew: what the leader knows is not certain. The next fetch closes the session that there was."""
        self._epoch = _FULL

    def next_fetch(self) -> SessionFetch:
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
        """Take in the answer to the last fetch; return its error, after which the session begins anew."""
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION
        if code is not ErrorCode.NONE:
            self.restart()
        elif response.session_id == NO_SESSION:
            # The leader has no room for a session, or closed it.
            self.session_id = NO_SESSION
            self.restart()
        else:
            self.session_id = response.session_id
            self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1
        return code
