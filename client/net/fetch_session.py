"""What a broker remembers between our fetches (KIP-227): a request names only partitions that changed since the last.

The first request of a session, of epoch 0, names all partitions, and its answer has the session's id. Those that
follow count the epochs up; what they do not name is fetched as before. A broker that keeps no session for us answers
with id 0, and gets all partitions again. After an error, whatever it was, the session begins anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, TypeVar

from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.primitives import UUID_ZERO

T = TypeVar("T")

_NO_SESSION: Final = 0
_EPOCH_FIRST: Final = 0
_EPOCH_MAX: Final = (1 << 31) - 1


class FetchSession:
    """The session with one broker; for one request at a time."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _EPOCH_FIRST
        # What the broker remembers.
        self._known: dict[TopicPartition, FetchPartition] = {}
        self._topic_ids: Mapping[str, bytes] = {}

    def request(
        self,
        wanted: Mapping[TopicPartition, FetchPartition],
        topic_ids: Mapping[str, bytes],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        rack_id: str,
    ) -> FetchRequest:
        """Return the request that has the broker fetch what is wanted, and nothing else."""
        if any(self._topic_ids.get(name, topic_id) != topic_id for name, topic_id in topic_ids.items()):
            self.reset()
        changed = {partition: row for partition, row in wanted.items() if self._known.get(partition) != row}
        gone = [partition for partition in self._known if partition not in wanted]
        forgotten = _by_topic({partition: partition.partition for partition in gone})
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[
                FetchTopic(topic=name, topic_id=topic_ids.get(name, UUID_ZERO), partitions=rows)
                for name, rows in _by_topic(changed).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=self._topic_ids.get(name, UUID_ZERO), partitions=numbers)
                for name, numbers in forgotten.items()
            ],
            rack_id=rack_id,
        )

    def answered(
        self, session_id: int, wanted: Mapping[TopicPartition, FetchPartition], topic_ids: Mapping[str, bytes]
    ) -> None:
        """The broker has taken the request in."""
        if session_id == _NO_SESSION:
            self.reset()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        self._known = dict(wanted)
        self._topic_ids = {**self._topic_ids, **topic_ids}

    def reset(self) -> None:
        """Begin anew with the next request."""
        self._id = _NO_SESSION
        self._epoch = _EPOCH_FIRST
        self._known = {}
        self._topic_ids = {}


def _by_topic(rows: Mapping[TopicPartition, T]) -> dict[str, list[T]]:
    by_topic: dict[str, list[T]] = defaultdict(list)
    for partition, row in rows.items():
        by_topic[partition.topic].append(row)
    return by_topic
